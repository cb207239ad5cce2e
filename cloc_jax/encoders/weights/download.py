"""Fetching weights by name from the Hugging Face hub, once, with their checksum.

huggingface_hub downloads and stores the file. It does not compare the content with the
sha256 that the hub states, nor with one that the user pinned: that happens here.
"""

import contextlib
import os
import pathlib
import re
from collections.abc import Iterator

from cloc_jax.runtime import environment, errors, files
from cloc_jax.runtime.console import console

FILE = "model.safetensors"
SHA256 = "[0-9a-f]{64}"
LIMIT = "CLOC_DOWNLOAD_SECONDS"  # environment variable
NAME = re.compile(
    rf"(?!.*(?:\.\.|--))(\b[\w.-]+\b/\b[\w.-]+\b)(?:@sha256:({SHA256}))?", re.ASCII
)
# Read by the library when it is imported; what the user has set stays.
SETTINGS = {
    "HF_HUB_DISABLE_SYMLINKS_WARNING": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_XET": "1",  # other hosts, with timeouts and messages of their own
    "HF_HUB_VERBOSITY": "critical",
}
ELSEWHERE = (
    "Check the network and try again, or set HF_ENDPOINT to a mirror; or get the file "
    "by another way and give its path instead of the name."
)


def is_name(text: str) -> bool:
    """Whether it is written like a name on the hub: owner/name or …@sha256:…"""
    return NAME.fullmatch(text) is not None


def fetch(name: str, *, cache: pathlib.Path, endpoint: str = "") -> pathlib.Path:
    """Path of the safetensors file of a repository, downloaded if it is not yet there.

    A file in the cache is checked and used without any request. A transfer that broke
    or brought other bytes leaves nothing behind that would be used later.

    Args:
      name: such as timm/resnet50.tv_in1k, or with @sha256:… to accept one file only.
      cache: the folder that keeps downloaded files, below `hub`.
      endpoint: the hub; HF_ENDPOINT or huggingface.co by default. HF_TOKEN is sent to
        it where it is set, and never to where it redirects.
    """
    match = NAME.fullmatch(name)
    if match is None:
        raise ValueError(
            f"{name!r} is no name on the hub; it has the form owner/name, such as "
            "timm/resnet50.tv_in1k, or owner/name@sha256:… with 64 hexadecimal digits."
        )
    repository, pinned, folder = match[1], match[2] or "", cache / "hub"
    for key, value in SETTINGS.items():
        os.environ.setdefault(key, value)
    import huggingface_hub as library

    cached = library.try_to_load_from_cache(repository, FILE, cache_dir=folder)
    if isinstance(cached, str) and _is_intact(pathlib.Path(cached), pinned):
        return pathlib.Path(cached)
    endpoint = endpoint or os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    endpoint = endpoint.rstrip("/")
    # The library limits single reads only.
    limit = environment.positive_number(LIMIT, 3600.0, "seconds")
    url = library.hf_hub_url(repository, FILE, endpoint=endpoint)
    console.print(
        f"  downloading the weights {repository} from {endpoint}, once, into {folder}",
        soft_wrap=True,
    )
    with _explained(url):
        about = errors.within(
            limit, library.get_hf_file_metadata, url, endpoint=endpoint
        )
        stated = about.etag or ""
    if pinned and stated != pinned and re.fullmatch(SHA256, stated):
        raise ValueError(
            f"{url} has sha256 {stated} now, but {pinned} was asked for; leave out "
            "@sha256:… to take the new file, or get the old one by another way."
        )
    with _explained(url):
        stored = errors.within(
            limit,
            library.hf_hub_download,
            repository,
            FILE,
            cache_dir=folder,
            endpoint=endpoint,
            force_download=isinstance(cached, str),  # damaged, or not the pinned one
        )
    path = pathlib.Path(stored)
    if not _is_intact(path, pinned):
        brought = files.sha256(path)
        path.resolve().unlink()
        path.unlink(missing_ok=True)
        raise ValueError(
            f"{url} brought other bytes than it should: sha256 {brought} instead of "
            f"{pinned or stated}; nothing was kept. Try again; if it stays so, "
            "something between here and the hub changes the file."
        )
    return path


def _is_intact(path: pathlib.Path, pinned: str) -> bool:
    """Whether a file has its sha256: the one pinned, or the one it is stored under."""
    wanted = pinned or path.resolve().stem
    # The tag of a small file has 40 digits and is not a checksum of its content.
    return not re.fullmatch(SHA256, wanted) or files.sha256(path) == wanted


@contextlib.contextmanager
def _explained(url: str) -> Iterator[None]:
    """Turns any failure into a ValueError that says what to do."""
    try:
        yield
    except Exception as error:
        code = getattr(getattr(error, "response", None), "status_code", None)
        if code in (401, 403, 404):
            raise ValueError(
                f"the hub did not give {url} ({code}): there is no such file, or it is "
                "closed and needs HF_TOKEN. Check the name; repositories that have the "
                "file: timm/resnet50.tv_in1k, timm/vgg16.tv_in1k, "
                "timm/densenet121.tv_in1k."
            ) from error
        reason = f"error {code}" if code else str(error) or type(error).__name__
        if isinstance(error, TimeoutError):
            reason += f"; the variable {LIMIT} raises this limit"
        raise ValueError(
            f"the weights are not here yet, and {url} was not downloaded "
            f"({reason.splitlines()[0].rstrip('.')}); nothing was kept. {ELSEWHERE}"
        ) from error
