"""The pipeline: the planned items, images that depend on nothing else, no item lost."""

import numpy as np

from cloc_jax.data import pipeline
from cloc_jax.data.augment import Augment
from cloc_jax.data.images import NetworkInput
from cloc_jax.data.samplers import RankPairs, Triples
from cloc_jax.data.source import Prepared, Source, augmented


class Noise(Source):
    """Twenty images of three ranks that count how often they are read."""

    def __init__(self):
        self.labels = np.arange(20, dtype=np.int32) % 3
        self.ids = [f"item-{i}" for i in range(20)]
        self.paths = None
        self.reads = np.zeros(20, int)

    def __getitem__(self, index):
        self.reads[index] += 1
        rng = np.random.default_rng(index)
        return rng.integers(0, 256, (12, 10, 1), dtype=np.uint8)


def prepared(source, cache_bytes, **options):
    return Prepared(source, NetworkInput((8, 8), 1, **options), cache_bytes=cache_bytes)


def batches(first_step=0, threads=1, count=5, **options):
    source = Noise()
    plan = RankPairs(source.labels, 6)
    change = Augment(rotate_degrees=30, flip_horizontal=0.5)
    stream = pipeline.training_batches(
        source,
        plan,
        draws=[augmented(source, change)],
        seed=(3,),
        first_step=first_step,
        steps=count,
        threads=threads,
        **options,
    )
    return list(stream), plan, source


def test_batches_hold_the_planned_items():
    got, plan, source = batches()
    for step, batch in enumerate(got):
        np.testing.assert_array_equal(batch["id"], plan.batch(step))
        np.testing.assert_array_equal(batch["label"], source.labels[plan.batch(step)])
        assert batch["image"].shape == (6, 12, 10, 1) and batch["mask"].all()


def test_images_depend_on_the_step_alone():
    whole, _, _ = batches(count=6)
    later, _, _ = batches(first_step=3, threads=3, count=3)
    for a, b in zip(whole[3:], later, strict=True):
        np.testing.assert_array_equal(a["image"], b["image"])
    assert (np.asarray(whole[0]["image"]) != np.asarray(whole[1]["image"])).any()


def test_each_process_reads_only_its_rows():
    (whole, *_), plan, _ = batches(first_step=2)
    parts = []
    for part in range(2):
        share = (part, 2)
        got, _, source = batches(2, share=share, place=lambda batch: batch)
        parts.append(got[0])
        mine = [plan.batch(step).reshape(2, 3)[part] for step in range(2, 7)]
        np.testing.assert_array_equal(parts[part]["id"], mine[0])
        assert set(np.flatnonzero(source.reads)) == set(np.concatenate(mine))
    for key in whole:
        both = np.concatenate([part[key] for part in parts])
        np.testing.assert_array_equal(whole[key], both)


def test_rows_of_several_items_have_every_view_of_each():
    source = Noise()
    plan = Triples(source.labels, 4)
    draws = [lambda item, rng: source[item], lambda item, rng: 255 - source[item]]
    (batch,) = pipeline.training_batches(
        source, plan, draws=draws, seed=(3,), first_step=2, steps=1, threads=1
    )
    items = plan.batch(2)
    assert items.shape == (4, 3)
    np.testing.assert_array_equal(batch["id"], items)
    np.testing.assert_array_equal(batch["label"], source.labels[items])
    for (row, place), item in np.ndenumerate(items):
        plain, inverted = batch["image"][2 * place : 2 * place + 2]
        np.testing.assert_array_equal(plain[row], source[item])
        np.testing.assert_array_equal(inverted[row], 255 - source[item])


def test_evaluation_sees_every_item_once():
    source = Noise()
    got = list(pipeline.evaluation_batches(source, 8, threads=2))
    ids = np.concatenate([b["id"] for b in got])
    real = np.concatenate([b["mask"] for b in got])
    assert len(got) == 3 and all(len(b["id"]) == 8 for b in got)
    np.testing.assert_array_equal(ids[real], np.arange(20))


def test_prepared_images_are_kept_while_they_fit():
    for cache_bytes, reads in ((20 * 64, 1), (20 * 64 - 1, 2)):
        source = Noise()
        small = prepared(source, cache_bytes)
        first, again = small[7], small[7]
        np.testing.assert_array_equal(first, again)
        assert first.shape == (8, 8, 1) and source.reads[7] == reads


def test_evaluation_sees_the_centre_and_training_the_whole_of_a_random_crop():
    source = Noise()
    change = Augment(random_crop=0.25)
    for cache_bytes in (0, 20 * 64):
        items = prepared(source, cache_bytes, random_crop=0.25)
        whole = items.whole(3)
        assert whole.shape == (8, 8, 1)
        np.testing.assert_array_equal(items[3], whole[1:7, 1:7])
        draw = augmented(items, change)
        drawn = [draw(3, np.random.default_rng(seed)) for seed in range(60)]
        windows = {view.tobytes() for view in drawn}
        assert len(windows) == 9  # every one there is
        assert all(view.shape == (6, 6, 1) for view in drawn)
        assert whole[:6, :6].tobytes() in windows
