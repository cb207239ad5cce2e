"""Files: whole or not there, every flipped bit noticed, values as annotated."""

import dataclasses
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


@pytest.mark.parametrize(
    "cell, is_marked",
    [
        *(
            (text, True)
            for text in ("=1+1", "+a", "@x", "-x.png", "-1+2", "\t=1", "'a")
        ),
        *((text, False) for text in ("-1", "+0.5", "-1.2e-05", "", "a=1", "1-2", "ü")),
        (-1.5, False),
    ],
)
def test_no_cell_of_a_table_is_a_formula(tmp_path, cell, is_marked):
    path = tmp_path / "a.csv"
    files.write_csv(path, [["item", "value"], [cell, "1"]])
    written = path.read_text().splitlines()[1]
    assert written == f"{chr(39) * is_marked}{cell},1"
    assert list(files.read_csv(path)) == [{"item": str(cell), "value": "1"}]


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
        (b'{"a": 1}', "does not match its checksum"),
        (b"[" * 100_000, "it is not valid JSON"),
    ],
)
def test_damage_is_named_with_the_file_and_the_way_out(tmp_path, text, problem):
    path = tmp_path / "config.json"
    path.write_bytes(text)
    with pytest.raises(Damaged, match=problem) as caught:
        read(path)
    assert str(path) in str(caught.value) and "Put back a copy." in str(caught.value)


@pytest.mark.parametrize(
    "fields, owner, problem",
    [
        ({"ranks": list[str], "sha256": str}, None, "it lacks sha256"),
        ({"ranks": list[int]}, None, r"ranks\[0\] is '0', not int"),
        ({"score": float, "deep": dict[str, list[int]]}, "mine", ""),
        ({}, "other", "it is of another run"),
        ({}, "", "it is of another run"),
    ],
)
def test_files_must_have_their_fields_and_owner(tmp_path, fields, owner, problem):
    path = tmp_path / "a.json"
    files.write_sealed(path, VALUE, "mine")
    assert files.owner_of(path) == "mine"
    if not problem:
        assert files.read_sealed(path, remedy="", fields=fields, owner=owner) == VALUE
        return
    with pytest.raises(Damaged, match=problem):
        files.read_sealed(path, remedy="", fields=fields, owner=owner)


def test_of_several_writers_of_a_new_file_one_wins(tmp_path):
    path = tmp_path / "a"
    with pytest.raises(OSError, match="full"), files.claimed(path):
        raise OSError("full")
    with files.claimed(path):
        files.write_bytes(path, b"first")
    with pytest.raises(FileExistsError), files.claimed(path):
        pass
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"first"]


def test_a_pipe_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "a.json")
    for read_it in (read, lambda path: files.read_arrays(path, remedy="")):
        with pytest.raises(files.NotRegularError, match="a named pipe"):
            read_it(tmp_path / "a.json")


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


@dataclasses.dataclass(frozen=True)
class Inner:
    share: float | None
    names: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Outer:
    count: int
    inner: dict[str, Inner]
    rows: list[list[int]]
    note: str = ""


TYPED = Outer(3, {"1|2": Inner(0.5, ("a", "b")), "2|3": Inner(None)}, [[1, 2], []])


def test_dataclasses_come_back():
    plain = files.to_plain(TYPED)
    assert plain["inner"]["1|2"] == {"share": 0.5, "names": ["a", "b"]}
    assert files.from_plain(Outer, plain) == TYPED


def test_whole_numbers_are_floats_and_more_is_ignored():
    plain = {"count": 1, "inner": {"x": {"share": 1}}, "rows": [], "more": 2}
    assert files.from_plain(Outer, plain).inner["x"].share == 1


@pytest.mark.parametrize(
    "change, message",
    [
        ({"count": True}, "count is True, not int"),
        ({"inner": {"1|2": {"share": "0.5"}}}, r"inner.1\|2.share is '0.5', not float"),
        ({"inner": {"1|2": {}}}, r"inner.1\|2.share is missing"),
        ({"inner": []}, "inner is \\[\\], not an object"),
        ({"rows": [[1, None]]}, r"rows\[0\]\[1\] is None, not int"),
    ],
)
def test_what_is_not_as_annotated_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        files.from_plain(Outer, files.to_plain(TYPED) | change)
