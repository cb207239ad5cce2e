"""What the CLOC paper (CVPR 2025) reports, to show beside runs.

All its numbers are in published.json, as they are printed. They were reached with
the paper's own settings and splits.
"""

import functools
import json
import pathlib
from typing import Any

PATH = pathlib.Path(__file__).with_suffix(".json")


@functools.cache
def document() -> dict[str, Any]:
    """All that is known of the paper: its tables, protocol, and remarks on them."""
    return json.loads(PATH.read_text(encoding="utf-8"))


def tables() -> dict[str, Any]:
    """The paper's tables."""
    return document()["tables"]


def claims() -> dict[str, dict[str, str]]:
    """What the paper says, in our words, with where it does, by a short name."""
    return document()["claims"]


def title(dataset: str) -> str:
    """A dataset's name for people."""
    return document()["titles"].get(dataset, dataset)


def is_quoted(method: str, dataset: str) -> bool:
    """Whether the paper seems to quote this method's figures from another paper."""
    quoted = document()["quoted"]
    return method in quoted["methods"] and dataset in quoted["datasets"]


def protocol(dataset: str) -> dict[str, Any]:
    """How the paper trained on a dataset, as far as it says; {} where it did not."""
    protocols = document()["protocol"]
    return protocols["all"] | protocols[dataset] if dataset in protocols else {}


def controllability(dataset: str, num_ranks: int) -> dict[str, Any] | None:
    """Table 2 on a dataset: error rates by boundary and the accuracy, with margins
    learned and with the critical ones raised. None where it has other ranks."""
    printed = tables()["controllability"].get(dataset)
    return printed if printed and len(printed["learned"]) == num_ranks - 1 else None
