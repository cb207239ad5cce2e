"""Fetching weights by name from the Hugging Face hub, once, with their checksum.

The hub answers a request for a large file with a redirection, and says in its headers
which sha256 the file has (`X-Linked-Etag`). What arrives is checked against that, and
against the sha256 that the user may have pinned. The tests run against a local server
that answers in the same way; the hub itself was not reached by them.
"""

import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple

from rich import progress
from rich.console import Console

from cloc_jax.encoders.weights import weight_files

ENDPOINT = "https://huggingface.co"
FILE = "model.safetensors"
NAME = re.compile(r"([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@sha256:([0-9a-f]{64}))?")
TIMEOUT = 60  # seconds without a single byte
CHUNK = 2**20
ELSEWHERE = (
    "Or get the file by another way, such as a browser on another machine, and give "
    "its path instead of the name."
)


class Headers(NamedTuple):
    """What the answers said about the file, before and after redirections."""

    sha256: str
    size: int | None


def is_name(text: str) -> bool:
    """Whether it is written like a name on the hub: owner/name or …@sha256:…"""
    return NAME.fullmatch(text) is not None and ".." not in text


def fetch(name: str, *, cache: pathlib.Path, endpoint: str = "") -> pathlib.Path:
    """Path of the safetensors file of a repository, downloaded if it is not yet there.

    A file in the cache is checked (size and sha256) and used without any request.
    Nothing is left behind by a transfer that broke or brought other bytes.

    Args:
      name: such as timm/resnet50.tv_in1k, or with @sha256:… to accept one file only.
      cache: the folder that keeps downloaded files.
      endpoint: the hub; HF_ENDPOINT or huggingface.co by default. HF_TOKEN is sent to
        it where it is set, and never to where it redirects.
    """
    match = NAME.fullmatch(name)
    if not is_name(name) or match is None:
        raise ValueError(
            f"{name!r} is no name on the hub; it has the form owner/name, such as "
            "timm/resnet50.tv_in1k, or owner/name@sha256:… with 64 hexadecimal digits."
        )
    repository, pinned = match[1], match[2] or ""
    folder = cache / "hub" / repository.replace("/", "--")
    found = _cached(folder, pinned)
    if found is not None:
        return found
    endpoint = (endpoint or os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")
    if not endpoint.startswith(("https://", "http://")):
        raise ValueError(
            f"HF_ENDPOINT is {endpoint!r}; give an address such as {ENDPOINT}."
        )
    url = f"{endpoint}/{repository}/resolve/main/{FILE}"
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{os.getpid()}.part"
    try:
        headers = _download(url, part, repository, pinned)
        target = folder / f"{headers.sha256}.safetensors"
        record = {"name": repository, "url": url, "file": target.name}
        record |= {"sha256": headers.sha256, "size": part.stat().st_size}
        os.replace(part, target)
        part.write_text(json.dumps(record, indent=2) + "\n")
        os.replace(part, folder / "record.json")
    finally:
        part.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()  # only where nothing came
    return target


def _cached(folder: pathlib.Path, pinned: str) -> pathlib.Path | None:
    """The file that is in the cache already and has not changed since."""
    wanted, size = pinned, None
    if not pinned:
        try:
            record = json.loads((folder / "record.json").read_text())
            wanted, size = record["sha256"], record["size"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
    path = folder / f"{wanted}.safetensors"
    if not path.is_file() or size not in (None, path.stat().st_size):
        return None
    return path if weight_files.sha256(path) == wanted else None


def _download(url: str, part: pathlib.Path, name: str, pinned: str) -> Headers:
    """Streams a URL to a file; returns what was promised, which is then true."""
    follow = _Follow()
    try:
        with _open(url, follow) as answer:
            follow.note(answer.headers)
            headers = _promised(follow, answer, url, pinned)
            count, digest = _stream(answer, part, name, headers.size)
    except urllib.error.HTTPError as error:
        with error:
            raise ValueError(_refused(error.code, url, name)) from error
    except urllib.error.URLError as error:
        raise ValueError(
            f"{url} was not reached ({error.reason}); check the network, or set "
            f"HF_ENDPOINT to a mirror. {ELSEWHERE} {weight_files.MISSING}"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise ValueError(
            f"the transfer of {url} broke ({error or type(error).__name__}); nothing "
            f"was kept, try again. {ELSEWHERE}"
        ) from error
    if headers.size not in (None, count):
        raise ValueError(
            f"the transfer of {url} broke after {count} of {headers.size} bytes; "
            f"nothing was kept, try again. {ELSEWHERE}"
        )
    if digest != headers.sha256:
        raise ValueError(
            f"{url} brought other bytes than it should: sha256 {digest} instead of "
            f"{headers.sha256}; nothing was kept. Try again; if it stays so, something "
            "between here and the hub changes the file."
        )
    return headers


class _Follow(urllib.request.HTTPRedirectHandler):
    """Follows redirections, and keeps the headers of the answers on the way."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def note(self, headers: Any) -> None:
        self.seen.append(headers)

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        self.note(headers)
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        old, new = (urllib.parse.urlsplit(u) for u in (req.full_url, newurl))
        # A renamed repository redirects within the hub; a file's store gets no token.
        if request is not None and (old.scheme, old.netloc) == (new.scheme, new.netloc):
            for key, value in req.unredirected_hdrs.items():
                if key == "Authorization":
                    request.add_unredirected_header(key, value)
        return request


def _open(url: str, follow: _Follow) -> Any:
    request = urllib.request.Request(url, headers={"User-Agent": "cloc_jax"})
    token = os.environ.get("HF_TOKEN", "").strip()
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    return urllib.request.build_opener(follow).open(request, timeout=TIMEOUT)


def _promised(follow: _Follow, answer: Any, url: str, pinned: str) -> Headers:
    """Checksum and size by the headers; the first answer is the hub's own."""
    values = [h[key] for h in follow.seen for key in ("X-Linked-Etag", "ETag")]
    # The tag of a small file is no sha256, and shorter.
    tags = [re.fullmatch(r'(?:W/)?"?([0-9a-f]{64})"?', v.strip()) for v in values if v]
    served = next((tag[1] for tag in tags if tag), "")
    if pinned and served and served != pinned:
        raise ValueError(
            f"{url} has sha256 {served} now, but {pinned} was asked for; leave out "
            "@sha256:… to take the new file, or get the old one by another way."
        )
    if not (pinned or served):
        raise ValueError(
            f"{url} does not say which sha256 the file has, so it cannot be checked; "
            "give it yourself, as owner/name@sha256:…, to download it all the same."
        )
    length = answer.headers["Content-Length"]
    return Headers(pinned or served, int(length) if length else None)


def _stream(
    answer: Any, part: pathlib.Path, name: str, size: int | None
) -> tuple[int, str]:
    """Writes the answer to a file; its bytes and sha256."""
    digest, count = hashlib.sha256(), 0
    with part.open("wb") as file, _bar(name, size) as advance:
        while chunk := answer.read(CHUNK):
            file.write(chunk)
            digest.update(chunk)
            count += len(chunk)
            advance(len(chunk))
    return count, digest.hexdigest()


@contextlib.contextmanager
def _bar(name: str, size: int | None) -> Iterator[Any]:
    """A bar on standard error where that is a terminal; gives how to move it."""
    with progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=24),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True, highlight=False, markup=False),
        transient=True,
        disable=not sys.stderr.isatty(),
    ) as bar:
        task = bar.add_task(f"downloading {name}", total=size)
        yield lambda count: bar.advance(task, count)


def _refused(code: int, url: str, name: str) -> str:
    """Why the hub gave an error instead of the file."""
    if code == 404:
        return (
            f"{url} does not exist (404); check the name {name}. Repositories that "
            f"have {FILE}: timm/resnet50.tv_in1k, timm/vgg16.tv_in1k, "
            "timm/densenet121.tv_in1k."
        )
    if code in (401, 403):
        return (
            f"the hub did not give {name} ({code}): there is no such repository, or it "
            "is closed and needs HF_TOKEN."
        )
    return f"{url} answered with error {code}; try again later. {ELSEWHERE}"
