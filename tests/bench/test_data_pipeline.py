"""The benchmark of the data: it reads what training reads, and counts it right."""

import json

import numpy as np
import pytest
from launching import TINY, launched
from tiny_runs import tiny

from cloc_jax.bench import data_pipeline, stopwatch
from cloc_jax.data import augment, drawn_knees, pipeline, view_recipes
from cloc_jax.training import assembly


@pytest.fixture
def reads(monkeypatch):
    """Items that were drawn anew, as the synthetic data's decoding."""
    counted = []
    real = drawn_knees.Knees.__getitem__

    def counting(self, index):
        counted.append(index)
        return real(self, index)

    monkeypatch.setattr(drawn_knees.Knees, "__getitem__", counting)
    return counted


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(data_pipeline, "IMAGES", 12)


def run(tmp_path, rounds=1, **changes):
    """Cells of the stages, and of memory."""
    cells = bench(tmp_path, rounds, **changes)
    return [c for c in cells[:-1] if "times_bare" in c], cells[-1]


def bench(tmp_path, rounds=1, **changes):
    cells = data_pipeline.bench_data(tiny(**changes), tmp_path, rounds=rounds)
    rows = [json.loads(line) for line in (tmp_path / "bench.jsonl").open()]
    assert [row["stage"] for row in rows] == [cell["stage"] for cell in cells]
    assert all(row["what"] == "data" and row["environment"]["jax"] for row in rows)
    return cells


STAGES = ["decode", "decode, resize", "decode, prepare", "+ augment"]


def test_every_stage_on_one_thread_and_on_several(tmp_path, capsys):
    cells, memory = run(tmp_path, data__threads=3)
    assert [(cell["stage"], cell["threads"]) for cell in cells] == [
        (stage, threads)
        for threads in (1, 3)
        for stage in [*STAGES, data_pipeline.FULL, data_pipeline.KEPT]
    ]
    for cell in cells:
        assert cell["images"] == 16  # two batches of eight hold twelve
        rate = 1000 * cell["images"] / cell["milliseconds"]
        assert cell["images_per_second"] == pytest.approx(rate)
    bare = cells[1]
    for cell in cells:
        ratio = cell["milliseconds"] / bare["milliseconds"]
        assert cell["times_bare"] == pytest.approx(ratio)
    assert memory["before_mib"] > 50 and memory["epochs"] == 1
    said = capsys.readouterr().out
    assert f"{cells[4]['times_bare']:.2f} times what decoding and resizing" in said
    assert "drawn knees" in said and "bench --what=step --batches=8" in said


def test_one_two_and_ten_views(tmp_path, monkeypatch, capsys):
    drawn, real = [], view_recipes.apply

    def apply(recipe, image, size, rng):
        drawn.append(size)
        return real(recipe, image, size, rng)

    monkeypatch.setattr(view_recipes, "apply", apply)
    cells = [c for c in bench(tmp_path) if "views_per_second" in c]
    assert [cell["stage"].split(",")[0] for cell in cells] == [
        "one view",
        "two views",
        "ten views",
    ]
    for cell, views in zip(cells, (1, 2, 10), strict=True):
        assert cell["images"] == 16 and "step_needs_per_second" not in cell
        rate = views * cell["images_per_second"]
        assert cell["views_per_second"] == pytest.approx(rate)
    # Two and four large crops of each image, and eight small ones of 3/7 of the side,
    # in three calls; batches that were read ahead are not counted on.
    assert set(drawn) == {(24, 24), (10, 10)}
    assert drawn.count((10, 10)) >= 3 * 8 * 16
    assert "--steps times the training steps" in capsys.readouterr().out


def test_frozen_encoders_have_no_views(tmp_path):
    cells = bench(tmp_path, encoder__frozen=True, head__projection=4)
    assert not any("views_per_second" in cell for cell in cells)


@pytest.mark.slow
def test_steps_are_timed_beside_the_data(tmp_path, capsys):
    config = tiny(method__dino__output=16, method__dino__hidden=8)
    cells = data_pipeline.bench_data(config, tmp_path, rounds=1, steps=True)
    timed = [cell for cell in cells if "step_needs_per_second" in cell]
    assert len(timed) == 3 and all(c["step_needs_per_second"] > 0 for c in timed)
    assert capsys.readouterr().out.count("times what the step uses") == 3


def test_images_that_do_not_fit_are_not_said_to_be_kept(tmp_path, capsys):
    cells, _ = run(tmp_path, data__threads=1, data__cache_gib=0.0)
    assert [cell["stage"] for cell in cells] == [*STAGES, data_pipeline.FULL]
    assert "as data.cache_gib does not hold them" in capsys.readouterr().out


def test_the_stream_is_the_pipeline_of_training(monkeypatch):
    config = tiny()
    parts = assembly.build(config)
    train = parts.dataset.splits["train"]
    stage = parts.method.stages[0]
    sampler = assembly.sampler(config, parts.dataset, stage, 0)
    seen, real = [], augment.apply

    def apply(strengths, image, rng):
        seen.append(real(strengths, image, rng))
        return seen[-1]

    monkeypatch.setattr(augment, "apply", apply)
    stream = data_pipeline.Stream(config, train, sampler, parts.mesh)
    stream(threads=1, steps=3)
    read, seen[:] = list(seen), []
    batches = pipeline.training_batches(
        train,
        sampler,
        draws=assembly.draws(config, parts.dataset, stage),
        seed=(config.seed, 0),
        first_step=0,
        steps=3,
        threads=1,
    )
    images = np.concatenate([np.asarray(batch["image"]) for batch in batches])
    assert len(read) == len(images) == 24
    np.testing.assert_array_equal(np.stack(read), images)


def test_stages_decode_anew_and_kept_images_do_not(tmp_path, reads):
    rounds, warm_up, images, train = 2, 2, 16, 48
    run(tmp_path, rounds=rounds, data__threads=1)
    # All five stages in every round; each kept image once, and the checks of a dataset.
    expected = (rounds + warm_up) * 5 * images + train
    assert expected - 8 <= len(reads) <= expected + 8


def test_resident_memory_follows_what_is_held():
    before = stopwatch.resident_bytes()
    held = np.ones(2**25, np.float64)  # 256 MiB, touched
    assert 200 * 2**20 < stopwatch.resident_bytes() - before < 400 * 2**20
    assert held.sum() == 2**25


@pytest.mark.slow
def test_through_launch(tmp_path):
    process = launched(
        "bench", "--what=data", *TINY, "--rounds=1", "--run=here", cwd=tmp_path
    )
    assert "images per second" in process.stdout and "times bare" in process.stdout
    assert (tmp_path / "here" / "bench.jsonl").exists()
