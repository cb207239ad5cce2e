"""Every official layout, from a miniature of it, and every way to miss it."""

import collections
import hashlib

import miniatures
import numpy as np
import pytest
from miniatures import picture, write

from cloc_jax.data.layouts import official

SCANS = {
    "koa": official.scan_koa,
    "idrid": official.scan_idrid,
    "adience": official.scan_adience,
    "hid": official.scan_hid,
    "bracs": official.scan_bracs,
    "clap2015": official.scan_clap2015,
}


def counts(listing):
    """Counts of the ranks by shipped split."""
    found = collections.defaultdict(lambda: [0] * len(listing.ranks))
    for item in listing.items:
        found[item.split][item.label] += 1
    return dict(found)


def reasons(listing):
    return collections.Counter(reason for _, reason in listing.skipped)


# --- what each of them is ---


def test_koa(tmp_path):
    listing = official.scan_koa(miniatures.koa(tmp_path))
    assert listing.ranks == ("0", "1", "2", "3", "4")
    assert counts(listing) == {"train": [12] * 5, "val": [4] * 5, "test": [4] * 5}
    for item in listing.items:
        assert item.group == item.path.stem[:-1]
    assert any("auto_test" in note for note in listing.notes)


def test_bracs(tmp_path):
    listing = official.scan_bracs(miniatures.bracs(tmp_path))
    assert listing.ranks == ("N", "PB", "UDH", "FEA", "ADH", "DCIS", "IC")
    assert counts(listing) == {"train": [6] * 7, "val": [2] * 7, "test": [2] * 7}
    assert len({item.group for item in listing.items}) == 35  # slides of two regions
    for item in listing.items:
        assert listing.ranks[item.label] in item.path.name
    assert listing.skipped == [
        ("train/0_N/wget-log", "that are not images by their name")
    ]


def test_hid(tmp_path):
    listing = official.scan_hid(miniatures.hid(tmp_path, each=4))
    assert listing.ranks == ("1930s", "1940s", "1950s", "1960s", "1970s")
    assert counts(listing) == {None: [4, 4, 5, 4, 4]}  # pixels are not looked at here
    assert [what for what, _ in listing.skipped] == ["1930s/Thumbs.db"]


def test_idrid(tmp_path):
    root = miniatures.idrid(tmp_path)
    listing = official.scan_idrid(root)
    assert counts(listing) == {"train": [4] * 5, "test": [2] * 5}
    for item in listing.items:  # names are the same in both sets, grades by their own
        assert item.label == int(item.path.stem[-3:]) % 5
        assert item.split == ("train" if "Training" in item.id else "test")


def test_idrid_with_a_grade_or_an_image_missing(tmp_path):
    root = miniatures.idrid(tmp_path)
    images = root / "1. Original Images" / "b. Testing Set"
    (images / "IDRiD_002.jpg").unlink()
    picture(images / "IDRiD_777.jpg")
    listing = official.scan_idrid(root)
    assert counts(listing)["test"] == [2, 2, 1, 2, 2]
    assert reasons(listing)["without a grade in the table"] == 1


def test_hid_draws_the_first_by_hash(tmp_path):
    root = miniatures.hid(tmp_path)
    for fold in (0, 3):
        listing = official.scan_hid(root, fold=fold)
        drawn = official.draw_test(listing.items, listing.drawn)
        for rank in range(5):
            items = [item for item in drawn if item.label == rank]
            by_hash = sorted(
                (f"{fold}/{item.id}".encode() for item in items),
                key=lambda name: hashlib.blake2b(name, digest_size=16).digest(),
            )
            test = {f"{fold}/{i.id}".encode() for i in items if i.split == "test"}
            assert test == {*by_hash[:50]}


def test_adience(tmp_path):
    root = miniatures.adience(tmp_path)
    tested = []
    for fold in range(5):
        listing = official.scan_adience(root, fold=fold)
        assert listing.ranks[2] == "8-13" and len(listing.ranks) == 8
        assert counts(listing) == {"train": [12] * 8, "test": [3] * 8}
        users = collections.defaultdict(set)
        for item in listing.items:
            assert item.group in item.id and "landmark_aligned_face" in item.id
            users[item.split].add(item.group)
        assert len(users["test"]) == 3 and not users["test"] & users["train"]
        tested += users["test"]
    assert len(set(tested)) == 15
    assert reasons(listing) == {"whose age is none of the eight classes": 15}


