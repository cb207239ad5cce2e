"""Images that are there more than once: found, and others not taken for them."""

import io
import pathlib
import shutil

import miniatures
import numpy as np
import pytest
from PIL import Image, ImageEnhance

from cloc_jax.data import inspection, records, splits
from cloc_jax.data.drawn_knees import Knees
from cloc_jax.data.images import NetworkInput
from cloc_jax.data.layouts.listing import Item
from cloc_jax.data.source import InMemory
from cloc_jax.training import assembly
from configs import folder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def hashes_of(images):
    arrays = [np.atleast_3d(np.asarray(image)) for image in images]
    return inspection.perceptual_hashes(InMemory(arrays, list(map(str, arrays))))


def knees(count, size=(96, 96)):
    source = Knees(count, start=0, seed=0, size=size)
    return [Image.fromarray(source[i][:, :, 0]) for i in range(count)]


def identical(items, place):
    how = NetworkInput((8, 8), 3)
    return records.prepare(items, place / "prepared", how).identical()


def test_identical_files_are_found_whatever_their_names(tmp_path):
    names = ["a/1.png", "a/2.png", "b/1.png", "b/3.png"]
    for number, name in enumerate(names):
        miniatures.picture(tmp_path / name, number % 3)
    items = [Item(name, tmp_path / name, 0) for name in names]
    assert identical(items, tmp_path) == [["a/1.png", "b/3.png"]]
    assert identical(items, tmp_path) == [["a/1.png", "b/3.png"]]  # from what is kept


def test_changed_copies_are_near_and_other_images_are_not():
    originals = knees(60)
    first = originals[0]
    data = io.BytesIO()
    first.save(data, "JPEG", quality=60)
    copies = [
        Image.open(data),
        first.resize((64, 64), Image.Resampling.BOX),
        first.resize((150, 150), Image.Resampling.BILINEAR),
        ImageEnhance.Brightness(first).enhance(1.1),
        ImageEnhance.Contrast(first).enhance(1.2),
        first.convert("RGB"),
    ]
    hashes, flat = hashes_of([*originals, *copies])
    assert not flat.any()
    pairs = {(a, b) for a, b, _ in inspection.near_pairs(hashes)}
    assert {(0, 60 + i) for i in range(len(copies))} <= pairs
    assert not any(second < 60 for _, second in pairs)


@pytest.mark.parametrize("bits", [0, 5, 100, 128])
def test_near_pairs_are_those_of_the_slow_way(bits, monkeypatch):
    monkeypatch.setattr(inspection, "_BLOCK", 7)  # several blocks, the last not full
    rng = np.random.default_rng(bits)
    hashes = rng.integers(0, 2**63, (40, 4), np.uint64)
    hashes[33] = hashes[4]
    hashes[20] = hashes[19] ^ np.uint64(7)  # three bits of each word
    slow = sorted(
        (sum(int(a ^ b).bit_count() for a, b in zip(x, y, strict=True)), i, j)
        for i, x in enumerate(hashes)
        for j, y in enumerate(hashes)
        if i < j
    )
    wanted = [(i, j, apart) for apart, i, j in slow if apart <= bits]
    assert inspection.near_pairs(hashes, bits=bits) == wanted
    assert (4, 33, 0) in wanted


def test_a_set_of_copies_only_does_not_list_millions():
    hashes = np.zeros((3000, 4), np.uint64)
    assert len(inspection.near_pairs(hashes, most=500)) == 500


def test_identical_images_stay_together_when_splits_are_carved():
    def item(name, split=None, group=None):
        return Item(name, pathlib.Path(name), 0, split, group)

    alone = [item("a"), item("b"), item("c")]
    a, b, c = splits.keep_together(alone, [["a", "c"]])
    assert a.group == c.group != b.group
    assert splits.keep_together(alone, []) == alone
    people = [item("a", group="x"), item("b", group="x"), item("c", group="y")]
    assert len({i.group for i in splits.keep_together(people, [["b", "c"]])}) == 1
    shipped = [item("a", "train"), item("b", "test")]
    assert splits.keep_together(shipped, [["a", "b"]]) == shipped


def test_carved_splits_of_own_images_share_no_image(tmp_path):
    root = miniatures.folder(tmp_path / "data", (20, 20))
    for rank in range(2):
        for i in range(10):
            copied = root / str(rank) / f"{i:02d}.png"
            shutil.copy(copied, copied.with_name(f"{i:02d}_copy.png"))
    config = folder.get_config()
    config.data.root = str(root)
    found = assembly.load(config)
    assert len(found.details["identical"]) == 20
    assert not any("identical" in note for note in found.notes)
    for source in found.splits.values():
        copies = {i for i in source.ids if "copy" in i}
        assert {i.replace("_copy", "") for i in copies} <= set(source.ids)
