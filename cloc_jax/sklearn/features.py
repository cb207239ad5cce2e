"""Ordered classes from feature vectors, as a scikit-learn classifier."""

import dataclasses
import functools
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx
from ml_collections import ConfigDict
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from cloc_jax import methods
from cloc_jax.config import default_config, frozen_part, set_fields
from cloc_jax.data.layouts.rank_folders import in_order_of_numbers
from cloc_jax.data.source import Source
from cloc_jax.encoders import Identity
from cloc_jax.runtime import checkpoint, sharding
from cloc_jax.scoring import inference, metrics, predictions
from cloc_jax.training import assembly, batches, encoder
from cloc_jax.training.fit import Training, fit

EPOCH_STEPS = 20  # at least; rows of small data are repeated within an epoch
# What decides a model and how it is trained.
SECTIONS = ("method", "head", "encoder", "optimizer", "train", "mesh", "data")


# With an __init__ that sets the parameters, as scikit-learn wants it.
@dataclasses.dataclass(eq=False, repr=False)
class OrdinalClassifier(ClassifierMixin, BaseEstimator):
    """A method of this package on feature vectors, for classes that have an order.

    Features should be of similar size: put a `StandardScaler` before it.

    Args:
      order: the classes from lowest to highest; None for numbers, also in strings, by
        value. Other strings are then sorted, with a warning. It may have classes that
        the data given to `fit` lack.
      method: any but rnc, simclr, supcon and dino, which compare augmented images;
        docs/methods.md describes them.
      margins: of cloc: "learn", "shared", a number, or one entry per boundary.
      learning_rate: of Adam.
      batch_size: even, 4 or more.
      max_epochs: of each stage, at most. An epoch of few rows sees them several times.
      patience: epochs without improvement that end a stage.
      validation_fraction: share of the rows that decides when training ends; 0, or too
        few rows for one per class, for the training rows themselves.
      class_weight: how much a row counts in training by its class: None, "balanced"
        or {class: weight}; classes left out count 1. Not for gol and mwr.
      settings: any others of cloc_jax/config.py, such as {"method.cloc.weight": 0.5}.
      random_state: of initial weights, batches and the validation rows.

    Attributes:
      classes_: the classes from lowest to highest; columns of `predict_proba`.
      n_features_in_, feature_names_in_: of the data given to `fit`.
      n_iter_: epochs that were trained.
    """

    order: Sequence[Any] | None = None
    _: dataclasses.KW_ONLY
    method: str = "cloc"
    margins: Any = "learn"
    learning_rate: float = 3e-3
    batch_size: int = 32
    max_epochs: int = 100
    patience: int = 10
    validation_fraction: float = 0.1
    class_weight: Any = None
    settings: dict[str, Any] | None = None
    random_state: Any = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "OrdinalClassifier":
        """Learns from features [row, feature] and the class of each row.

        `sample_weight` is how much each row counts in training; not for gol and mwr.
        """
        X, y = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(y)
        y = column_or_1d(y, warn=True)
        self.classes_ = ordered_classes(y, self.order)
        labels = np.argmax(y[:, None] == self.classes_, axis=1).astype(np.int32)
        seed = int(check_random_state(self.random_state).randint(2**31))
        config = self._config()
        self._settings = frozen_part(config, *SECTIONS)
        model = self._model()
        ranks = [str(label) for label in self.classes_]
        if sample_weight is not None:
            sample_weight = _check_sample_weight(
                sample_weight, X, dtype=np.float32, ensure_non_negative=True
            )
        weights = assembly.item_weights(
            config, model.method, labels, len(ranks), sample_weight
        )
        task = Training(
            model.method,
            self._split(X, labels, weights, seed),
            dataclasses.replace(model.settings, seed=seed),
            functools.partial(model.create, np.uint32(seed)),
            ranks,
            model.mesh,
        )
        fitted = fit(task)
        self._state = jax.tree.map(np.asarray, fitted.state)
        self._support, self.n_iter_ = fitted.support, fitted.epochs
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The class of each row."""
        prediction = self._predicted(X)  # which says where nothing was fitted
        return self.classes_[np.asarray(prediction.label)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities [row, class], in the order of `classes_`."""
        probabilities = predictions.rank_probabilities(self._predicted(X))
        assert probabilities is not None, "all methods for features give probabilities"
        return summing_to_one(probabilities)

    def decision_boundaries(self) -> dict[str, float]:
        """What the method learned of each boundary, by name, such as "1|2".

        The margins of cloc, the thresholds of coral and clm, the angles between the
        reference points of gol.
        """
        check_is_fitted(self)
        model = self._model()
        ranks = [str(c) for c in self.classes_]
        arrays = jax.tree.map(jax.numpy.asarray, self._state)
        learned = model.method.readouts(checkpoint.merge_model(model.graph, arrays))
        for readout in learned.values():
            if readout.per == "boundary":
                return metrics.named_values(readout.values, readout.per, ranks)
        raise ValueError(
            f"method {self.method} learns no value per boundary; cloc, coral, clm and "
            "gol do."
        )

    def _predicted(self, X: Any) -> Any:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float32, reset=False)
        model, state, support = self._model(), self._state, self._support
        predictor = inference.compiled(model.graph, model.method.predict, model.mesh)
        found = inference.over(
            functools.partial(predictor, state, support),
            batches.given(X),
            model.mesh,
            batch_size=model.settings.eval_batch_size,
            threads=model.settings.threads,
        )
        predictions.check_finite(
            jax.tree.leaves(found),
            [f"row {i}" for i in range(len(X))],
            "the classifier",
            "Features are too large for float32, or training diverged on such: scale "
            "them, for example by a StandardScaler.",
        )
        return found

    def _split(
        self, X: np.ndarray, labels: np.ndarray, weights: np.ndarray | None, seed: int
    ) -> dict[str, Source]:
        """Training and validation rows, the latter stratified."""
        whole = batches.given(X, labels).replaced(weights=weights)
        held = int(self.validation_fraction * len(labels))
        counts = np.bincount(labels)
        if held < np.count_nonzero(counts) or counts[counts > 0].min() < 2:
            return {"train": whole, "val": whole}
        train, val = train_test_split(
            np.arange(len(X)), test_size=held, stratify=labels, random_state=seed
        )
        kept = None if weights is None else weights[train]
        return {
            "train": batches.given(X[train], labels[train]).replaced(weights=kept),
            "val": batches.given(X[val], labels[val]),
        }

    def _config(self) -> Any:
        config = default_config()
        config.encoder.frozen = True  # the features are given
        config.method.name = self.method
        config.method.cloc.margins = self.margins
        config.head.projection, config.head.hidden = 32, 64
        config.optimizer.learning_rate = float(self.learning_rate)
        config.train.batch_size = self.batch_size
        config.train.max_epochs = self.max_epochs
        config.train.patience = self.patience
        config.train.rank_weights = rank_weights(self.class_weight, self.classes_)
        set_fields(config, self.settings or {})
        return config

    def _model(self) -> "_Model":
        return _model(self._settings, self.n_features_in_, len(self.classes_))