@pytest.mark.parametrize(
    ("years", "ranks"),
    [
        (1, "3 4 5 8 9 20 21 40 41"),
        (2, "2-3 4-5 8-9 20-21 40-41"),
        (3, "3-5 6-8 9-11 18-20 21-23 39-41"),
        (4, "0-3 4-7 8-11 20-23 40-43"),
        (5, "0-4 5-9 20-24 40-44"),
    ],
)
def test_clap2015_bins(tmp_path, years, ranks):
    listing = official.scan_clap2015(miniatures.clap2015(tmp_path), bin=years)
    assert listing.ranks == tuple(ranks.split())
    ages = dict(
        zip(range(1, 15), [3, 4, 5, 8, 8, 9, 20, 21, 40, 41, 3, 9, 5, 40], strict=True)
    )
    for item in listing.items:
        first = int(listing.ranks[item.label].split("-")[0])
        age = ages[int(item.path.stem[6:])]
        assert first == age // years * years
    assert {s: sum(n) for s, n in counts(listing).items()} == {
        "train": 10,
        "val": 2,
        "test": 2,
    }


def test_retinamnist_by_file_or_folder(tmp_path):
    path = miniatures.retinamnist(tmp_path)
    listing = official.scan_retinamnist(path)
    assert listing == official.scan_retinamnist(tmp_path)
    assert counts(listing) == {"train": [4] * 5, "val": [1] * 5, "test": [2] * 5}
    assert all(item.row[0] == f"{item.split}_images" for item in listing.items)


# --- missing and misplaced ---


@pytest.mark.parametrize("name", SCANS)
def test_archives_must_be_unpacked(tmp_path, name):
    archive = tmp_path / "data.zip"
    archive.touch()
    with pytest.raises(ValueError, match="is a file .*must be unpacked.*; give"):
        SCANS[name](archive)
    with pytest.raises(ValueError, match="has no .*; give the folder"):
        SCANS[name](tmp_path)


# --- other refusals ---

IDRID = "2. Groundtruths/a. IDRiD_Disease Grading_Training Labels.csv"


def replaced(file, old, new):
    """A change of a miniature: other text in one of its files."""

    def change(root):
        path = root / file
        path.write_text(path.read_text().replace(old, new))

    return change


def removed(file):
    """A change of a miniature: a file or what is in a folder is gone."""

    def change(root):
        path = root / file
        for one in path.iterdir() if path.is_dir() else [path]:
            one.unlink()

    return change


def no_rank_folder(root):
    removed("train/4")(root)
    (root / "train" / "4").rmdir()


@pytest.mark.parametrize(
    "name, change, options, message",
    [
        ("koa", no_rank_folder, {}, "has no train/4; give the folder kneeKL224"),
        ("idrid", replaced(IDRID, "3 , 3", "3 , severe"), {}, "4: .*'severe'.*0, 1, 2"),
        ("idrid", replaced(IDRID, "Retinopathy", "DR"), {}, "no column retinopathy gr"),
        ("idrid", removed(IDRID), {}, "has no 2. Ground.*tables of both sets"),
        ("adience", removed("fold_3_data.txt"), {}, "has no fold_3_data.txt; give"),
        ("adience", bool, {"fold": 5}, "data.fold is 5; use 0 to 4"),
        ("clap2015", bool, {"bin": 6}, "data.bin is 6; use one of 1, 2"),
        (
            "clap2015",
            lambda root: write(root / "train.csv", "a.jpg;3;1\nb.jpg;old;1\n"),
            {},
            "train.csv line 2: the age is 'old'",
        ),
        (
            "clap2015",
            lambda root: write(root / "train.csv", "a.jpg;3;1\nb.jpg;2_0;1\n"),
            {},
            "train.csv line 2: the age is '2_0'",
        ),
    ],
)
def test_refusals(tmp_path, name, change, options, message):
    root = miniatures.MINIATURES[name](tmp_path)
    change(root)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        SCANS[name](root, **options)


# A pickle in the file is not run.
PICKLED = {f"{s}_{k}": [print] for s in official.SPLITS for k in ("images", "labels")}


@pytest.mark.parametrize(
    "arrays, message",
    [
        (None, "is damaged.*Download it again"),
        ({"train_images": np.zeros(3)}, "is not RetinaMNIST.*has no train_labels"),
        (PICKLED, "is damaged.*allow_pickle"),
    ],
)
def test_retinamnist_refusals(tmp_path, arrays, message):
    path = miniatures.retinamnist(tmp_path / "below")
    if arrays is None:  # cut short
        path.write_bytes(path.read_bytes()[:9000])
    else:
        np.savez(path, **arrays)
    with pytest.raises(ValueError, match=message):
        official.scan_retinamnist(path)
