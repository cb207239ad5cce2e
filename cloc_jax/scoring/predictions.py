"""predictions.csv: what a run said of every image it was not trained on."""

import csv
import io
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cloc_jax.runtime import atomic_files, checked_files

NAME = "predictions.csv"


class Predictions(NamedTuple):
    """Predictions for the images of one split."""

    items: list[str]
    true: np.ndarray  # [item], index of the rank
    predicted: np.ndarray  # [item], index of the rank
    probabilities: np.ndarray | None  # [item, rank], where the method has them
    values: np.ndarray | None = None  # [item], where the method predicts one


def write(
    path: pathlib.Path, splits: Mapping[str, Predictions], ranks: Sequence[str]
) -> None:
    """Writes the predictions of all splits, one row per image."""
    columns = [f"p_{rank}" for rank in ranks]
    has_values = any(found.values is not None for found in splits.values())
    value = ["value"] if has_values else []
    rows = [["item", "split", "true", "predicted", *columns, *value]]
    for split, found in splits.items():
        for i, item in enumerate(found.items):
            chances = [""] * len(ranks)
            if found.probabilities is not None:
                # Nine digits give back the same float32.
                chances = [f"{p:.9g}" for p in found.probabilities[i]]
            names = ranks[found.true[i]], ranks[found.predicted[i]]
            value = [] if found.values is None else [f"{found.values[i]:.9g}"]
            rows.append([item, split, *names, *chances, *value])
    atomic_files.write_csv(path, rows)


def read_of_run(run: pathlib.Path, scores: Mapping[str, Any]) -> dict[str, Predictions]:
    """The predictions in the folder of a run whose metrics.json has these scores."""
    ranks = [str(rank) for rank in scores["ranks"]]
    return read(run / NAME, ranks, scores.get("files", {}).get(NAME, ""))


def read(
    path: pathlib.Path, ranks: Sequence[str], digest: str = ""
) -> dict[str, Predictions]:
    """The predictions in a file, by split in the order of the file.

    `digest` is the file's checksum, where evaluation kept one. Damaged where the file
    is not the one that it wrote, or cut.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no {path}; `launch.py evaluate --run={path.parent}` makes it "
            "again, once the run is trained."
        )
    remedy = f"`launch.py evaluate --run={path.parent}` makes it again."
    if digest:
        checked_files.check_file(path, digest, remedy=remedy)
    place = {rank: i for i, rank in enumerate(ranks)}
    rows: dict[str, list[dict[str, str]]] = {}
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    if not text.endswith("\n"):
        raise checked_files.Damaged(path, "its last row is cut", remedy)
    try:
        for row in csv.DictReader(io.StringIO(text, newline="")):
            chances = [row[f"p_{rank}"] for rank in ranks]
            is_cut = None in row or row["predicted"] is None
            if is_cut or 0 < sum(map(bool, chances)) < len(ranks):
                raise ValueError(f"the row of {row['item']} is cut")
            rows.setdefault(row["split"], []).append(row)
        return {split: _read_split(found, place) for split, found in rows.items()}
    except KeyError as error:
        raise ValueError(
            f"{path} has the rank or lacks the column {error}, but the run knows "
            f"{', '.join(ranks)}. {remedy}"
        ) from None
    except (ValueError, csv.Error) as error:
        raise checked_files.Damaged(path, str(error), remedy) from None


def _read_split(
    rows: Sequence[Mapping[str, str]], place: Mapping[str, int]
) -> Predictions:
    chances = [[row[f"p_{rank}"] for rank in place] for row in rows]
    has_chances = all(all(row) for row in chances)
    return Predictions(
        [row["item"] for row in rows],
        np.array([place[row["true"]] for row in rows], np.int64),
        np.array([place[row["predicted"]] for row in rows], np.int64),
        np.array(chances, np.float64) if has_chances else None,
        np.array([row["value"] for row in rows], np.float64)
        if rows and rows[0].get("value")
        else None,
    )
