"""Runs that were handed over, without the time that training them takes."""

import numpy as np

from cloc_jax.runtime import checkpoint
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import inference
from cloc_jax.training import assembly, callbacks, encoder


def untrained_run(config, path):
    """The folder of a run whose last stage handed over the model as it began."""
    folder = RunFolder(path)
    parts = assembly.build(config)
    folder.create(config.to_dict(), parts.describe())
    encoder.keep_trunk(parts.trunk, folder)
    graph, state = checkpoint.split_model(parts.create())
    embedder = inference.embedder(graph, parts.method, parts.mesh)
    splits = parts.dataset.splits

    def embed(split):
        rows = np.stack([splits[split][i] for i in range(len(splits[split]))])
        return np.asarray(embedder(state, rows))

    labels = {name: source.labels for name, source in splits.items()}
    support = inference.fit_support(parts.method, graph, state, embed, labels)
    for stage in parts.method.stages:
        record = {
            "epoch": 1,
            "step": 1,
            "rule": "max_epochs",
            "reason": "it was made for a test",
            "seconds": 0.0,
            "shares": {},
        }
        callbacks.hand_over(folder, stage.name, state, support, record)
    return folder
