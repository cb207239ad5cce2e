"""Own images graded in a table: columns, labels, splits, and every refusal."""

import csv

import pytest
from miniatures import picture, write

from cloc_jax.data.layouts import tables

ROWS = [
    ("a/1.png", "0", "train", "ann"),
    ("a/2.png", "1", "train", "ann"),
    ("b/3.png", "2", "val", "bob"),
    ("b/4.png", "0", "test", "cid"),
    ("5.png", "1", "test", "dee"),
]


def make(root, rows=ROWS, header="path,label,split,group", separator=","):
    for i, row in enumerate(rows):
        picture(root / row[0], i)
    lines = [header.replace(",", separator), *(separator.join(row) for row in rows)]
    write(root / "grades.csv", "\n".join(lines) + "\n")
    return root


def scan(root, *, csv="grades.csv", columns=None, **options):
    return tables.scan(root, csv=str(csv), columns=columns or {}, **options)


def facts(listing):
    return [
        (item.id, listing.ranks[item.label], item.split, item.group)
        for item in listing.items
    ]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_path_label_split_and_group(tmp_path, separator):
    listing = scan(make(tmp_path, separator=separator))
    assert listing.ranks == ("0", "1", "2")
    assert facts(listing) == sorted(ROWS)
    assert all(item.path == tmp_path / item.id for item in listing.items)
    note = "grades.csv: path from 'path', label from 'label', split from 'split', group"
    assert listing.notes[0].startswith(note)


def test_usual_names_and_given_ones(tmp_path):
    usual = scan(make(tmp_path, header="Image,Grade,Set,Patient_ID"))
    assert facts(usual) == sorted(ROWS)
    make(tmp_path, header="scan,KL,fold name,who")
    given = {"path": "scan", "label": "kl", "split": "fold name", "group": "who"}
    assert facts(scan(tmp_path, columns=given)) == sorted(ROWS)
    with pytest.raises(ValueError, match="no column for the path; it has scan, kl"):
        scan(tmp_path)
    with pytest.raises(ValueError, match="no column grade; it has scan, kl"):
        scan(tmp_path, columns=given | {"label": "grade"})


def test_where_the_table_and_its_root_are(tmp_path, monkeypatch):
    root = make(tmp_path / "images")
    listing = scan(root)
    # Its own folder is the root where none is given.
    assert scan("", csv=root / "grades.csv") == listing
    # A table elsewhere, by a path from here.
    elsewhere = tmp_path / "tables"
    elsewhere.mkdir()
    (root / "grades.csv").rename(elsewhere / "grades.csv")
    monkeypatch.chdir(tmp_path)
    assert facts(scan("images", csv="tables/grades.csv")) == sorted(ROWS)
    with pytest.raises(FileNotFoundError, match="images/gone.csv"):
        scan("images", csv="gone.csv")
    with pytest.raises(ValueError, match="the folder the table's paths"):
        scan("nowhere", csv="tables/grades.csv")


def test_without_split_and_group(tmp_path):
    rows = [(f"{who}_{i}.png", str(i)) for who in ("p1", "p2") for i in range(3)]
    listing = scan(make(tmp_path, rows, header="file,rank"), group_pattern=r"^(p\d)")
    assert {item.split for item in listing.items} == {None}
    assert {item.group for item in listing.items} == {"p1", "p2"}


def test_labels_by_name_by_number_and_missing(tmp_path):
    rows = [("1.png", "mild"), ("2.png", "severe"), ("3.png", "none")]
    make(tmp_path, rows, header="path,label")
    order = ("none", "mild", "severe")
    assert scan(tmp_path, order=order).ranks == order
    # Spreadsheets add decimals, and write NaN where there is no value.
    rows = [("1.png", "0.0"), ("2.png", "2.0"), ("3.png", "10.00"), ("4.png", "-1.5")]
    make(tmp_path, [*rows, ("5.png", "NaN")], header="path,label")
    listing = scan(tmp_path)
    assert listing.ranks == ("-1.5", "0", "2", "10")
    assert listing.skipped == [("5.png", "without a label in the table")]
    named = ("-1.5", "NaN", "0", "2", "10")
    assert scan(tmp_path, order=named).ranks == named


def test_paths_within_the_root_may_be_written_in_many_ways(tmp_path, monkeypatch):
    rows = [
        ("a/../a/1.png", "0"),
        (str(tmp_path / "b" / "2.png"), "1"),
        (r"c\3.png", "2"),
        ("d/4", "2"),
    ]
    for name in ("a/1.png", "b/2.png", "c/3.png", "d/4.jpg"):
        picture(tmp_path / name)
    write(tmp_path / "grades.csv", "\n".join(["path,label", *map(",".join, rows)]))
    wanted = ["a/1.png", "b/2.png", "c/3.png", "d/4.jpg"]
    monkeypatch.chdir(tmp_path.parent)
    for root in (tmp_path, tmp_path.name):
        assert [item.id for item in scan(root).items] == wanted


