"""Probabilities to decide by: calibrated by construction, or coarse."""

import numpy as np


def drawn(seed, count=4000, ranks=5, spread=2.0):
    """Probabilities, and true ranks drawn from them: calibrated by construction."""
    rng = np.random.default_rng(seed)
    p = softmax(spread * rng.normal(size=(count, ranks)))
    true = (p.cumsum(1) < rng.random((count, 1))).sum(1)
    return p, np.minimum(true, ranks - 1)


def coarse(seed, count=30, ranks=5):
    """Probabilities in twentieths, so that many are equal and some are 0."""
    rng = np.random.default_rng(seed)
    p = rng.multinomial(20, np.full(ranks, 1 / ranks), size=count) / 20
    return p, rng.integers(0, ranks, count)


def softmax(logits):
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)
