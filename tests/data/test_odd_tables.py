"""Tables that are damaged, and labels and paths that are easily misread."""

import csv
import os

import pytest
from miniatures import picture, write

from cloc_jax.data.layouts import graded_table, rank_folders, tables


def table(path, text):
    write(path / "grades.csv", text)
    return path / "grades.csv"


def rows(count, first=0):
    return "".join(f"{i}.png,{i % 3}\n" for i in range(first, first + count))


@pytest.mark.parametrize(
    "text, message",
    [
        # An opening quote alone swallows the rest of the file.
        (rows(30) + '"30.png,0\n' + rows(29, 31), "line 32: a quote"),
        (rows(30) + '30.png,"0\n' + rows(29, 31), "line 32: a quote"),
        # Two of them swallow what is between.
        (rows(3) + '"3.png,0\n' + rows(5, 4) + '9.png",0\n', "line 5: a quoted cell"),
        (rows(3) + '3.png,"0\n' + rows(5, 4) + '9.png,0"\n', "line 5: a quoted cell"),
        ('"a"b.png,0\n', "line 2: a quote"),
        (rows(2) + "a\0.png,0\n", "line 4 has a NUL byte"),
        (rows(2) + f"{'a' * 200_000}.png,0\n", "line 4: a cell has more than 131,072"),
    ],
)
def test_damaged_tables_are_refused_with_the_line(tmp_path, text, message):
    path = table(tmp_path, "path,label\n" + text)
    with pytest.raises(ValueError, match=f"grades.csv {message}"):
        tables.read_table(path)


def test_quotes_that_are_right(tmp_path):
    written = [
        ["path", "label", "remark"],
        ["a, b.png", "0", 'says "no"'],
        ["c.png", "1", "two\nlines, of text"],
        ["line\u2028separator.png", "2", ""],
        ['5" scan.png', "0", ""],
    ]
    path = tmp_path / "grades.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(written)
    found = tables.read_table(path)
    assert found.header == written[0]
    assert [list(row) for row in found.rows] == written[1:]
    assert [row.line for row in found.rows] == [2, 3, 5, 6]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends(tmp_path, end):
    path = tmp_path / "grades.csv"
    path.write_bytes(end.join(["path,label", "a.png,1", "", "b.png,2"]).encode())
    found = tables.read_table(path)
    assert [(list(row), row.line) for row in found.rows] == [
        (["a.png", "1"], 2),
        (["b.png", "2"], 4),
    ]


def test_only_regular_files_of_some_size(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(ValueError, match="cannot be read as a table: .*named pipe"):
        tables.read_table(tmp_path / "pipe.csv")
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    with pytest.raises(ValueError, match="cannot be read as a table: .*a device"):
        tables.read_table(tmp_path / "zero.csv")
    path = table(tmp_path, "path,label\n" + rows(9))
    with pytest.raises(ValueError, match="more than the limit.*data.max_file_mib"):
        tables.read_table(path, max_bytes=20)
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    for name in ("loop.csv", "pipe.csv"):
        with pytest.raises((ValueError, OSError), match=name):
            graded_table.scan(tmp_path, csv=name, columns={})


def test_absolute_paths_below_a_relative_root(tmp_path, monkeypatch):
    images = tmp_path / "images"
    for i in range(2):
        picture(images / f"{i}.png", i)
    text = "".join(f"{images / f'{i}.png'},{i}\n" for i in range(2))
    path = table(tmp_path, "path,label\n" + text)
    monkeypatch.chdir(tmp_path)
    found = graded_table.scan("images", csv=str(path), columns={})
    assert [item.id for item in found.items] == ["0.png", "1.png"]
    # Also where the root is a link that the table does not go by.
    (tmp_path / "link").symlink_to(images)
    found = graded_table.scan("link", csv=str(path), columns={})
    assert [item.id for item in found.items] == ["0.png", "1.png"]
    with pytest.raises(ValueError, match="leaves data.root=images/none"):
        (images / "none").mkdir()
        graded_table.scan("images/none", csv=str(path), columns={})


@pytest.mark.parametrize(
    "names, order",
    [
        (["2", "1e1", "1"], ("1", "2", "1e1")),
        (["0", "-1", "1"], ("-1", "0", "1")),
        (["+1", "-0.5", "2e-1"], ("-0.5", "2e-1", "+1")),
        (["1early", "2late"], ("1early", "2late")),
        (["10_b", "9_a"], ("9_a", "10_b")),
    ],
)
def test_labels_by_their_numbers(names, order):
    assert rank_folders.order_ranks(names, (), what="label", where="x")[0] == order


@pytest.mark.parametrize(
    "names, absent",
    [
        (["0", "2", "5"], "1, 3, 4"),
        # Every number between would be a list of a billion.
        (["1", "1000000000"], "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, … 999999999"),
        (["0", "9" * 30], None),
    ],
)
def test_numbers_that_are_missing(names, absent):
    _, notes = rank_folders.order_ranks(names, (), what="label", where="x")
    said = [note for note in notes if note.startswith("No label is called")]
    assert len(said) == (absent is not None)
    assert absent is None or f"called {absent};" in said[0]


@pytest.mark.parametrize(
    "names, message",
    [
        (["0", "nan", "1"], "the label nan, which means that there is no value"),
        (["0", "1e999"], "do not all start with a finite number"),
        (["0", "\x1b[31m"], "control characters"),
        (["0", os.fsdecode(b"\xe9")], "not UTF-8"),
        (["a", "b"], r"data.order=\('a', 'b'\)"),
    ],
)
def test_names_that_are_no_ranks(names, message):
    with pytest.raises(ValueError, match=message) as caught:
        rank_folders.order_ranks(names, (), what="label", where="x")
    if "nan" in names:
        assert "data.order=(" not in str(caught.value)


def test_missing_labels_are_no_rank(tmp_path):
    for i in range(4):
        picture(tmp_path / f"{i}.png", i)
    path = table(tmp_path, "path,label\n0.png,-1.0\n1.png,0\n2.png,NaN\n3.png,\n")
    found = graded_table.scan(tmp_path, csv=str(path), columns={})
    assert found.ranks == ("-1", "0") and len(found.items) == 2
    why = "images without a label in the table"
    assert found.skipped == [("2.png", why), ("3.png", why)]
    named = graded_table.scan(
        tmp_path, csv=str(path), columns={}, order=("-1", "NaN", "0")
    )
    assert named.ranks == ("-1", "NaN", "0")
