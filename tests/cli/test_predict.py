"""`predict` on odd files: each has its row, and the others are graded."""

import csv
import errno
import os
import pathlib

import miniatures
import numpy as np
import pytest

from cloc_jax.cli import predict
from cloc_jax.methods import Prediction
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.training.trained_run import TrainedRun
from configs import folder as folder_config

ESCAPE = "\x1b]0;owned\x07.png"  # sets a terminal's title


class Stub(TrainedRun):
    """A trained run that finds every image of rank b."""

    def __init__(self, config, folder):
        self.config, self.ranks = config, ["a", "b"]

    def prepared(self, images, *, batch_size):
        return images

    def predict(self, source, *, batch_size):
        chances = np.tile(np.float32([0.25, 0.75]), (len(source), 1))
        ones = np.ones(len(source), np.int32)
        return Prediction(label=ones, probabilities=chances)


@pytest.fixture
def grade(monkeypatch):
    monkeypatch.setattr(predict, "TrainedRun", Stub)
    config = folder_config.get_config()
    config.data.size = (16, 16)
    config.train.eval_batch_size = 3

    def run(place, *paths):
        (place / "run").mkdir(exist_ok=True)
        output = place / "out.csv"
        output.unlink(missing_ok=True)
        folder = RunFolder(place / "run")
        failed = predict.predict(config, folder, [str(p) for p in paths], str(output))
        with output.open(encoding="utf-8", errors="surrogateescape") as file:
            rows = {row["file"]: row for row in csv.DictReader(file)}
        return failed, rows

    run.config = config
    return run


@pytest.mark.parametrize("output", ["", "out.csv"])
def test_a_table_that_another_wrote_meanwhile_is_left_alone(
    grade, tmp_path, monkeypatch, output
):
    place = tmp_path / "run"
    other = place / (output or "predicted.csv")
    first = Stub.predict

    def predict_late(*arguments, **options):
        other.write_text("of another")
        return first(*arguments, **options)

    monkeypatch.setattr(Stub, "predict", predict_late)
    place.mkdir()
    given = str(other) if output else ""
    arguments = (grade.config, RunFolder(place), [str(images(tmp_path, 2))], given)
    if output:
        with pytest.raises(FileExistsError, match="out.csv exists already"):
            predict.predict(*arguments)
    else:
        assert predict.predict(*arguments) == 0
        assert "1.png,b," in (place / "predicted-2.csv").read_text()
    assert other.read_text() == "of another"


def images(place, count=5):
    for i in range(count):
        miniatures.picture(place / "images" / f"{i}.png", i)
    return place / "images"


def reasons(rows):
    """The rows that failed; all others have a rank."""
    for row in rows.values():
        assert bool(row["error"]) != (row["predicted"] == "b")
    return {name: row["error"] for name, row in rows.items() if row["error"]}


def test_links_pipes_devices_and_folders(grade, tmp_path):
    place = images(tmp_path)
    (place / "link.png").symlink_to(tmp_path / "nowhere.png")
    (place / "loop.png").symlink_to(place / "loop.png")
    (place / "zero.png").symlink_to("/dev/zero")
    os.mkfifo(place / "pipe.png")
    (place / "below.png").mkdir()
    miniatures.picture(place / "below.png" / "deep.png")
    (place / ".hidden").mkdir()
    miniatures.picture(place / ".hidden" / "no.png")
    with (place / "huge.png").open("wb") as file:
        file.truncate(513 << 20)  # sparse: takes no room
    failed, rows = grade(tmp_path, place)
    assert failed == 5 and len(rows) == 11
    found = reasons(rows)
    assert "No such file" in found[str(place / "link.png")]
    assert "symbolic links" in found[str(place / "loop.png")]
    assert "a device" in found[str(place / "zero.png")]
    assert "named pipe" in found[str(place / "pipe.png")]
    assert "513 MiB, more than the limit of 512" in found[str(place / "huge.png")]
    # Named on the command line, as a shell's * does.
    failed, rows = grade(tmp_path, place / "link.png", place / "0.png")
    assert failed == 1 and len(rows) == 2
    with pytest.raises(FileNotFoundError, match="there is no file .*typo"):
        grade(tmp_path, place / "0.png", place / "typo.png")


def test_a_folder_that_cannot_be_listed_is_not_passed_over(
    grade, tmp_path, monkeypatch
):
    place, listdir = images(tmp_path), os.listdir
    (place / "closed").mkdir()

    def refuse(path):  # as permissions would, which bind no root
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(PermissionError, match="closed"):
        grade(tmp_path, place)


def test_a_name_that_is_empty_or_a_formula(grade, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    miniatures.picture(tmp_path / "=A1.png")
    with pytest.raises(ValueError, match="got an empty name; name files or folders"):
        grade(tmp_path, tmp_path / "=A1.png", "")
    failed, rows = grade(tmp_path, "=A1.png")
    assert not failed and list(rows) == ["'=A1.png"]


def test_names_that_are_no_text_keep_their_bytes(
    grade, tmp_path, monkeypatch, capfdbinary
):
    monkeypatch.chdir(tmp_path)  # short names, which are not folded
    place = images(pathlib.Path("."), 2)
    os.rename(os.fsencode(place / "0.png"), os.fsencode(place) + b"/caf\xe9.png")
    (place / "1.png").rename(place / ESCAPE)
    (place / "line\nbreak.png").write_text("no image")
    failed, rows = grade(pathlib.Path("."), place)
    assert failed == 1 and len(rows) == 3
    written = (tmp_path / "out.csv").read_bytes()
    assert b"caf\xe9.png" in written and ESCAPE.encode() in written
    printed = capfdbinary.readouterr().out
    assert b"caf\\xe9.png" in printed and b"\xe9" not in printed
    assert b"\\x1b]0;owned\\x07.png" in printed
    assert b"\x1b" not in printed and b"\x07" not in printed


def test_a_full_disk_leaves_no_table(grade, tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    place = images(tmp_path, 2)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as error:
        grade(tmp_path, place)
    assert error.value.filename == str(tmp_path / "out.csv")
    assert not list(tmp_path.glob("out.csv*"))
