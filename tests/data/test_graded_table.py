"""Own images graded in a table: columns, labels, splits, and every refusal."""

import pytest
from miniatures import picture, write

from cloc_jax.data.layouts import graded_table, tables

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
    return graded_table.scan(root, csv=csv, columns=columns or {}, **options)


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
    with pytest.raises(ValueError, match="no column for the path; it has scan, KL"):
        scan(tmp_path)
    with pytest.raises(ValueError, match="no column grade; it has scan, KL"):
        scan(tmp_path, columns=given | {"label": "grade"})
    with pytest.raises(ValueError, match="one column was taken twice"):
        scan(tmp_path, columns=given | {"split": "KL"})


def test_where_the_table_and_its_root_are(tmp_path, monkeypatch):
    root = make(tmp_path / "images")
    listing = scan(root)
    # Its own folder is the root where none is given.
    assert scan("", csv=str(root / "grades.csv")) == listing
    # A table elsewhere, by a path from here.
    elsewhere = tmp_path / "tables"
    elsewhere.mkdir()
    (root / "grades.csv").rename(elsewhere / "grades.csv")
    monkeypatch.chdir(tmp_path)
    assert facts(scan("images", csv="tables/grades.csv")) == sorted(ROWS)
    with pytest.raises(FileNotFoundError, match="there is no table images/gone.csv"):
        scan("images", csv="gone.csv")
    with pytest.raises(FileNotFoundError, match="the folder the table's paths"):
        scan("nowhere", csv="tables/grades.csv")


def test_without_split_and_group(tmp_path):
    rows = [(f"{who}_{i}.png", str(i)) for who in ("p1", "p2") for i in range(3)]
    listing = scan(make(tmp_path, rows, header="file,rank"), group_pattern=r"^(p\d)")
    assert {item.split for item in listing.items} == {None}
    assert {item.group for item in listing.items} == {"p1", "p2"}


def test_named_labels_need_an_order(tmp_path):
    rows = [("1.png", "mild"), ("2.png", "severe"), ("3.png", "none")]
    make(tmp_path, rows, header="path,label")
    order = ("none", "mild", "severe")
    assert scan(tmp_path, order=order).ranks == order
    with pytest.raises(ValueError, match="the order of the rank labels .* is unknown"):
        scan(tmp_path)
    with pytest.raises(ValueError, match="does not: 'severe' in line 3"):
        scan(tmp_path, order=("none", "mild"))
    with pytest.raises(ValueError, match="there is no label worst"):
        scan(tmp_path, order=(*order, "worst"))


def test_numbers_of_spreadsheets_and_labels_in_another_case(tmp_path):
    rows = [("1.png", "0.0"), ("2.png", "2.0"), ("3.png", "10.00"), ("4.png", "1.5")]
    listing = scan(make(tmp_path, rows, header="path,label"))
    assert listing.ranks == ("0", "1.5", "2", "10")
    rows = [("1.png", "Mild"), ("2.png", "mild"), ("3.png", "severe")]
    make(tmp_path, rows, header="path,label")
    with pytest.raises(ValueError, match="differ in case only: Mild, mild"):
        scan(tmp_path, order=("Mild", "mild", "severe"))


@pytest.mark.parametrize(
    "path", ["../x.png", "a/../../x.png", "/etc/x.png", "..\\x.png"]
)
def test_a_path_that_leaves_the_root(tmp_path, path):
    root = make(tmp_path / "in")
    text = (root / "grades.csv").read_text()
    write(root / "grades.csv", f"{text}{path},1,test,zoe\n")
    with pytest.raises(ValueError, match=r"line 7: .* leaves data.root=.*in;"):
        scan(root)


def test_paths_within_the_root_may_be_written_in_many_ways(tmp_path):
    rows = [
        ("a/../a/1.png", "0"),
        (str(tmp_path / "b" / "2.png"), "1"),
        (r"c\3.png", "2"),
        ("d/4", "2"),
    ]
    for name in ("a/1.png", "b/2.png", "c/3.png", "d/4.jpg"):
        picture(tmp_path / name)
    write(tmp_path / "grades.csv", "\n".join(["path,label", *map(",".join, rows)]))
    ids = [item.id for item in scan(tmp_path).items]
    assert ids == ["a/1.png", "b/2.png", "c/3.png", "d/4.jpg"]


def test_rows_that_are_skipped_and_rows_that_clash(tmp_path):
    root = make(tmp_path)
    text = (root / "grades.csv").read_text()
    again = "a/1.png,0,train,ann\n" + "6.png,,train,ann\n" + ",,,\n"
    write(root / "grades.csv", text + again)
    listing = scan(root)
    assert facts(listing) == sorted(ROWS)
    assert sorted(listing.skipped) == [
        ("6.png", "images without a label in the table"),
        ("a/1.png", "lines that name an image again"),
    ]
    write(root / "grades.csv", text + "a/1.png,2,train,ann\n")
    with pytest.raises(ValueError, match="line 7: a/1.png has the label 2 here and 0"):
        scan(root)
    write(root / "grades.csv", text + ",2,train,ann\n")
    with pytest.raises(ValueError, match="line 7 names no file"):
        scan(root)


def test_splits_are_known_and_complete(tmp_path):
    root = make(tmp_path)
    text = (root / "grades.csv").read_text()
    write(root / "grades.csv", text.replace("val", "Validation").replace("test", "dev"))
    assert {item.split for item in scan(root).items} == {"train", "val"}
    write(root / "grades.csv", text.replace("val", "holdout"))
    with pytest.raises(ValueError, match="line 4: the split is 'holdout'; use train"):
        scan(root)
    write(root / "grades.csv", text.replace("val", ""))
    with pytest.raises(ValueError, match="split for 4 of 5 images.*such as b/3.png"):
        scan(root)


def test_what_is_no_table(tmp_path):
    make(tmp_path)
    write(tmp_path / "grades.csv", "path,label\n")
    with pytest.raises(ValueError, match="names no graded images"):
        scan(tmp_path)
    write(tmp_path / "grades.csv", " \n\n")
    with pytest.raises(ValueError, match="grades.csv is empty"):
        scan(tmp_path)
    (tmp_path / "grades.csv").write_bytes(b"path,label\n\xff\xfe\x00,1\n")
    with pytest.raises(ValueError, match="not a text file in UTF-8; save"):
        scan(tmp_path)
    with pytest.raises(ValueError, match="cannot be read as a table"):
        scan(tmp_path, csv="a")


def test_a_table_with_a_mark_quotes_and_short_rows(tmp_path):
    text = 'path , label,note\n"one, two.png", 3,"a ""b"""\nx.png,4\n\n'
    write(tmp_path / "t.csv", text, encoding="utf-8-sig")
    read = tables.read_table(tmp_path / "t.csv")
    assert read.header == ["path", "label", "note"]
    assert read.rows == [["one, two.png", "3", 'a "b"'], ["x.png", "4", ""]]
    assert [row.line for row in read.rows] == [2, 3]