class _Model:
    """A method on feature vectors, whatever the rows and the seed."""

    def __init__(self, config: ConfigDict, num_features: int, num_ranks: int):
        self.mesh = sharding.make_mesh(1)
        self.method = assembly.build_method(config, num_ranks, self.mesh)
        for stage in self.method.stages:
            if any(view != methods.View() for view in stage.views):
                raise ValueError(
                    f"method {config.method.name} compares augmented images, which "
                    "feature vectors do not have; use another one, such as cloc."
                )

        def make(seed: Any = 0) -> nnx.Module:
            rngs = nnx.Rngs(jax.random.key(seed))
            return self.method.init(Identity(num_features, is_signed=True), rngs)

        self.create = encoder.compiled_model(make)
        self.graph, _ = checkpoint.split_model(nnx.eval_shape(make))
        self.settings = dataclasses.replace(
            assembly.fit_settings(config), epoch_steps=EPOCH_STEPS
        )


@functools.lru_cache(maxsize=64)
def _model(config: ConfigDict, num_features: int, num_ranks: int) -> _Model:
    return _Model(config, num_features, num_ranks)


def rank_weights(given: Any, classes: np.ndarray) -> Any:
    """scikit-learn's `class_weight` as train.rank_weights has it."""
    if not isinstance(given, dict):
        return given or ()
    unknown = [name for name in given if name not in classes.tolist()]
    if unknown:
        raise ValueError(
            f"class_weight names {unknown}, but the classes are {classes.tolist()}."
        )
    return tuple(float(given.get(name, 1)) for name in classes.tolist())


def summing_to_one(probabilities: np.ndarray) -> np.ndarray:
    """The probabilities in float64, made to sum to 1 in each row."""
    exact = np.asarray(probabilities, np.float64)
    return exact / exact.sum(axis=1, keepdims=True)


def ordered_classes(
    y: np.ndarray, order: Sequence[Any] | None, *, is_needed: bool = False
) -> np.ndarray:
    """The classes from lowest to highest; ValueError where the order lacks some.

    Without an order, strings that start with numbers are in theirs. Others are sorted
    with a warning, or refused where an order `is_needed`.
    """
    present = np.unique(y)
    if len(present) < 2:
        raise ValueError(f"y has one class, {present[0]!r}; an order needs two.")
    if order is None:
        if not any(isinstance(label, str | bytes) for label in present):
            return present
        place = {str(label): i for i, label in enumerate(present)}
        if numbered := in_order_of_numbers([*place]):
            return present[[place[name] for name in numbered]]
        problem = f"which order the classes have is not known: {' < '.join(place)}"
        if is_needed:
            raise ValueError(f"{problem}? Give order={present.tolist()}, rearranged.")
        warnings.warn(f"{problem} was taken; give order=[…].", stacklevel=3)
        return present
    classes = np.asarray(list(order))
    if len(np.unique(classes)) < len(classes):
        raise ValueError(f"order names a class twice: {list(order)}.")
    unknown = [label for label in present.tolist() if label not in classes.tolist()]
    if unknown:
        raise ValueError(
            f"y has the classes {unknown}, which order={list(order)} does not; add "
            "them or correct the labels."
        )
    return classes
