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
    labels = {name: one.labels for name, one in parts.dataset.splits.items()}
    asked = []

    def embed(split):
        asked.append(split)
        rng = np.random.default_rng(0)
        return rng.normal(size=(len(labels[split]), 4)).astype(np.float32)

    assert inference.fit_support(parts.method, graph, state, embed, labels)
    assert asked == reads
