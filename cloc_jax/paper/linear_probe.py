"""Linear probes: logistic regressions on features that an encoder gives.

`probe` is what a method on frozen features has to beat, and for each critical boundary
what a probe reaches that has nothing else to learn: its regularisation is chosen on the
validation data; the test data are read once, by the one chosen. `neighbour_areas` says
how well neighbouring ranks can be told apart.
"""

import pathlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from ml_collections import ConfigDict
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from cloc_jax.data.source import KeptFeatures
from cloc_jax.runtime.console import console, track
from cloc_jax.runtime.files import write_sealed
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import metrics
from cloc_jax.training import assembly, encoder
from cloc_jax.training.trained_run import TrainedRun

STRENGTHS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)  # scikit-learn's C


def fit(
    features: Mapping[str, np.ndarray],
    labels: Mapping[str, np.ndarray],
    advance: Callable[[], None],
) -> tuple[Pipeline, dict[float, float]]:
    """The regression on "train" that is best on "val", and validation accuracy by C.

    `advance` is called after each that was tried.
    """
    fitted: dict[float, Pipeline] = {}
    accuracy: dict[float, float] = {}
    for strength in STRENGTHS:
        model = make_pipeline(
            StandardScaler(), LogisticRegression(C=strength, max_iter=300)
        )
        with warnings.catch_warnings():
            # A fit cut short is a candidate like the others: validation decides.
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted[strength] = model.fit(features["train"], labels["train"])
        accuracy[strength] = float(model.score(features["val"], labels["val"]))
        advance()
    return fitted[max(accuracy, key=accuracy.__getitem__)], accuracy


def probe(config: ConfigDict, folder: pathlib.Path) -> dict[str, Any]:
    """Fits the probe, prints its scores and writes probe.json."""
    if not config.encoder.frozen:
        raise ValueError(
            "the probe works on a frozen encoder's features; add "
            "--config.encoder.frozen=True."
        )
    config = encoder.resolve(config)
    dataset = assembly.build(config).dataset
    features: dict[str, np.ndarray] = {}
    for name, source in dataset.splits.items():
        assert isinstance(source, KeptFeatures)
        features[name] = np.asarray(source.views[0])
    labels = {name: source.labels for name, source in dataset.splits.items()}
    known = metrics.boundary_names(dataset.ranks)
    boundaries = {}
    steps = len(STRENGTHS) * (1 + len(config.data.critical))
    with track("logistic regressions", steps) as advance:
        model, accuracy = fit(features, labels, advance)
        for name in config.data.critical:
            h = known.index(name)
            above = {split: of > h for split, of in labels.items()}
            alone, _ = fit(features, above, advance)
            wrong = alone.predict(features["test"]) != above["test"]
            boundaries[name] = {"crossing_rate": float(np.mean(wrong))}
    predicted = model.predict(features["test"])
    test = metrics.ordinal_metrics(labels["test"], predicted, dataset.ranks)
    result = {
        "val_accuracy": {str(c): share for c, share in accuracy.items()},
        "test": test,
        "boundaries": boundaries,
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_sealed(folder / "probe.json", result)
    console.print(
        f"logistic regression, C {model[-1].C:g} by validation: test accuracy "
        f"{test['accuracy']:.3f}  MAE {test['mae']:.3f}  QWK {test['qwk'] or 0:.3f}"
    )
    for name, found in boundaries.items():
        console.print(
            f"boundary {name}  crossed by "
            f"{test['boundaries'][name]['crossing_rate']:.3f}; by one fitted for this "
            f"boundary alone, by {found['crossing_rate']:.3f}"
        )
    console.print(f"written to {folder / 'probe.json'}", soft_wrap=True)
    return result


def neighbour_areas(config: ConfigDict, folder: RunFolder) -> list[float]:
    """Area under the ROC curve (AUC) of each boundary, on validation images.

    A logistic regression for each pair of neighbouring ranks, fitted on the training
    images: on the features of the frozen encoder where there is one, which no margin
    has touched, else on the embeddings of the given run.
    """
    parts = assembly.build(config, folder)
    inputs, labels = {}, {}
    for split in ("train", "val"):
        source = parts.dataset.splits[split]
        labels[split] = np.asarray(source.labels)
        if config.encoder.frozen and isinstance(source, KeptFeatures):
            inputs[split] = np.asarray(source.views[0])
        else:
            inputs[split] = TrainedRun(config, folder, parts).embed(source)
    return probe_areas(inputs, labels, len(parts.dataset.ranks))


def probe_areas(
    inputs: Mapping[str, np.ndarray], labels: Mapping[str, np.ndarray], num_ranks: int
) -> list[float]:
    """AUC of each boundary; 0.5 where a rank has no validation image."""
    areas = []
    for h in range(num_ranks - 1):
        of = {s: np.isin(labels[s], (h, h + 1)) for s in inputs}
        above = {s: labels[s][of[s]] > h for s in inputs}
        if any(len(np.unique(above[s])) < 2 for s in inputs):
            areas.append(0.5)
            continue
        model = make_pipeline(
            StandardScaler(), LogisticRegression(C=1e-3, max_iter=1000)
        )
        model.fit(inputs["train"][of["train"]], above["train"])
        chance = model.predict_proba(inputs["val"][of["val"]])[:, 1]
        areas.append(float(roc_auc_score(above["val"], chance)))
    return areas
