"""Ordered classes from images, as a scikit-learn classifier that trains a run."""

import atexit
import csv
import functools
import os
import pathlib
import shutil
import tempfile
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from ml_collections import ConfigDict
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d

from cloc_jax.config import CONFIGS, load_config, saved_config, set_fields
from cloc_jax.data import images
from cloc_jax.report import evaluation
from cloc_jax.runtime.console import console
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import decisions
from cloc_jax.scoring.decisions import Decision
from cloc_jax.sklearn.features import ordered_classes, rank_weights, summing_to_one
from cloc_jax.training import run as run_training
from cloc_jax.training.assembly import network_input
from cloc_jax.training.trained_run import TrainedRun

Image = str | os.PathLike | np.ndarray


class ImageOrdinalClassifier(ClassifierMixin, BaseEstimator):
    """A run on images, as `python launch.py --config=configs/folder.py` trains it.

    Part of the images given to `fit` is held out, as from the command line: 10% decide
    when training ends and 15% are the test images of the report. Change that with
    `settings`.

    Args:
      order: the classes from lowest to highest; None for numbers, also in strings, by
        value. Other strings need it.
      run: folder of the run, which must be new. It is kept, gets a report, and the
        command line's jobs work on it. None for a temporary one, which is removed when
        the process ends.
      method: any; docs/methods.md describes them.
      encoder: small, resnet18, resnet34, resnet50, vgg16, vgg16_bn or densenet121.
      weights: file or hub name of its ImageNet weights; docs/data.md.
      frozen: keep the encoder as its weights are, which trains in minutes on a CPU, as
        `configs/folder.py:frozen` does.
      size: height and width that the network sees; None for the configuration's.
      channels: 1 for grey images, 3 for colour.
      class_weight: how much an image counts in training by its class: None, "balanced"
        or {class: weight}; classes left out count 1. Not for gol and mwr.
      settings: any others of cloc_jax/config.py, such as {"data.test_fraction": 0.3}
        or {"train.max_epochs": 20}.
      verbose: print what the command line prints.
      random_state: the seed of the run.

    Attributes:
      classes_: the classes from lowest to highest; columns of `predict_proba`.
      run_: the folder of the run, which has to stay.
    """

    def __init__(
        self,
        order: Sequence[Any] | None = None,
        *,
        run: str | os.PathLike | None = None,
        method: str = "cloc",
        encoder: str = "small",
        weights: str = "",
        frozen: bool = False,
        size: tuple[int, int] | None = None,
        channels: int = 3,
        class_weight: Any = None,
        settings: dict[str, Any] | None = None,
        verbose: bool = False,
        random_state: Any = None,
    ):
        self.order = order
        self.run = run
        self.method = method
        self.encoder = encoder
        self.weights = weights
        self.frozen = frozen
        self.size = size
        self.channels = channels
        self.class_weight = class_weight
        self.settings = settings
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Sequence[Image], y: Any) -> "ImageOrdinalClassifier":
        """Trains a run on images, paths or uint8 arrays, and the class of each."""
        y = column_or_1d(y, warn=True)
        given = _checked(X, len(y))
        classes = ordered_classes(y, self.order, is_needed=True)
        run = RunFolder(pathlib.Path(self.run or _temporary() / "run"))
        if run.path.exists():
            raise FileExistsError(
                f"run={run.path} exists already; give another folder, or None for a "
                "temporary one."
            )
        beside = run.path.with_name(f"{run.path.name}-images")
        root, table = _write_table(given, [str(label) for label in y], beside)
        config = self._config(root, table, classes)
        if not self.run:
            config.data.prepared = str(run.path.parent / "prepared")
        before, console.quiet = console.quiet, not self.verbose
        try:
            run_training.train(config, run, resume=False)
            if self.run:
                evaluation.evaluate(saved_config(run.read_config()), run)
        finally:
            console.quiet = before
        self.classes_, self.run_ = classes, str(run.path.absolute())
        return self

    def predict(self, X: Sequence[Image]) -> np.ndarray:
        """The class of each image, by the decision that `launch.py decide` saved if
        there is one."""
        graded = self._graded(X)  # which says where nothing was fitted
        return self.classes_[graded.labels]

    def predict_proba(self, X: Sequence[Image]) -> np.ndarray:
        """Probabilities [image, class], in the order of `classes_`."""
        probabilities = self._graded(X).probabilities
        if probabilities is None:
            raise ValueError(f"method {self.method} gives no probabilities.")
        return summing_to_one(probabilities)

    def _graded(self, X: Sequence[Image]) -> decisions.Grades:
        check_is_fitted(self)
        run = _trained(self.run_)
        prepare = network_input(run.config)
        arrays = [prepare.of(image) for image in _checked(X)]
        size = min(run.prediction_batch, len(arrays))
        prediction = run.predict_images(arrays, size)
        decision = Decision.read(run.folder.decision, run.ranks)
        return decisions.grade(prediction, run.ranks, decision)

    def _config(
        self, root: pathlib.Path, table: pathlib.Path, classes: np.ndarray
    ) -> ConfigDict:
        variant = ":frozen" if self.frozen else ""
        config, _ = load_config(f"{CONFIGS / 'folder.py'}{variant}")
        config.encoder.name = self.encoder
        config.encoder.weights = str(self.weights)
        config.data.root, config.data.csv = str(root), str(table)
        config.data.order = tuple(str(c) for c in classes)
        config.data.channels = self.channels
        if self.size is not None:
            config.data.size = tuple(self.size)
        config.method.name = self.method
        config.train.rank_weights = rank_weights(self.class_weight, classes)
        config.seed = int(check_random_state(self.random_state).randint(2**31))
        set_fields(config, self.settings or {})
        return config


def _checked(X: Any, count: int | None = None) -> list[Image]:
    """The images as a list; ValueError where there are none or not one per class."""
    listed = [str(x) if isinstance(x, np.str_) else x for x in X]
    if isinstance(X, str | os.PathLike) or not listed:
        raise ValueError("X must be a list of images, paths or arrays, not empty.")
    if count is not None and len(listed) != count:
        raise ValueError(f"X has {len(listed)} images, but y has {count} classes.")
    return listed


def _temporary() -> pathlib.Path:
    """A folder that is removed when the process ends."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cloc_jax-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _write_table(
    given: Sequence[Image], labels: Sequence[str], beside: pathlib.Path
) -> tuple[pathlib.Path, pathlib.Path]:
    """Root and table of the images; arrays are written as files beside the table."""
    beside.mkdir(parents=True)
    paths = []
    for i, image in enumerate(given):
        if isinstance(image, np.ndarray):
            path = beside / f"{i:07}.png"
            channels = 1 if image.ndim == 2 or image.shape[-1] == 1 else 3
            pixels = images.from_array(image, channels=channels)
            cv2.imwrite(str(path), pixels[..., ::-1])  # OpenCV writes blue first
            paths.append(path)
        else:
            paths.append(pathlib.Path(os.path.abspath(os.fspath(image))))
    root = pathlib.Path(os.path.commonpath([path.parent for path in paths]))
    table = beside / "grades.csv"
    names = (str(path.relative_to(root)) for path in paths)
    with table.open("w", newline="", encoding="utf-8") as file:
        rows = [("path", "label"), *zip(names, labels, strict=True)]
        csv.writer(file).writerows(rows)
    return root.absolute(), table.absolute()


@functools.lru_cache(maxsize=8)
def _trained(run: str) -> TrainedRun:
    """The model of a run, which is compiled once."""
    folder = RunFolder(run)
    return TrainedRun(saved_config(folder.read_config()), folder)
