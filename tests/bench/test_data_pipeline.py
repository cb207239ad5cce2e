"""The benchmark of the data: it reads what training reads, and counts it right."""

import numpy as np
import pytest
from tiny_runs import tiny

from cloc_jax.bench import data_pipeline
from cloc_jax.data import augment, pipeline
from cloc_jax.training import assembly


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(data_pipeline, "IMAGES", 12)


def test_all_is_compared_with_decoding_on_one_thread():
    cells = data_pipeline.bench_data(tiny(data__threads=3), rounds=1)
    assert [(cell["stage"], cell["threads"]) for cell in cells] == [
        (data_pipeline.BARE, 1),
        *((data_pipeline.FULL, threads) for threads in (1, 3)),
    ]
    for cell in cells:
        assert cell["images"] == 16  # two batches of eight hold twelve
        rate = 1000 * cell["images"] / cell["milliseconds"]
        assert cell["images_per_second"] == pytest.approx(rate)
        ratio = cell["milliseconds"] / cells[0]["milliseconds"]
        assert cell["times_bare"] == pytest.approx(ratio)


@pytest.mark.parametrize("method, steps", [("cloc", 2), ("mwr", 1)])
def test_it_reads_the_batches_of_training(method, steps, monkeypatch):
    config = tiny(method__name=method)
    parts = assembly.build(config)
    seen, apply = [], augment.apply
    monkeypatch.setattr(augment, "apply", lambda *a: seen.append(apply(*a)) or seen[-1])
    data_pipeline.read(config, parts, steps, threads=1)
    read, seen[:] = list(seen), []
    for _ in pipeline.training_batches(
        parts.dataset.splits["train"],
        parts.samplers[0],
        draws=assembly.draws(config, parts.dataset, parts.method.stages[0]),
        seed=(config.seed, 0),
        first_step=0,
        steps=steps,
        threads=1,
    ):
        pass
    assert len(read) == (16 if method == "cloc" else 24)
    np.testing.assert_array_equal(np.stack(read), np.stack(seen))
