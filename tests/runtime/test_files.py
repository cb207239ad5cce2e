"""Files: whole or not there, and every flipped bit is noticed."""

import errno
import json
import os

import pytest

from cloc_jax.runtime import files
from cloc_jax.runtime.files import Damaged


def test_json_is_strict_and_whole(tmp_path):
    path = tmp_path / "a.json"
    files.write_json(path, {"x": 1.5})
    with pytest.raises(ValueError):
        files.write_json(path, {"x": float("nan")})
    assert json.loads(path.read_text()) == {"x": 1.5}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_text_is_utf_8_whatever_the_machine(tmp_path):
    files.write_text(tmp_path / "a.txt", "Größe ½\n")
    assert (tmp_path / "a.txt").read_bytes() == "Größe ½\n".encode()


@pytest.mark.parametrize("fails", ["write", "replace"])
@pytest.mark.parametrize("before", [b"old", None])
def test_whole_or_not_at_all(tmp_path, monkeypatch, fails, before):
    path = tmp_path / "a.bin"
    if before:
        path.write_bytes(before)

    def sync(number):
        raise OSError(errno.ENOSPC, "No space left on device")

    def replace(part, path):
        raise OSError("Read-only file system")

    if fails == "write":
        monkeypatch.setattr(os, "fsync", sync)
    else:
        monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(OSError) as caught:
        files.write_bytes(path, b"newer")
    if fails == "write":  # the system does not say which file
        assert caught.value.filename == str(path)
    monkeypatch.undo()
    assert [p.read_bytes() for p in tmp_path.iterdir()] == ([before] if before else [])


def test_a_name_that_is_not_taken(tmp_path):
    path = tmp_path / "images.png"
    assert files.unused_path(path) == path
    for name in ("images.png", "images-2.png", "images-4.png"):
        (tmp_path / name).touch()
    assert files.unused_path(path) == tmp_path / "images-3.png"


VALUE = {"ranks": ["0", "½"], "score": 0.1 + 0.2, "none": None, "deep": {"a": [1, 2]}}


def read(path):
    return files.read_sealed(path, remedy="Put back a copy.")


def test_json_comes_back_without_its_checksum(tmp_path):
    files.write_sealed(tmp_path / "a.json", VALUE)
    assert read(tmp_path / "a.json") == VALUE
    assert json.loads((tmp_path / "a.json").read_text())["score"] == VALUE["score"]


def test_no_flipped_bit_changes_a_value_unnoticed(tmp_path):
    path = tmp_path / "a.json"
    files.write_sealed(path, VALUE)
    whole, noticed = path.read_bytes(), 0
    for place in range(len(whole)):
        for bit in range(8):
            text = bytearray(whole)
            text[place] ^= 1 << bit
            try:
                found = files.unsealed(bytes(text))
            except ValueError:
                noticed += 1
                continue
            assert found == VALUE  # only white space
    assert noticed > 7 * len(whole)


@pytest.mark.parametrize(
    "text, problem",
    [
        (b"", "it is empty"),
        (b'{"ranks": ["0"', "it is not valid JSON"),
        (b'{"a": "\xff"}', "it is not UTF-8"),
        (b"[1, 2]", "it holds a list, not an object"),
        (b'{"a": 1}', "does not match its checksum"),
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


def test_files_must_have_their_fields(tmp_path):
    path = tmp_path / "a.json"
    files.write_sealed(path, VALUE)
    with pytest.raises(Damaged, match="it lacks sha256"):
        files.read_sealed(path, remedy="", fields=("ranks", "sha256"))


def test_a_sealed_folder(tmp_path):
    folder = tmp_path / "model"
    (folder / "d").mkdir(parents=True)
    (folder / "d" / "array").write_bytes(bytes(range(256)))
    (folder / "about").write_text("x")
    with pytest.raises(Damaged, match="checksums.json is damaged: it is missing"):
        files.check_folder(folder, remedy="")
    files.seal_folder(folder)
    files.check_folder(folder, remedy="")
    data = bytearray(range(256))
    data[77] ^= 4
    (folder / "d" / "array").write_bytes(data)
    with pytest.raises(Damaged, match="d/array is damaged: it does not match"):
        files.check_folder(folder, remedy="")
    (folder / "d" / "array").unlink()
    with pytest.raises(Damaged, match="d/array is damaged: it is missing"):
        files.check_folder(folder, remedy="")
