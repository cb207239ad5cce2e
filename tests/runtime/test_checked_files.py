"""Checksums: every flipped bit is noticed, and older files are read."""

import json

import pytest

from cloc_jax.runtime import checked_files
from cloc_jax.runtime.checked_files import Damaged

VALUE = {"ranks": ["0", "½"], "score": 0.1 + 0.2, "none": None, "deep": {"a": [1, 2]}}


def read(path):
    return checked_files.read_json(path, remedy="Put back a copy.")


def test_json_comes_back_without_its_checksum(tmp_path):
    checked_files.write_json(tmp_path / "a.json", VALUE)
    assert read(tmp_path / "a.json") == VALUE
    assert checked_files.is_sealed(tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text())["score"] == VALUE["score"]


def test_no_flipped_bit_changes_a_value_unnoticed(tmp_path):
    path = tmp_path / "a.json"
    checked_files.write_json(path, VALUE)
    whole, noticed = path.read_bytes(), 0
    for place in range(len(whole)):
        for bit in range(8):
            text = bytearray(whole)
            text[place] ^= 1 << bit
            try:
                found = checked_files.opened(bytes(text))
            except ValueError:
                noticed += 1
                continue
            # Only white space, or the name of the checksum's own key.
            assert {k: found.get(k) for k in VALUE} == VALUE
    assert noticed > 7 * len(whole)


@pytest.mark.parametrize(
    "text, problem",
    [
        (b"", "it is empty"),
        (b'{"ranks": ["0"', "it is not valid JSON"),
        (b'{"a": "\xff"}', "it is not UTF-8"),
        (b"[1, 2]", "it holds a list, not an object"),
        (b'{"a": 1, "integrity": "v9:00"}', "newer version of cloc_jax"),
        (b'{"a": 1, "integrity": 3}', "does not match its checksum"),
        (b"[" * 100_000, "it is not valid JSON"),
    ],
)
def test_damage_is_named_with_the_file_and_the_way_out(tmp_path, text, problem):
    path = tmp_path / "config.json"
    path.write_bytes(text)
    with pytest.raises(Damaged, match=problem) as caught:
        read(path)
    assert str(path) in str(caught.value) and "Put back a copy." in str(caught.value)


def test_older_files_are_read_and_must_have_their_fields(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(VALUE))
    assert read(path) == VALUE and not checked_files.is_sealed(path)
    with pytest.raises(Damaged, match="it lacks sha256"):
        checked_files.read_json(path, remedy="", fields=("ranks", "sha256"))


def test_a_sealed_folder(tmp_path):
    folder = tmp_path / "model"
    (folder / "d").mkdir(parents=True)
    (folder / "d" / "array").write_bytes(bytes(range(256)))
    (folder / "about").write_text("x")
    assert not checked_files.check_folder(folder, remedy="")  # of an older run
    checked_files.seal_folder(folder)
    assert checked_files.check_folder(folder, remedy="")
    data = bytearray(range(256))
    data[77] ^= 4
    (folder / "d" / "array").write_bytes(data)
    with pytest.raises(Damaged, match="d/array is damaged: it does not match"):
        checked_files.check_folder(folder, remedy="")
    (folder / "d" / "array").unlink()
    with pytest.raises(Damaged, match="d/array is damaged: it is missing"):
        checked_files.check_folder(folder, remedy="")
