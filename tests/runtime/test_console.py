"""What a person sees of work that takes minutes, also in TensorBoard."""

import errno
import os
import struct
import sys

import pytest
from tensorboardX.proto import event_pb2

from cloc_jax.runtime import console
from cloc_jax.runtime.console import ScalarLog


def test_progress_is_printed_where_there_is_no_bar(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    with console.track("features", 100) as advance:
        for _ in range(10):
            now[0] += 10.0
            advance(10)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0].strip() for line in lines] == [
        "features: 30 of 100",
        "features: 60 of 100",
        "features: 90 of 100",
    ]
    assert "30 s so far, about 70 s left" in lines[0]


@pytest.mark.parametrize(
    "seconds, text", [(0.4, "0 s"), (99.0, "99 s"), (180.0, "3 min"), (9000.0, "2.5 h")]
)
def test_times_are_in_the_unit_that_reads_best(seconds, text):
    assert console.duration(seconds) == text


def events(folder):
    """The events of all files of a folder; records have a length and two checksums."""
    found = []
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            found.append(event_pb2.Event.FromString(data[12 : 12 + length]))
            data = data[12 + length + 4 :]
    return found


def test_nothing_is_written_without_the_library(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)  # it cannot be imported
    with ScalarLog(tmp_path / "tb", 1) as log:
        log.write({"val/mae": 0.5}, 1)
    assert not (tmp_path / "tb").exists()


def test_values_come_back_by_name_and_step(tmp_path):
    with ScalarLog(tmp_path / "tb", 5) as log:
        log.write({"val/mae": 0.5, "margins/0|1": 2.0}, 7)
        log.write({"val/mae": 0.25}, 9)
        before_close = len(events(tmp_path / "tb"))
    found = events(tmp_path / "tb")
    assert len(found) == before_close == 5  # nothing waits in a queue
    assert found[0].file_version == "brain.Event:2"
    # TensorBoard hides what an earlier file has from here on.
    assert found[1].session_log.status == 1 and found[1].step == 5
    values = [(e.step, v.tag, v.simple_value) for e in found for v in e.summary.value]
    assert [(s, v) for s, _, v in values] == [(7, 0.5), (7, 2.0), (9, 0.25)]
    assert values[0][1] == "val/mae" and values[1][1].startswith("margins/0")


def test_a_full_disk_is_raised_and_names_the_folder(tmp_path, monkeypatch):
    def fsync(number):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    log = ScalarLog(tmp_path / "tb", 0)
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError) as caught:
        log.write({"a": 1.0}, 1)
    assert caught.value.filename == str(tmp_path / "tb")
