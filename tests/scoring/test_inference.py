"""What is computed over a split, and what is not."""

import numpy as np
import pytest
from tiny_runs import tiny

from cloc_jax.runtime import checkpoint
from cloc_jax.scoring import inference
from cloc_jax.training import assembly


@pytest.mark.parametrize("name, reads", [("rnc", ["val"]), ("gol", ["train", "val"])])
def test_only_splits_that_a_method_is_fitted_on_are_embedded(name, reads):
    parts = assembly.build(tiny(method__name=name))
    graph, state = checkpoint.split_model(parts.create())
    embedder = inference.compiled(graph, parts.method.embed, parts.mesh)
    splits, asked = parts.dataset.splits, []

    def embed(split):
        asked.append(split)
        rows = np.stack([splits[split][i] for i in range(len(splits[split]))])
        return np.asarray(embedder(state, rows))

    labels = {name: source.labels for name, source in splits.items()}
    assert inference.fit_support(parts.method, graph, state, embed, labels)
    assert asked == reads
