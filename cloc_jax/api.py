"""Training from Python: images and their grades go in, a trained run comes out.

It is the run that `python launch.py --config=configs/folder.py` trains, with the same
files, and for the same images, settings and seed with the same results to the bit.
"""

import atexit
import csv
import functools
import os
import pathlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import cv2
import numpy as np

from cloc_jax.config import saved_config, set_fields
from cloc_jax.config_files import load_config
from cloc_jax.data import images as image_data
from cloc_jax.data.layouts.tables import USUAL
from cloc_jax.report import evaluation, html_page
from cloc_jax.runtime.console import console
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import decisions, results
from cloc_jax.scoring.decisions import Decision
from cloc_jax.scoring.results import RunResults
from cloc_jax.training.assembly import network_input
from cloc_jax.training.trained_run import TrainedRun

Image = str | os.PathLike | np.ndarray
Labels = Sequence[Any] | np.ndarray
Part = tuple[Sequence[Image] | np.ndarray, Labels]


class Run:
    """A trained run.

    Attributes:
      folder: where it is; the command line's jobs work on it.
      ranks: their names from lowest to highest.
      results: its scores, typed; metrics.json has the same.
    """

    def __init__(self, folder: str | os.PathLike):
        self._run = RunFolder(pathlib.Path(folder))
        self.folder = self._run.path.absolute()
        self.results: RunResults = results.read_results(self._run)
        self.ranks: list[str] = self.results.ranks

    def __repr__(self) -> str:
        test, method = self.results.final["test"], self.results.method
        return (
            f"Run({str(self.folder)!r}: {method}, {len(self.ranks)} ranks, "
            f"test accuracy {test.accuracy:.3f}, MAE {test.mae:.3f})"
        )

    @property
    def margins(self) -> dict[str, float]:
        """The margin of each boundary; {} where the method has none."""
        return self.results.margins

    def predict(self, images: Sequence[Image] | np.ndarray) -> decisions.Grades:
        """The grades of images, by the decision that `launch.py decide` saved if there
        is one."""
        given = checked_images(images)
        prepare = network_input(self._trained.config)
        size = min(self._trained.prediction_batch, len(given))
        arrays = [prepare.of(image) for image in given]
        prediction = self._trained.predict_images(arrays, size)
        decision = Decision.read(self._run.decision, self.ranks, self._run.mark)
        return decisions.grade(prediction, self.ranks, decision)

    def report(self, path: str | os.PathLike | None = None) -> pathlib.Path:
        """The page of the run, copied to `path` if that is given.

        It is drawn when it is first asked for, from the images the run was trained on.
        """
        page = self.folder / html_page.NAME
        if not page.exists():
            evaluation.evaluate(saved_config(self._run.read_config()), self._run)
        if path is None:
            return page
        target = _unused(path)
        shutil.copyfile(page, target)
        return target

    def save(self, folder: str | os.PathLike) -> "Run":
        """Copies the run into a new folder; the run that is there."""
        target = _unused(folder)
        shutil.copytree(self.folder, target)
        return Run(target)

    @functools.cached_property
    def _trained(self) -> TrainedRun:
        return TrainedRun(saved_config(self._run.read_config()), self._run)


def fit(
    images: Any,
    labels: Labels | None = None,
    *,
    order: Labels = (),
    method: str = "cloc",
    val: Part | None = None,
    test: Part | None = None,
    patients: Labels | None = None,
    weights: Labels | None = None,
    frozen: bool = False,
    run: str | os.PathLike | None = None,
    verbose: bool = True,
    **settings: Any,
) -> Run:
    """Trains a run on images and evaluates it.

    Args:
      images: paths, or uint8 arrays [height, width] or [height, width, channels]; or a
        data frame with a column of paths and one of labels, and where there are such,
        of splits and patients, as docs/data.md describes tables.
      labels: of each image; None for a data frame.
      order: the labels from lowest to highest; numbers need none.
      method: any; docs/methods.md describes them.
      val: images and labels that decide when training ends; without, 10% of `images`.
      test: images and labels of the final scores; without, 15% of `images`.
      patients: the patient or subject of each image, so that none is in two splits.
      weights: how much each image counts in training; not for gol and mwr.
      frozen: train on kept features of an ImageNet encoder, in minutes on a CPU, as
        `configs/folder.py:frozen` does.
      run: a new folder for the run; None for a temporary one, which is removed when
        the process ends, unless `Run.save` copies it.
      verbose: print what the command line prints.
      **settings: of cloc_jax/config.py, with two underscores for a dot:
        `train__max_epochs=20`, `encoder__name="resnet50"`, `seed=1`.
    """
    folder = RunFolder(pathlib.Path(run or temporary_folder() / "run"))
    folder.check_new()
    rows = _frame_rows(images, (labels, patients, weights, val, test)) or [
        *_rows(images, labels, patient=patients, image_weight=weights),
        *_rows(*val or ((), ()), split="val"),
        *_rows(*test or ((), ()), split="test"),
    ]
    if weights is not None:
        rows = [{"image_weight": 1} | row for row in rows]
        settings = {"data.columns.weight": "image_weight"} | settings
    config, _ = load_config("folder:frozen" if frozen else "folder")
    config.method.name = method
    config.data.order = tuple(str(label) for label in order)
    if not run:
        config.data.prepared = str(folder.path.parent / "prepared")
    beside = folder.path.with_name(f"{folder.path.name}-images")
    set_fields(
        config, {name.replace("__", "."): value for name, value in settings.items()}
    )
    root, table = write_table(rows, beside)
    config.data.root, config.data.csv = str(root), str(table)
    before, console.quiet = console.quiet, not verbose
    try:
        evaluation.complete_run(config, folder, resume=False, draws=False)
    except BaseException:
        if not folder.config.exists():  # no run that needs them
            shutil.rmtree(beside)
        raise
    finally:
        console.quiet = before
    return Run(folder.path)


