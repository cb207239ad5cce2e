"""One writer per folder: the second is told who it is, a killed one blocks nobody."""

import errno
import fcntl
import os
import signal
import subprocess
import sys

import pytest

from cloc_jax.runtime import run_lock

HOLD = """
import pathlib, sys, time
from cloc_jax.runtime import run_lock
with run_lock.held(pathlib.Path(sys.argv[1]), "train"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_the_second_is_told_who_holds_it(tmp_path, holder):
    with pytest.raises(run_lock.InUse) as caught:
        with run_lock.held(tmp_path, "evaluate"):
            pass
    said = str(caught.value)
    assert f"process {holder.pid} on {os.uname().nodename} (train)" in said
    assert str(tmp_path) in said and "since 20" in said
    assert (tmp_path / "lock").read_text()  # the holder's facts are still there


def test_a_killed_holder_does_not_block(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / "lock").exists()  # nobody could remove it
    with run_lock.held(tmp_path, "train"):
        assert str(os.getpid()) in (tmp_path / "lock").read_text()
    assert not (tmp_path / "lock").exists()


def test_a_process_may_hold_it_twice(tmp_path):
    with run_lock.held(tmp_path, "train"):
        with run_lock.held(tmp_path, "evaluate"):
            pass
        assert (tmp_path / "lock").exists()
    assert run_lock.leftovers(tmp_path) == [] and not (tmp_path / "lock").exists()


def test_a_new_folder_goes_if_nothing_was_written(tmp_path):
    folder = tmp_path / "runs" / "new"
    with pytest.raises(ValueError), run_lock.held(folder, "train", is_new=True):
        raise ValueError("bad settings")
    assert not list(tmp_path.iterdir())
    with run_lock.held(folder, "train", is_new=True):
        (folder / "config.json").touch()
    assert [p.name for p in folder.iterdir()] == ["config.json"]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_file_systems_without_locks_lock_nothing(tmp_path, monkeypatch, number):
    def flock(file, how):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with run_lock.held(tmp_path, "train"):
        pass
    with run_lock.held(tmp_path, "train"):  # nothing was left that would block
        pass