def test_splits_have_several_names_and_rows_may_be_there_twice(tmp_path):
    root = make(tmp_path)
    text = (root / "grades.csv").read_text()
    write(root / "grades.csv", text.replace("val", "Validation").replace("test", "VAL"))
    assert {item.split for item in scan(root).items} == {"train", "val"}
    again = "a/1.png,0,train,ann\n" + "6.png,,train,ann\n" + ",,,\n"
    write(root / "grades.csv", text + again)
    listing = scan(root)
    assert facts(listing) == sorted(ROWS)
    assert listing.skipped == [("6.png", "without a label in the table")]


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda text: text + "../x.png,1,test,zoe\n", "line 7: .* not a file below"),
        (lambda text: text + "..\\x.png,1,test,zoe\n", "line 7: .* not a file below"),
        (lambda text: text + "a/1.png,2,train,ann\n", "line 7: .* label 2 here and 0"),
        (lambda text: text.replace("val", "hold"), "line 4: the split is 'hold'; use"),
        (lambda text: text.replace("0", "low"), "the order of the rank labels .* is"),
        (lambda text: "path,label\n", "names no graded images"),
        (lambda text: b"path,label\n\xff\xfe,1\n", "not a text file in UTF-8; save"),
        (lambda text: "path,label,Label\n5.png,0,1\n", "has 2 columns label; it has"),
        (lambda text: "path,label\na/1.png,0,5\n", "line 2 to 2: 3 cells, where 2 on"),
        (lambda text: text + "6.png,1\n", "line 7 to 7: 2 cells, where 4 on"),
        (
            lambda text: text + 'a/1.png,"0\nb.png",1,\n',
            "line 7 to 8: 4 cells",
        ),
        # Of short rows that quotes join there is one with a cell per column.
        (
            lambda text: 'path,label,note\n5.png,"0\nb/3.png",1\na/1.png,1,\n',
            "line 2 to 3: 3 cells, where 3 on a line are needed",
        ),
        (
            lambda text: 'path,label,note\n5.png,0,"\nb/3.png,1,\na/1.png,2,"\n',
            "line 2 to 4: 3 cells, where 3 on a line are needed",
        ),
    ],
)
def test_refusals(tmp_path, change, message):
    root = make(tmp_path / "in")
    text = change((root / "grades.csv").read_text())
    (root / "grades.csv").write_bytes(
        text if isinstance(text, bytes) else text.encode()
    )
    with pytest.raises(ValueError, match=message):
        scan(root)


# --- reading tables ---


def lines(count, first=0):
    return "".join(f"{i}.png,{i % 3}\n" for i in range(first, first + count))


@pytest.mark.parametrize(
    "text, line",
    [
        # An opening quote alone swallows the rest of the file.
        (lines(30) + '"30.png,0\n' + lines(29, 31), 32),
        ('"a"b.png,0\n', 2),
        (lines(2) + f"{'a' * 200_000}.png,0\n", 4),
    ],
)
def test_damaged_tables_are_refused_with_the_line(tmp_path, text, line):
    write(tmp_path / "grades.csv", "path,label\n" + text)
    with pytest.raises(ValueError, match=f"grades.csv line {line}: .*a quote"):
        tables.read_table(tmp_path / "grades.csv")


def test_blanks_are_part_of_paths_and_of_ranks_that_are_named_so(tmp_path):
    picture(tmp_path / "x0.png")
    for name in (" x0.png", "x0.png "):
        (tmp_path / name).write_bytes((tmp_path / "x0.png").read_bytes())
    text = 'path,label, split\n" x0.png"," low", train\nx0.png ,high ,\n'
    write(tmp_path / "grades.csv", text)
    listing = scan(tmp_path, order=(" low", "high"))
    assert facts(listing) == [
        (" x0.png", " low", "train", None),
        ("x0.png ", "high", None, None),
    ]
    assert all(item.path.is_file() for item in listing.items)


def test_quotes_that_are_right(tmp_path):
    written = [
        ["path", "label", "remark"],
        ["a, b.png", "0", 'says "no"'],
        ["c.png", "1", "a, comma"],
        ["line\u2028separator.png", "2", ""],
        ['5" scan.png', "0", ""],
    ]
    path = tmp_path / "grades.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(written)
    table = tables.read_table(path)
    assert table.columns == written[0]
    assert [list(cells.values()) for _, cells in table.rows] == written[1:]
    assert [int(place.split()[-1]) for place, _ in table.rows] == [2, 3, 4, 5]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_marks_and_blank_rows(tmp_path, end):
    path = tmp_path / "grades.csv"
    text = end.join(["path , label,note", '"a, b.png", 1,', "", ",,", "c.png,2,x", ""])
    path.write_text(text, encoding="utf-8-sig", newline="")
    table = tables.read_table(path)
    assert table.rows == [
        (f"{path} line 2", {"path": "a, b.png", "label": " 1", "note": ""}),
        (f"{path} line 5", {"path": "c.png", "label": "2", "note": "x"}),
    ]
