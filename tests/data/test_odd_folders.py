"""Folders and files that cannot be read: said in a sentence, or skipped if asked."""

import csv
import os

import miniatures
import pytest
from permissions import unprivileged

from cloc_jax.data import datasets
from cloc_jax.data.layouts import rank_folders
from configs import folder as folder_config


def load(root, place, **changes):
    settings = folder_config.get_config().data.to_dict()
    settings |= {"root": str(root), "size": (16, 16), **changes}
    return datasets.load("folder", settings, prepared=place / "prepared", say=id)


def test_links_that_lead_to_themselves(tmp_path):
    root = miniatures.folder(tmp_path / "images", (12, 12))
    for name in ("0/loop", "0/loop.png", "loop"):
        (root / name).symlink_to(root / name)
    (root / "1" / "up").symlink_to(root)
    (root / "1" / "none.png").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="2 of 26 images cannot be read.*0/loop.png"):
        load(root, tmp_path)
    found = load(root, tmp_path, on_bad_image="skip")
    assert sum(map(len, found.splits.values())) == 24
    bad = {what for what, _ in found.details["skipped"]}
    assert {"0/loop.png", "1/none.png", "1/up", "0/loop"} <= bad


def test_folder_that_cannot_be_listed(open_folder):
    root = miniatures.folder(open_folder / "images", (12, 12, 12))
    (root / "train").mkdir()
    for rank in "012":
        (root / rank).rename(root / "train" / rank)
    miniatures.folder(root / "val", (3, 3, 3))
    (root / "val" / "1").chmod(0)
    with unprivileged():
        with pytest.raises(ValueError, match="1 folder cannot be listed: val/1;"):
            load(root, open_folder)
        found = load(root, open_folder, on_bad_image="skip")
        assert len(found.splits["val"]) == 6
        assert any("folders that cannot be listed" in note for note in found.notes)
        assert ["val/1", "folders that cannot be listed"] in found.details["skipped"]
    (root / "val" / "1").chmod(0o755)
    (root / "train" / "2").chmod(0)
    with unprivileged(), pytest.raises(ValueError, match="rank folder 2 .*be listed"):
        rank_folders.scan(root)
    root.chmod(0)
    with unprivileged(), pytest.raises(ValueError, match="images cannot be listed"):
        rank_folders.scan(root)
    root.chmod(0o755)
    (root / "train" / "2").chmod(0o755)


def test_all_bad_images_are_in_a_file_that_is_named(tmp_path):
    root = miniatures.folder(tmp_path / "images", (12, 12))
    odd = os.fsdecode(b"caf\xe9\x1b.png")
    for name in [*(f"bad{i}.png" for i in range(8)), odd]:
        (root / "0" / name).write_text("no image")
    with pytest.raises(ValueError, match=r"and 4 more; (.*\.csv) lists all") as caught:
        load(root, tmp_path)
    named = str(caught.value).split("more; ")[1].split(" lists all")[0]
    with open(named, encoding="utf-8", errors="surrogateescape") as file:
        found = {row["image"]: row["why"] for row in csv.DictReader(file)}
    assert len(found) == 9 and "not an image" in found[f"0/{odd}"]
    skipped = load(root, tmp_path, on_bad_image="skip")
    assert any(f"{named} lists all" in note for note in skipped.notes)
