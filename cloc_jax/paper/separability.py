"""How well neighbouring ranks can be told apart, by a linear probe."""

import numpy as np
from ml_collections import ConfigDict

from cloc_jax.data.source import KeptFeatures
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.training import assembly
from cloc_jax.training.trained_run import TrainedRun


def areas(config: ConfigDict, folder: RunFolder) -> list[float]:
    """Area under the ROC curve (AUC) of each boundary, on validation images.

    A logistic regression for each pair of neighbouring ranks, fitted on the training
    images: on the features of the frozen encoder where there is one, which no margin
    has touched, else on the embeddings of the given run.
    """
    parts = assembly.build(config, folder)
    inputs = {s: _inputs(config, folder, parts, s) for s in ("train", "val")}
    labels = {s: np.asarray(parts.dataset.splits[s].labels) for s in inputs}
    return probe_areas(inputs, labels, len(parts.dataset.ranks))


def probe_areas(
    inputs: dict[str, np.ndarray], labels: dict[str, np.ndarray], num_ranks: int
) -> list[float]:
    """AUC of each boundary; 0.5 where a rank has no validation image."""
    from sklearn import linear_model, metrics, pipeline, preprocessing

    found = []
    for h in range(num_ranks - 1):
        of = {s: np.isin(labels[s], (h, h + 1)) for s in inputs}
        above = {s: labels[s][of[s]] > h for s in inputs}
        if any(len(np.unique(above[s])) < 2 for s in inputs):
            found.append(0.5)
            continue
        model = pipeline.make_pipeline(
            preprocessing.StandardScaler(),
            linear_model.LogisticRegression(C=1e-3, max_iter=1000),
        )
        model.fit(inputs["train"][of["train"]], above["train"])
        chance = model.predict_proba(inputs["val"][of["val"]])[:, 1]
        found.append(float(metrics.roc_auc_score(above["val"], chance)))
    return found


def _inputs(
    config: ConfigDict, folder: RunFolder, parts: assembly.Parts, split: str
) -> np.ndarray:
    source = parts.dataset.splits[split]
    if config.encoder.frozen and isinstance(source, KeptFeatures):
        return np.asarray(source.views[0].all())
    return TrainedRun(config, folder, parts).embed(source)