def checked_images(images: Any, count: int | None = None) -> list[Image]:
    """The images as a list; ValueError where there are none, or not `count`."""
    listed = [str(image) if isinstance(image, np.str_) else image for image in images]
    if isinstance(images, str | os.PathLike) or not listed:
        raise ValueError("images must be a list of paths or arrays, not empty.")
    if count is not None and len(listed) != count:
        raise ValueError(f"there are {len(listed)} images, but {count} labels.")
    return listed


def _rows(
    images: Any,
    labels: Labels | None,
    *,
    split: str = "",
    **columns: Labels | None,
) -> list[dict[str, Any]]:
    """A row per image of a table, with the image in place of its path."""
    if labels is None:
        raise ValueError("labels are missing; give one for each image.")
    if split and not len(images):
        return []
    given = checked_images(images, len(labels))
    rows = [
        {"path": image, "label": str(label), "split": split}
        for image, label in zip(given, labels, strict=True)
    ]
    for name, values in columns.items():
        if values is not None and len(values) != len(rows):
            raise ValueError(f"{len(rows)} images came, but {name} has {len(values)}.")
        for row, value in zip(rows, () if values is None else values, strict=False):
            row[name] = value
    return rows


def _frame_rows(frame: Any, others: Sequence[Any]) -> list[dict[str, Any]]:
    """The rows of a data frame; none where it is no data frame."""
    if not hasattr(frame, "columns"):
        return []
    if any(other is not None for other in others):
        raise ValueError(
            "a data frame has labels, patients, weights and splits in columns; give no "
            "others beside it (data__columns__weight names that of weights)."
        )
    names = {str(name).lower(): frame[name].tolist() for name in frame.columns}
    path = next((name for name in USUAL["path"] if name in names), "")
    if not path:
        raise ValueError(
            f"the data frame has no column of paths; it has {', '.join(names)}. Name "
            f"one of them {', '.join(USUAL['path'])}."
        )
    names = {"path": names.pop(path)} | names
    cells = zip(*names.values(), strict=True)
    return [dict(zip(names, row, strict=True)) for row in cells]


def write_table(
    rows: Sequence[Mapping[str, Any]], beside: pathlib.Path
) -> tuple[pathlib.Path, pathlib.Path]:
    """Root and table of the images; arrays are written as files beside the table."""
    beside.mkdir(parents=True)
    paths = [_path(row["path"], beside / f"{i:07}.png") for i, row in enumerate(rows)]
    root = pathlib.Path(os.path.commonpath([path.parent for path in paths]))
    table = beside / "grades.csv"
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        for path, row in zip(paths, rows, strict=True):
            writer.writerow({**row, "path": path.relative_to(root)})
    return root.absolute(), table.absolute()


def _path(image: Image, target: pathlib.Path) -> pathlib.Path:
    """Where an image is, once an array has been written to its target."""
    if not isinstance(image, np.ndarray):
        return pathlib.Path(os.path.abspath(os.fspath(image)))
    channels = 1 if image.ndim == 2 or image.shape[-1] == 1 else 3
    pixels = image_data.from_array(image, channels=channels)
    cv2.imwrite(str(target), pixels[..., ::-1])  # OpenCV writes blue first
    return target


def _unused(path: str | os.PathLike) -> pathlib.Path:
    target = pathlib.Path(path)
    if target.exists():
        raise FileExistsError(f"{target} exists already; give another name.")
    return target


def temporary_folder() -> pathlib.Path:
    """A folder that is removed when the process ends."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cloc_jax-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
