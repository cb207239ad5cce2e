"""Preparation: what is stored, and that it is whole or made again."""

import concurrent.futures
import hashlib
import os
import pickle
import time

import miniatures
import numpy as np
import pytest
from damage import flip
from PIL import Image

from cloc_jax.data import images, records
from cloc_jax.data.images import NetworkInput
from cloc_jax.data.layouts import rank_folders
from cloc_jax.data.records import Records
from cloc_jax.runtime.console import console
from cloc_jax.runtime.files import Damaged

WANTED = NetworkInput((8, 8), 3)


@pytest.fixture
def source(tmp_path):
    return miniatures.folder(tmp_path / "source", (5, 4))


def prepare(source, tmp_path, wanted=WANTED, **options):
    listing = rank_folders.scan(source)
    home = records.home(tmp_path / "prepared", "folder", source)
    with console.capture() as captured:
        made = records.prepare(listing.items, home, wanted, **options)
    return made, listing, [line.strip() for line in captured.get().splitlines()]


def opened(made, listing, channels=3):
    items = [item for item in listing.items if item.id in made.contents]
    return Records(made, items, WANTED._replace(channels=channels))


# --- what is stored ---


def test_records_are_what_reading_the_files_gives(source, tmp_path):
    made, listing, said = prepare(source, tmp_path)
    assert len(said) == 1 and said[0].startswith("preparing 9 images once, in ")
    assert made.facts["smallest"] == [12, 10]
    for example, item in zip(
        records.read_records(made.path), listing.items, strict=True
    ):
        assert example["id"].decode() == item.id
        assert example["image"] == item.path.read_bytes()  # small ones keep theirs
    for channels in (1, 3):
        part = opened(made, listing, channels)
        assert part.labels.dtype == np.int32 and len(part) == 9
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            read = list(pool.map(part.__getitem__, range(9)))
        for image, path in zip(read, part.paths, strict=True):
            expected = miniatures.read(path, channels=channels)
            np.testing.assert_array_equal(image, expected)
    copy = pickle.loads(pickle.dumps(part))
    np.testing.assert_array_equal(copy[3], part[3])
    assert copy.ids == part.ids and copy.paths == part.paths


@pytest.mark.parametrize("channels", [1, 3])
def test_large_images_are_shrunk_without_changing_what_is_seen(tmp_path, channels):
    source = miniatures.folder(tmp_path / "source", (3, 3))
    for i, size in enumerate([(60, 90), (200, 40), (7, 400)]):
        miniatures.picture(source / "0" / f"large{i}.png", i, size)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned
    noise = np.random.default_rng(0).integers(0, 256, (64, 32, 3), np.uint8)
    Image.fromarray(noise).save(source / "1" / "turned.jpg", exif=exif)
    wanted = WANTED._replace(size=(16, 12), channels=channels)
    made, listing, _ = prepare(source, tmp_path, wanted)
    part = opened(made, listing, channels)
    for i, id_ in enumerate(part.ids):
        direct = miniatures.read(part.paths[i], channels=channels)
        seen = wanted.prepare(part[i])
        np.testing.assert_array_equal(seen, wanted.prepare(direct), err_msg=id_)
        assert part[i].shape[0] * part[i].shape[1] <= 4 * 16 * 12
    assert made.facts["least_height"] == 7 and made.facts["least_width"] == 10


def test_shards_are_read_as_one(tmp_path, monkeypatch):
    source = miniatures.folder(tmp_path / "source", (9, 8))
    monkeypatch.setattr(records, "SHARD_IMAGES", 4)
    made, listing, _ = prepare(source, tmp_path)
    assert len(list(made.path.rglob("*.array_record*"))) > 3
    assert [e["id"].decode() for e in records.read_records(made.path)] == [
        item.id for item in listing.items
    ]


# --- bad images ---


