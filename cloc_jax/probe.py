"""A linear probe: logistic regression on the features of a frozen encoder.

What a method on frozen features has to beat. Its regularisation is chosen on the
validation data; the test data are read once, by the one chosen.
"""

import pathlib
import warnings
from typing import Any

import numpy as np
from ml_collections import ConfigDict
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from cloc_jax import assemble, metrics
from cloc_jax.derived import Activations
from cloc_jax.progress import console, track
from cloc_jax.run_folder import write_json

STRENGTHS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)  # scikit-learn's C


def probe(config: ConfigDict, folder: pathlib.Path) -> dict[str, Any]:
    """Fits the probe, prints its scores and writes probe.json."""
    if not config.encoder.frozen:
        raise ValueError(
            "the probe works on a frozen encoder's features; add "
            "--config.encoder.frozen=True."
        )
    config = assemble.resolve(config)
    dataset = assemble.build(config).dataset
    features: dict[str, np.ndarray] = {}
    for name, source in dataset.splits.items():
        assert isinstance(source, Activations)
        features[name] = source.views[0].all()
    labels = {name: source.labels for name, source in dataset.splits.items()}
    fitted: dict[float, Pipeline] = {}
    accuracy: dict[float, float] = {}
    with track("logistic regressions", len(STRENGTHS)) as advance:
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
    chosen = max(accuracy, key=accuracy.__getitem__)
    predicted = fitted[chosen].predict(features["test"])
    test = metrics.ordinal_metrics(labels["test"], predicted, dataset.ranks)
    result = {
        "C": chosen,
        "val_accuracy": {str(c): a for c, a in accuracy.items()},
        "test": test,
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "probe.json", result)
    console.print(
        f"logistic regression, C {chosen:g} by validation: test accuracy "
        f"{test['accuracy']:.3f}  MAE {test['mae']:.3f}  QWK {test['qwk'] or 0:.3f}"
    )
    console.print(f"written to {folder / 'probe.json'}", soft_wrap=True)
    return result
