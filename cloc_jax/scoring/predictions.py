"""predictions.csv: what a run said of every image it was not trained on."""

import csv
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

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
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        columns = [f"p_{rank}" for rank in ranks]
        has_values = any(found.values is not None for found in splits.values())
        value = ["value"] if has_values else []
        writer.writerow(["item", "split", "true", "predicted", *columns, *value])
        for split, found in splits.items():
            for i, item in enumerate(found.items):
                row = () if found.probabilities is None else found.probabilities[i]
                # Nine digits give back the same float32.
                chances = [f"{p:.9g}" for p in row]
                names = ranks[found.true[i]], ranks[found.predicted[i]]
                value = [] if found.values is None else [f"{found.values[i]:.9g}"]
                writer.writerow([item, split, *names, *chances, *value])


def read(path: pathlib.Path, ranks: Sequence[str]) -> dict[str, Predictions]:
    """The predictions in a file, by split in the order of the file."""
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no {path}; `launch.py evaluate --run={path.parent}` makes it "
            "again, once the run is trained."
        )
    place = {rank: i for i, rank in enumerate(ranks)}
    rows: dict[str, list[dict[str, str]]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            rows.setdefault(row["split"], []).append(row)
    try:
        return {split: _read_split(found, place) for split, found in rows.items()}
    except KeyError as error:
        raise ValueError(
            f"{path} has the rank {error}, but the run knows {', '.join(ranks)}."
        ) from None


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
