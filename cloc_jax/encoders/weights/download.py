"""Fetching weights by name from the Hugging Face hub, once, with their checksum.

huggingface_hub downloads and stores the file. It does not compare the content with the
sha256 that the hub states: that happens here.
"""

import os
import pathlib
import re

from cloc_jax.runtime import files
from cloc_jax.runtime.console import console

FILE = "model.safetensors"
# Read by the library when it is imported; what the user has set stays.
SETTINGS = {
    "HF_HUB_DISABLE_SYMLINKS_WARNING": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_XET": "1",  # other hosts, with timeouts and messages of their own
    "HF_HUB_VERBOSITY": "critical",
}


def is_name(text: str) -> bool:
    """Whether it is written like a name on the hub: owner/name."""
    return re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", text, re.ASCII) is not None


def fetch(
    name: str, *, cache: pathlib.Path, endpoint: str | None = None
) -> pathlib.Path:
    """Path of the safetensors file of a repository, downloaded if it is not yet there.

    A file in the cache is checked and used without any request. A transfer that broke
    or brought other bytes leaves nothing behind that would be used later.

    Files lie below `hub` in the cache. HF_ENDPOINT or huggingface.co is the default;
    HF_TOKEN is sent there where it is set, and never to where it redirects.
    """
    for key, value in SETTINGS.items():
        os.environ.setdefault(key, value)
    import huggingface_hub as library

    folder = cache / "hub"
    cached = library.try_to_load_from_cache(name, FILE, cache_dir=folder)
    if isinstance(cached, str) and _is_intact(pathlib.Path(cached)):
        return pathlib.Path(cached)
    url = library.hf_hub_url(name, FILE, endpoint=endpoint)
    console.print(f"  downloading {url}, once, into {folder}", soft_wrap=True)
    try:
        path = pathlib.Path(
            library.hf_hub_download(
                name,
                FILE,
                cache_dir=folder,
                endpoint=endpoint,
                force_download=isinstance(cached, str),  # damaged
            )
        )
    except Exception as error:
        raise ValueError(_explanation(url, error)) from error
    if not _is_intact(path):
        path.resolve().unlink()
        path.unlink(missing_ok=True)
        raise ValueError(
            f"{url} brought bytes that do not match the hub's sha256; nothing was "
            "kept. Try again; if it stays so, something between here and the hub "
            "changes the file."
        )
    return path


def _is_intact(path: pathlib.Path) -> bool:
    """Whether a file has the sha256 that it is stored under."""
    wanted = path.resolve().name
    # The tag of a small file has 40 digits and is not a checksum of its content.
    return not re.fullmatch("[0-9a-f]{64}", wanted) or files.sha256(path) == wanted


def _explanation(url: str, error: Exception) -> str:
    """Why there was no download, and what to do."""
    cause = error.__cause__ or error  # the library wraps what a server answered
    code = getattr(getattr(cause, "response", None), "status_code", None)
    reason = f"error {code}" if code else str(cause) or type(cause).__name__
    advice = (
        "Check the network and try again, or set HF_ENDPOINT to a mirror; or get the "
        "file by another way and give its path instead of the name."
    )
    if code in (401, 403, 404):
        advice = (
            "There is no such file, or it is closed and needs HF_TOKEN; one that there "
            "is: timm/vgg16.tv_in1k."
        )
    reason = reason.splitlines()[0].rstrip(".")
    return f"{url} was not downloaded ({reason}); nothing was kept. {advice}"
