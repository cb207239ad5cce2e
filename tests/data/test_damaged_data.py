"""Damaged records and split lists: made again, or one sentence; never used."""

import json

import miniatures
import pytest
from damage import flip

from cloc_jax.data import records, splits
from cloc_jax.data.images import NetworkInput
from cloc_jax.data.layouts import rank_folders
from cloc_jax.runtime.files import Damaged

WANTED = NetworkInput((8, 8), 3)


def prepare(tmp_path, listing):
    said: list[str] = []
    made = records.prepare(
        listing.items, tmp_path / "prepared", WANTED, say=said.append
    )
    return made, said, records.Records(made, listing.items, channels=3)


def test_no_flipped_bit_of_prepared_images_is_used(tmp_path):
    listing = rank_folders.scan(miniatures.folder(tmp_path / "source", (3, 3)))
    made, _, source = prepare(tmp_path, listing)
    right = [source[i].tobytes() for i in range(6)]
    files = sorted(p for p in made.path.rglob("*") if p.is_file())
    names = {path.relative_to(made.path).as_posix() for path in files}
    assert any("array_record" in name for name in names)
    noticed = 0
    for name in sorted(names):
        flip(made.path / name, (made.path / name).stat().st_size // 2)
        try:
            _, said, source = prepare(tmp_path, listing)
            assert [source[i].tobytes() for i in range(6)] == right, name
            noticed += any("made again" in line for line in said)
        except Damaged as error:
            assert str(made.path) in str(error) and "Start again" in str(error)
            noticed += 1
            _, said, source = prepare(tmp_path, listing)  # it was announced
            assert [source[i].tobytes() for i in range(6)] == right, name
            assert any("made again" in line for line in said)
    assert noticed >= len(names) - 1


@pytest.mark.parametrize("how", ["flipped", "cut", "another file"])
def test_a_damaged_split_list_moves_no_image(tmp_path, how):
    listing = rank_folders.scan(miniatures.folder(tmp_path / "source", (12, 12)))
    how_divided = {
        "protocol": splits.Protocol(),
        "fold": 0,
        "merge_val": False,
        "val_fraction": 0.2,
        "test_fraction": 0.2,
        "seed": 0,
    }
    path = tmp_path / "splits.json"
    division = splits.divide(listing.items, listing.ranks, **how_divided)
    splits.write(path, division, listing.items, {})
    again = splits.divide(listing.items, listing.ranks, saved=path, **how_divided)
    assert all((again.indices[s] == division.indices[s]).all() for s in again.indices)
    text = path.read_text()
    changed = text.replace('"test"', '"tesu"'), text[:80], json.dumps({"runs": []})
    path.write_text(changed[["flipped", "cut", "another file"].index(how)])
    with pytest.raises(Damaged, match="splits.json is damaged.*carved anew"):
        splits.divide(listing.items, listing.ranks, saved=path, **how_divided)
