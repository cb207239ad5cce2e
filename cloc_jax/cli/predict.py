"""Prediction: a trained run applied to image files."""

import os
import pathlib
from collections.abc import Sequence

from ml_collections import ConfigDict
from rich.table import Table
from rich.text import Text

from cloc_jax.data.layouts import listing
from cloc_jax.runtime import errors, files
from cloc_jax.runtime import run_folder as folders
from cloc_jax.runtime.console import console
from cloc_jax.runtime.errors import printable
from cloc_jax.scoring import decisions
from cloc_jax.scoring.decisions import Decision
from cloc_jax.training.assembly import network_input
from cloc_jax.training.trained_run import TrainedRun

SHOWN = 50  # rows of the table on the screen; the file has them all
MOST_LIKELY = "most_likely"  # column beside what a decision chose
SET = ("set_from", "set_to")  # columns of a prediction set: its ends


def predict(
    config: ConfigDict, folder: folders.RunFolder, paths: Sequence[str], output: str
) -> int:
    """Prints and writes a table of predictions; returns how many files failed.

    A file that cannot be read has its row, with the reason in place of a rank. Where
    the run has a saved decision, that chooses the rank.
    """
    images = _files(paths)
    target = pathlib.Path(output or folder.path / "predicted.csv")
    _check_target(target, output)
    run = TrainedRun(config, folder)
    ranks = run.ranks
    decision = Decision.read(folder.decision, ranks, folder.mark)
    if decision:
        console.print(f"labels by {folder.decision}:", soft_wrap=True)
        for line in decision.describe():
            console.print(f"  {line}", soft_wrap=True)
    rows: list[dict[str, str]] = []
    # One size for every chunk, so that one compiled program serves all of them.
    chunk = min(run.prediction_batch, len(images))
    for start in range(0, len(images), chunk):
        rows += _predict_some(run, images[start : start + chunk], chunk, decision)
    columns = ["file", "predicted", "expected", *(f"p_{r}" for r in ranks), "error"]
    if decision and decision.chooses_labels:
        columns.insert(2, MOST_LIKELY)
    if decision and decision.sets:
        columns[-1:-1] = SET
    table = [[row.get(column, "") for column in columns] for row in rows]
    while True:
        # Several may predict at once: each gets a file of its own.
        path = target if output else files.unused_path(target)
        try:
            with files.claimed(path):
                files.write_csv(path, [columns, *table])
            break
        except FileExistsError:
            _check_target(target, output)
    # Of many ranks, chances would not fit beside each other.
    _show(rows, [c for c in columns[:-1] if len(ranks) <= 10 or c[:2] != "p_"])
    console.print(f"written to {path}", soft_wrap=True)
    return sum("error" in row for row in rows)


def _predict_some(
    run: TrainedRun,
    files: Sequence[pathlib.Path],
    batch_size: int,
    decision: Decision | None,
) -> list[dict[str, str]]:
    arrays, rows, prepare = [], [], network_input(run.config)
    for path in files:
        row = {"file": str(path)}
        rows.append(row)
        try:
            arrays.append(prepare.of(path))
        except (ValueError, OSError) as error:
            row["error"] = str(error)
        except MemoryError:
            row["error"] = f"{path}: there is too little memory to decode it."
    read = [row for row in rows if "error" not in row]
    if not read:
        return rows
    found = run.predict_images(arrays, batch_size, [row["file"] for row in read])
    graded = decisions.grade(found, run.ranks, decision)
    for i, row in enumerate(read):
        row["predicted"] = graded.predicted[i]
        if graded.most_likely:
            row[MOST_LIKELY] = graded.most_likely[i]
        if graded.sets:
            row |= dict(zip(SET, graded.sets[i], strict=True))
        row["expected"] = f"{graded.expected[i]:.3f}"
        if graded.probabilities is not None:
            for rank, p in zip(run.ranks, graded.probabilities[i], strict=True):
                row[f"p_{rank}"] = f"{p:.4f}"
    return rows


def _files(paths: Sequence[str]) -> list[pathlib.Path]:
    """The files named and the images below the folders named."""
    if not paths or "" in paths:
        raise ValueError(
            f"predict got {'an empty name' if paths else 'no images'}; name files or "
            "folders after the flags: python launch.py predict --run=… image.png "
            "folder/ …"
        )
    files: list[pathlib.Path] = []
    for path in map(pathlib.Path, paths):
        if os.path.isdir(path):
            inside = _images_below(path)
            if not inside:
                raise FileNotFoundError(f"the folder {path} holds no images.")
            files += inside
        elif os.path.lexists(path):  # also a link that leads nowhere: it gets a row
            files.append(path)
        else:
            raise FileNotFoundError(f"there is no file {path}; check its name.")
    return files


def _images_below(folder: pathlib.Path) -> list[pathlib.Path]:
    """Images below a folder, hidden ones left out."""
    found: list[pathlib.Path] = []
    for name in listing.names_in(folder):
        path = folder / name
        if os.path.isdir(path):
            # A link may lead back to where it is.
            found += [] if path.is_symlink() else _images_below(path)
        elif listing.is_image(name):
            found.append(path)
    return found


def _check_target(target: pathlib.Path, output: str) -> None:
    """OSError where the table cannot be written: never over an existing file."""
    if output and target.exists():
        raise FileExistsError(
            f"--output={output} exists already; give another name or move it away."
        )
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"--output={output}: there is no folder {target.parent}; make it first."
        )
    errors.check_writable(target, "--output")


def _show(rows: list[dict[str, str]], columns: Sequence[str]) -> None:
    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name.replace("_", " "), overflow="fold")
    for row in rows[:SHOWN]:
        if "error" in row:
            table.add_row(row["file"], Text(printable(row["error"]), style="red"))
        else:
            table.add_row(*(row[column] for column in columns))
    console.print(table)
    if len(rows) > SHOWN:
        console.print(f"… and {len(rows) - SHOWN} more in the file")
