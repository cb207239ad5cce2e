"""Ordered classes from images, as a scikit-learn classifier that trains a run."""

import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d

from cloc_jax import api
from cloc_jax.api import Image
from cloc_jax.scoring.decisions import Grades
from cloc_jax.sklearn.features import (
    ordered_classes,
    rank_weights,
    summing_to_one,
)


# With an __init__ that sets the parameters, as scikit-learn wants it.
@dataclasses.dataclass(eq=False, repr=False)
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

    order: Sequence[Any] | None = None
    _: dataclasses.KW_ONLY
    run: str | os.PathLike | None = None
    method: str = "cloc"
    encoder: str = "small"
    weights: str = ""
    frozen: bool = False
    size: tuple[int, int] | None = None
    channels: int = 3
    class_weight: Any = None
    settings: dict[str, Any] | None = None
    verbose: bool = False
    random_state: Any = None

    def fit(
        self, X: Sequence[Image], y: Any, sample_weight: Any = None
    ) -> "ImageOrdinalClassifier":
        """Trains a run on images, paths or uint8 arrays, and the class of each.

        `sample_weight` is how much each image counts in training; not for gol and mwr.
        """
        y = column_or_1d(y, warn=True)
        api.checked_images(X, len(y))
        classes = ordered_classes(y, self.order, is_needed=True)
        size = {} if self.size is None else {"data.size": tuple(self.size)}
        settings = {
            "encoder.name": self.encoder,
            "encoder.weights": str(self.weights),
            "data.channels": self.channels,
            "train.rank_weights": rank_weights(self.class_weight, classes),
            "seed": int(check_random_state(self.random_state).randint(2**31)),
        }
        run = api.fit(
            X,
            y,
            order=classes.tolist(),
            method=self.method,
            weights=sample_weight,
            frozen=self.frozen,
            run=self.run,
            verbose=self.verbose,
            **(settings | size | (self.settings or {})),
        )
        if self.run:
            run.report()
        self.classes_, self.run_ = classes, str(run.folder)
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

    def _graded(self, X: Sequence[Image]) -> Grades:
        check_is_fitted(self)
        return _loaded(self.run_).predict(X)


@functools.lru_cache(maxsize=8)
def _loaded(run: str) -> api.Run:
    """A run, whose model is compiled once."""
    return api.Run(run)