def spoil(source):
    """Every kind of file that cannot be read; ids with a word of the reason."""
    good = source / "0" / "photo.jpg"
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
    Image.fromarray(noise).save(good)
    data = good.read_bytes()
    (source / "0" / "short.jpg").write_bytes(data[: len(data) // 2])
    (source / "0" / "empty.png").touch()
    (source / "1" / "text.png").write_text("hello")
    (source / "1" / "bomb.png").write_bytes(miniatures.bomb())
    os.mkfifo(source / "0" / "pipe.png")
    (source / "0" / "device.png").symlink_to("/dev/zero")
    (source / "1" / "nowhere.png").symlink_to(source / "nowhere")
    with (source / "1" / "huge.png").open("wb") as file:
        file.truncate(513 << 20)
    return {
        "0/short.jpg": "cut short",
        "0/empty.png": "0 bytes",
        "1/text.png": "not an image",
        "1/bomb.png": "400,000,000 pixels, more than the limit of 89,478,485",
        "0/pipe.png": "named pipe",
        "0/device.png": "device",
        "1/nowhere.png": "No such file or directory; check the path",
        "1/huge.png": "513 MiB, more than the limit of 512 MiB",
    }


def test_bad_images_are_listed_and_the_others_stored(source, tmp_path):
    reasons = spoil(source)
    made, listing, _ = prepare(source, tmp_path)
    assert sorted(made.bad) == sorted(reasons)
    for id_, words in reasons.items():
        assert words in made.bad[id_] and not made.bad[id_].startswith(id_)
    assert len(made.contents) == 10
    # All of it is known without reading again.
    again, _, said = prepare(source, tmp_path)
    assert again == made and said == []


# --- made once, whole, and again when it must be ---


def change_unseen(path):
    """Other content with the same size and time of change."""
    status = path.stat()
    image = np.full((12, 10, 3), 128, np.uint8)
    Image.fromarray(image).save(path, compress_level=0)
    with path.open("ab") as file:  # after the end of an image nothing is read
        file.write(b"\0" * (status.st_size - path.stat().st_size))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (status.st_size, status.st_mtime_ns)


@pytest.mark.parametrize("change", ["unseen", "content", "more", "fewer", "rename"])
def test_changed_sources_are_prepared_again(source, tmp_path, change):
    made, _, _ = prepare(source, tmp_path)
    path = source / "0" / "00.png"
    if change == "unseen":
        change_unseen(path)
    elif change == "content":
        miniatures.picture(path, 99)
    elif change == "more":
        miniatures.picture(source / "1" / "new.png")
    elif change == "fewer":
        path.unlink()
    else:
        path.rename(source / "0" / "zz.png")
    again, listing, said = prepare(source, tmp_path)
    assert again.path != made.path and said[0].startswith("preparing ")
    part = opened(again, listing)
    for i in range(len(part)):
        np.testing.assert_array_equal(
            part[i], miniatures.read(part.paths[i], channels=3)
        )
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in part.paths]
    assert part.contents == digests


def test_only_images_as_they_were_listed_are_stored(source, tmp_path, monkeypatch):
    """Others are in their place meanwhile, and then they are there again, untouched."""
    make, aside = records._make, tmp_path / "aside"
    other = miniatures.folder(tmp_path / "other", (5, 4))
    miniatures.picture(other / "0" / "00.png", 99)

    def swapped(*arguments):
        source.rename(aside)
        other.rename(source)
        try:
            return make(*arguments)
        finally:
            source.rename(other)
            aside.rename(source)

    monkeypatch.setattr(records, "_make", swapped)
    with pytest.raises(ValueError, match="0/00.png has changed while images were"):
        prepare(source, tmp_path)
    monkeypatch.undo()
    made, listing, _ = prepare(source, tmp_path)
    digests = [hashlib.sha256(i.path.read_bytes()).hexdigest() for i in listing.items]
    assert list(made.contents.values()) == digests


def test_failure_of_the_disk_stops_and_is_not_remembered(source, tmp_path, monkeypatch):
    def fail(path, **options):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(images.files, "read_regular", fail)
        with pytest.raises(OSError, match="Input/output error: .*0/00.png"):
            prepare(source, tmp_path)
    assert prepare(source, tmp_path)[0].bad == {}


@pytest.mark.parametrize("damage", ["manifest", "cut", "gone", "garbage"])
def test_a_damaged_preparation_is_made_again(source, tmp_path, damage):
    made, listing, _ = prepare(source, tmp_path)
    expected = pixels(made, listing)
    shard = next(made.path.rglob("*.array_record*"))
    manifest = made.path / "prepared.json"
    damages = {
        "manifest": manifest.unlink,
        "cut": lambda: shard.write_bytes(shard.read_bytes()[:-100]),
        "gone": shard.unlink,
        "garbage": lambda: manifest.write_text('{"ids": ['),
    }
    damages[damage]()
    again, _, said = prepare(source, tmp_path)
    assert "is damaged or not complete; it is made again" in said[0]
    assert again == made and pixels(again, listing) == expected


def pixels(made, listing):
    return [image.tobytes() for image in opened(made, listing)]


def test_no_flipped_bit_of_prepared_images_is_used(tmp_path):
    source = miniatures.folder(tmp_path / "source", (3, 3))
    made, listing, _ = prepare(source, tmp_path)
    right = pixels(made, listing)
    files = sorted(p for p in made.path.rglob("*") if p.is_file())
    names = {path.relative_to(made.path).as_posix() for path in files}
    assert any("array_record" in name for name in names)
    noticed = 0
    for name in sorted(names):
        flip(made.path / name, (made.path / name).stat().st_size // 2)
        try:
            made, _, said = prepare(source, tmp_path)
            assert pixels(made, listing) == right, name
            noticed += any("made again" in line for line in said)
        except Damaged as error:
            assert str(made.path) in str(error) and "Start again" in str(error)
            noticed += 1
            made, _, said = prepare(source, tmp_path)  # it was announced
            assert pixels(made, listing) == right, name
            assert any("made again" in line for line in said)
    assert noticed >= len(names) - 1


def test_an_interrupted_preparation_leaves_nothing(source, tmp_path, monkeypatch):
    store = records.store_image

    def stop(item, **options):
        if item.id.startswith("1/02"):
            raise KeyboardInterrupt
        return store(item, **options)

    monkeypatch.setattr(records, "store_image", stop)
    with pytest.raises(KeyboardInterrupt):
        prepare(source, tmp_path)
    (home,) = (tmp_path / "prepared").iterdir()
    assert [path.name for path in home.iterdir()] == ["lock"]
    monkeypatch.undo()
    miniatures.write(home / "part-7" / "begun", "what a killed process leaves")
    made, _, said = prepare(source, tmp_path)
    assert len(made.contents) == 9 and len(said) == 2 and "not complete" in said[0]
    assert sorted(path.name for path in home.iterdir()) == ["lock", made.path.name]


def test_two_at_once_prepare_once(source, tmp_path, monkeypatch):
    store = records.store_image

    def slow(item, **options):
        time.sleep(0.05)
        return store(item, **options)

    monkeypatch.setattr(records, "store_image", slow)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: prepare(source, tmp_path), range(2)))
    assert both[0][0] == both[1][0]
    assert sum(len(said) for _, _, said in both) == 1


# --- where it may be written ---


def test_never_inside_the_sources(source):
    for inside in (source, source / "prepared"):
        with pytest.raises(
            ValueError, match="lies inside data.root=.*never written to"
        ):
            records.home(inside, "folder", source)


def test_a_full_disk(source, tmp_path, monkeypatch):
    def full(*arguments, **options):
        # What ArrayRecord says.
        raise RuntimeError("write() failed: No space left on device; writing x")

    monkeypatch.setattr(records, "_write_records", full)
    with pytest.raises(OSError, match="No space left on device"):
        prepare(source, tmp_path)
    monkeypatch.undo()
    made, _, said = prepare(source, tmp_path)
    assert len(made.contents) == 9 and len(said) == 1
