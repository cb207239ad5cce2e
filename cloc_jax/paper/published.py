"""What the CLOC paper (CVPR 2025) reports, to show beside runs.

All its numbers are in published.json, as they are printed. They were reached with
the paper's own settings and splits.
"""

import json
import pathlib
from typing import Any

_TEXT = pathlib.Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
_DOCUMENT: dict[str, Any] = json.loads(_TEXT)
TABLES: dict[str, Any] = _DOCUMENT["tables"]
# What the paper says, in our words, with where it does, by a short name.
CLAIMS: dict[str, dict[str, str]] = _DOCUMENT["claims"]
# Whose figures the paper seems to quote from another paper: methods, datasets and why.
QUOTED: dict[str, Any] = _DOCUMENT["quoted"]


def title(dataset: str) -> str:
    """A dataset's name for people."""
    return _DOCUMENT["titles"].get(dataset, dataset)


def is_quoted(method: str, dataset: str) -> bool:
    """Whether the paper seems to quote this method's figures from another paper."""
    return method in QUOTED["methods"] and dataset in QUOTED["datasets"]


def protocol(dataset: str) -> dict[str, Any]:
    """How the paper trained on a dataset, as far as it says; {} where it did not."""
    protocols = _DOCUMENT["protocol"]
    return protocols["all"] | protocols[dataset] if dataset in protocols else {}


def controllability(dataset: str, num_ranks: int) -> dict[str, Any] | None:
    """Table 2 on a dataset: error rates by boundary and the accuracy, with margins
    learned and with the critical ones raised. None where it has other ranks."""
    printed = TABLES["controllability"].get(dataset)
    return printed if printed and len(printed["learned"]) == num_ranks - 1 else None
