"""What the CLOC paper (CVPR 2025) reports, to show beside runs.

All its numbers are in paper_tables.json, as they are printed. They were reached with
the paper's own settings and splits.
"""

import functools
import json
import pathlib
from typing import Any, NamedTuple

PATH = pathlib.Path(__file__).with_name("paper_tables.json")
DATASETS = ("adience", "hid", "koa", "idrid", "bracs")  # of its Tables 1 and 2
ALL_DATASETS = (*DATASETS, "clap2015")


class Control(NamedTuple):
    """Table 2: error rates by boundary, learned and with the critical ones raised."""

    critical: tuple[int, ...]  # position of the boundaries that were raised
    learned: tuple[float, ...]
    controlled: tuple[float, ...]
    learned_accuracy: float
    controlled_accuracy: float
    notes: tuple[str, ...] = ()


class Published(NamedTuple):
    """The paper's CLOC on one dataset."""

    accuracy: float | None
    mae: float
    control: Control | None = None
    notes: tuple[str, ...] = ()


@functools.cache
def document() -> dict[str, Any]:
    """All that is known of the paper: its tables, protocol, and remarks on them."""
    return json.loads(PATH.read_text(encoding="utf-8"))


def tables() -> dict[str, Any]:
    """The paper's tables."""
    return document()["tables"]


def title(dataset: str) -> str:
    """A dataset's name for people."""
    return document()["titles"].get(dataset, dataset)


def is_quoted(method: str, dataset: str) -> bool:
    """Whether the paper seems to quote this method's figures from another paper."""
    quoted = document()["quoted"]
    return method in quoted["methods"] and dataset in quoted["datasets"]


def protocol(dataset: str) -> dict[str, Any]:
    """How the paper trained on a dataset, as far as it says; {} where it did not."""
    found = document()["protocol"]
    return found["all"] | found[dataset] if dataset in found else {}


def of_dataset(name: str) -> Published:
    """The paper's CLOC on one of DATASETS."""
    scores, control = tables()["comparison"]["cloc"], tables()["controllability"][name]
    notes = document()
    return Published(
        scores["accuracy"][name],
        scores["mae"][name],
        Control(
            # "C2-C3" is the second boundary.
            tuple(int(text[1 : text.index("-")]) - 1 for text in control["critical"]),
            tuple(control["learned"]),
            tuple(control["controlled"]),
            control["accuracy"]["learned"],
            control["accuracy"]["controlled"],
            tuple(notes["control_notes"].get(name, ())),
        ),
        tuple(notes["notes"].get(name, ())),
    )


def find(dataset: str, num_ranks: int) -> Published | None:
    """The paper's result on one of ALL_DATASETS; None where it has other ranks."""
    if dataset in DATASETS:
        found = of_dataset(dataset)
        control = found.control
        return found if control and len(control.learned) == num_ranks - 1 else None
    for row in tables()["clap2015_bins"]:
        if row["classes"] == num_ranks:
            width = "1 year" if row["bin"] == 1 else f"{row['bin']} years"
            note = f"A VGG16 and classes of {width}; the MAE counts classes."
            return Published(None, row["mae"], notes=(note,))
    return None
