"""The linear probe: what it chooses, and what it says of a boundary alone."""

import numpy as np
import pytest
from tiny_runs import clean

from cloc_jax.paper import linear_probe
from cloc_jax.runtime import files


def drawn(seed, count, noise):
    """Features in which only the first of 30 tells anything."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    features = rng.normal(size=(count, 30))
    features[:, 0] += noise * labels
    return features, labels


def test_the_best_on_validation_is_taken():
    splits = {
        s: drawn(i, n, 1.5)
        for i, (s, n) in enumerate({"train": 60, "val": 500}.items())
    }
    tried = []
    model, accuracy = linear_probe.fit(
        {s: x for s, (x, _) in splits.items()},
        {s: y for s, (_, y) in splits.items()},
        lambda: tried.append(1),
    )
    assert len(tried) == len(linear_probe.STRENGTHS)
    assert accuracy[model[-1].C] == max(accuracy.values())
    assert model.score(*splits["val"]) == max(accuracy.values())
    assert len(set(accuracy.values())) > 1


def test_from_images_to_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = clean(encoder__frozen=True, head__projection=6)
    result = linear_probe.probe(config, tmp_path / "probe")
    written = (tmp_path / "probe" / "probe.json").read_text()
    assert files.unsealed(written) == result
    assert result["test"]["count"] == 14
    # Rates of 14 images.
    rate = 14 * result["boundaries"]["1|2"]["crossing_rate"]
    assert rate == pytest.approx(round(rate)) and 0 <= rate <= 14


def test_only_frozen_features_are_probed(tmp_path):
    with pytest.raises(ValueError, match="encoder.frozen=True"):
        linear_probe.probe(clean(), tmp_path)
