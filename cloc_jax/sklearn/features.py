"""Ordered classes from feature vectors, as a scikit-learn classifier."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from ml_collections import ConfigDict
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from cloc_jax.config import default_config, set_fields
from cloc_jax.scoring import metrics, predictions
from cloc_jax.training import in_memory


class OrdinalClassifier(ClassifierMixin, BaseEstimator):
    """A method of this package on feature vectors, for classes that have an order.

    Features should be of similar size: put a `StandardScaler` before it.

    Args:
      order: the classes from lowest to highest; None for their sorted order. It may
        have classes that the data given to `fit` lack.
      method: cloc, ce, orcnn, poe, gol, mwr, coral, corn, sord or clm; docs/methods.md
        describes them.
      margins: of cloc: "learn", "shared", a number, or one entry per boundary.
      projection: width of the linear layer that the contrast of cloc acts on.
      hidden: width of the layer before the classifier.
      learning_rate: of Adam.
      weight_decay: decoupled, never on margins.
      batch_size: even, 4 or more.
      max_epochs: of each stage, at most. An epoch of few rows sees them several times.
      patience: epochs without improvement that end a stage.
      validation_fraction: share of the rows that decides when training ends; 0, or too
        few rows for one per class, for the training rows themselves.
      settings: any others of cloc_jax/config.py, such as {"method.cloc.weight": 0.5}.
      random_state: of initial weights, batches and the validation rows.

    Attributes:
      classes_: the classes from lowest to highest; columns of `predict_proba`.
      n_features_in_, feature_names_in_: of the data given to `fit`.
      n_iter_: epochs that were trained.
    """

    def __init__(
        self,
        order: Sequence[Any] | None = None,
        *,
        method: str = "cloc",
        margins: Any = "learn",
        projection: int = 32,
        hidden: int = 64,
        learning_rate: float = 3e-3,
        weight_decay: float = 0.0,
        batch_size: int = 32,
        max_epochs: int = 100,
        patience: int = 10,
        validation_fraction: float = 0.1,
        settings: dict[str, Any] | None = None,
        random_state: Any = None,
    ):
        self.order = order
        self.method = method
        self.margins = margins
        self.projection = projection
        self.hidden = hidden
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.settings = settings
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> "OrdinalClassifier":
        """Learns from features [row, feature] and the class of each row."""
        X, y = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(y)
        y = column_or_1d(y, warn=True)
        self.classes_ = ordered_classes(y, self.order)
        labels = np.array([_place(self.classes_, label) for label in y], np.int32)
        present = np.unique(labels)
        if len(present) < 2:
            raise ValueError(
                "an order needs at least two classes, but the data have one class: "
                f"{self.classes_[present[0]]!r}."
            )
        seed = int(check_random_state(self.random_state).randint(2**31))
        train, val = self._split(X, labels, seed)
        self._settings = self._config().to_dict()
        trainer = self._trainer()
        self._learned = trainer.train(train, val, seed=seed)
        self.n_iter_ = self._learned.epochs
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The class of each row."""
        found = self._predicted(X)
        return self.classes_[np.asarray(found.label)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities [row, class], in the order of `classes_`."""
        found = predictions.rank_probabilities(self._predicted(X))
        assert found is not None, "all methods for features give probabilities"
        exact = np.asarray(found, np.float64)
        return exact / exact.sum(axis=1, keepdims=True)

    def decision_boundaries(self) -> dict[str, float]:
        """What the method learned of each boundary, by name, such as "1|2".

        The margins of cloc, the thresholds of coral and clm, the angles between the
        reference points of gol.
        """
        check_is_fitted(self)
        trainer = self._trainer()
        names = metrics.boundary_names([str(c) for c in self.classes_])
        for readout in trainer.readouts(trainer.state(self._learned)).values():
            if readout.per == "boundary":
                values = np.asarray(readout.values).tolist()
                return dict(zip(names, values, strict=True))
        raise ValueError(
            f"method {self.method} learns no value per boundary; cloc, coral, clm and "
            "gol do."
        )

    def _predicted(self, X: Any) -> Any:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float32, reset=False)
        trainer, learned = self._trainer(), self._learned
        return trainer.predict(trainer.state(learned), learned.support, X)

    def _split(
        self, X: np.ndarray, labels: np.ndarray, seed: int
    ) -> tuple[in_memory.Rows, in_memory.Rows]:
        """Training and validation rows, the latter stratified."""
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(
                f"validation_fraction is {self.validation_fraction}; use 0 or more, "
                "below 1."
            )
        whole = in_memory.Rows(X, labels)
        held = int(self.validation_fraction * len(labels))
        counts = np.bincount(labels)
        if held < np.count_nonzero(counts) or counts[counts > 0].min() < 2:
            return whole, whole
        parts = train_test_split(
            X, labels, test_size=held, stratify=labels, random_state=seed
        )
        return in_memory.Rows(parts[0], parts[2]), in_memory.Rows(parts[1], parts[3])

    def _config(self) -> Any:
        config = default_config()
        config.encoder.frozen = True  # the features are given
        config.method.name = self.method
        config.method.cloc.margins = self.margins
        config.head.projection = self.projection
        config.head.hidden = self.hidden
        config.optimizer.learning_rate = float(self.learning_rate)
        config.optimizer.weight_decay = float(self.weight_decay)
        config.train.batch_size = self.batch_size
        config.train.max_epochs = self.max_epochs
        config.train.patience = self.patience
        set_fields(config, self.settings or {})
        return config

    def _trainer(self) -> in_memory.Trainer:
        config = ConfigDict(self._settings)
        return in_memory.trainer(config, self.n_features_in_, len(self.classes_))


def ordered_classes(y: np.ndarray, order: Sequence[Any] | None) -> np.ndarray:
    """The classes from lowest to highest; ValueError where the order lacks some."""
    found = np.unique(y)
    if order is None:
        return found
    classes = np.asarray(list(order))
    if len(np.unique(classes)) < len(classes):
        raise ValueError(f"order names a class twice: {list(order)}.")
    unknown = [label for label in found.tolist() if label not in classes.tolist()]
    if unknown:
        raise ValueError(
            f"y has the classes {unknown}, which order={list(order)} does not; add "
            "them or correct the labels."
        )
    return classes


def _place(classes: np.ndarray, label: Any) -> int:
    return int(np.flatnonzero(classes == label)[0])
