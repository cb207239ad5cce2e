"""Files that are whole or not there, and names that are not taken."""

import errno
import json
import os

import pytest

from cloc_jax.runtime import files


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
