"""What changed between two descriptions of a dataset, in words.

A description has `sha256`, of names and labels in their order, `images`, the number in
each split, and `content`, a digest of each file by split and name. Runs of earlier
versions have no `content`, drawn images an empty one.
"""

from collections.abc import Mapping
from typing import Any

SHOWN = 3  # names of each kind


def can_compare(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether a difference in the content of files would be seen."""
    return "content" in before or not now.get("content")


def describe(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What changed, with numbers and the first names; "" where nothing did."""
    old, new = _by_name(before), _by_name(now)
    parts = []
    if old and new:
        kept = [name for name in old if name in new]
        parts = [
            _some([n for n in kept if old[n][1] != new[n][1]], "with other content"),
            _some([name for name in old if name not in new], "missing"),
            _some([name for name in new if name not in old], "new"),
            _some([n for n in kept if old[n][0] != new[n][0]], "in another split"),
        ]
    parts = [part for part in parts if part]
    if before["images"] != now["images"]:
        parts.append(f"it had {before['images']}, now there are {now['images']}")
    if not parts and before["sha256"] != now["sha256"]:
        return "names or labels differ"
    return "; ".join(parts)


def _by_name(description: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Split and digest of each file."""
    content: Mapping[str, Mapping[str, str]] = description.get("content") or {}
    return {
        name: (split, digest)
        for split, files in content.items()
        for name, digest in files.items()
    }


def _some(names: list[str], what: str) -> str:
    if not names:
        return ""
    shown = ", ".join(sorted(names)[:SHOWN]) + ", …" * (len(names) > SHOWN)
    noun = "image" if len(names) == 1 else "images"
    return f"{len(names)} {noun} {what} ({shown})"
