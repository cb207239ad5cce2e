"""The benchmark of the data: it reads what training reads, and counts it right."""

import json

import numpy as np
import pytest
from launching import TINY, launched
from tiny_runs import SMALL_METHODS, tiny

from cloc_jax.bench import data_pipeline
from cloc_jax.data import augment, drawn_knees, pipeline, view_recipes
from cloc_jax.training import assembly


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(data_pipeline, "IMAGES", 12)


def counting(monkeypatch, owner, name):
    """What a function returns from now on, in order."""
    results, real = [], getattr(owner, name)

    def counted(*arguments):
        results.append(real(*arguments))
        return results[-1]

    monkeypatch.setattr(owner, name, counted)
    return results


STAGES = ["decode", "decode, resize", "decode, prepare", "+ augment"]


def test_every_stage_on_one_thread_and_on_several():
    config = tiny(data__threads=3)
    cells = data_pipeline.bench_data(config, rounds=1)
    assert [(cell["stage"], cell["threads"]) for cell in cells] == [
        (stage, threads)
        for threads in (1, 3)
        for stage in [*STAGES, data_pipeline.FULL, data_pipeline.KEPT]
    ]
    for cell in cells:
        assert cell["images"] == 16  # two batches of eight hold twelve
        rate = 1000 * cell["images"] / cell["milliseconds"]
        assert cell["images_per_second"] == pytest.approx(rate)
        ratio = cell["milliseconds"] / cells[1]["milliseconds"]
        assert cell["times_bare"] == pytest.approx(ratio)
    said = data_pipeline.conclusions(config, cells)
    assert f"{cells[4]['times_bare']:.2f} times what decoding and resizing" in said[0]
    assert f"{cells[11]['images_per_second']:.0f} later; --steps tells" in said[1]


def test_images_that_do_not_fit_are_not_said_to_be_kept():
    config = tiny(data__threads=1, data__cache_gib=0.0)
    cells = data_pipeline.bench_data(config, rounds=1)
    assert [cell["stage"] for cell in cells] == [*STAGES, data_pipeline.FULL]
    said = data_pipeline.conclusions(config, cells)
    assert "as data.cache_gib does not hold them" in said[1]


@pytest.mark.parametrize("method, views", [("ce", 1), ("simclr", 2), ("dino", 4)])
def test_views_are_those_of_the_method(method, views, monkeypatch):
    drawn = counting(monkeypatch, view_recipes, "apply")
    config = tiny(method__name=method, data__threads=1, **SMALL_METHODS)
    cells = data_pipeline.bench_data(config, rounds=1)
    full = cells[len(STAGES)]
    rate = views * full["images_per_second"]
    assert full["views_per_second"] == pytest.approx(rate)
    # Three stages draw the views of 16 images in three calls each; batches that were
    # read ahead are not counted on.
    assert len(drawn) >= (9 * views * 16 if views > 1 else 0)


@pytest.mark.parametrize("method", ["cloc", "mwr"])
def test_it_reads_the_batches_of_training(method, monkeypatch):
    config = tiny(method__name=method)
    parts = assembly.build(config)
    stage = parts.method.stages[0]
    seen = counting(monkeypatch, augment, "apply")
    reader = data_pipeline.Reader(config, parts.dataset)
    reader.read(threads=1)
    read, seen[:] = list(seen), []
    for _ in pipeline.training_batches(
        parts.dataset.splits["train"],
        parts.samplers[0],
        draws=assembly.draws(config, parts.dataset, stage),
        seed=(config.seed, 0),
        first_step=0,
        steps=2 if method == "cloc" else 1,
        threads=1,
    ):
        pass
    assert len(read) == len(reader.items) == (16 if method == "cloc" else 24)
    np.testing.assert_array_equal(np.stack(read), np.stack(seen))


def test_stages_decode_anew_and_kept_images_do_not(monkeypatch):
    reads = counting(monkeypatch, drawn_knees.Knees, "__getitem__")
    data_pipeline.bench_data(tiny(data__threads=1), rounds=2)
    rounds, warm_up, images = 2, 2, 16
    # All five stages in every round; each kept image once, and the checks of a dataset.
    expected = (rounds + warm_up) * 5 * images + images
    assert expected <= len(reads) <= expected + 24


@pytest.mark.slow
def test_through_launch(tmp_path):
    process = launched(
        "bench",
        "--what=data",
        *TINY,
        "--steps",
        "--rounds=1",
        "--run=here",
        cwd=tmp_path,
    )
    assert "times bare" in process.stdout and "; its step uses" in process.stdout
    rows = [json.loads(line) for line in (tmp_path / "here/bench.jsonl").open()]
    assert all(row["what"] == "data" and row["environment"]["jax"] for row in rows)
    assert rows[-1]["stage"] == data_pipeline.STEP
