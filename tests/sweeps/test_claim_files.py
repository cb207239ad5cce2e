"""Claims: one owner at a time, and none that is dead."""

import concurrent.futures
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from cloc_jax.sweeps.engines import claim_files
from cloc_jax.sweeps.engines.claim_files import Claims

HOLD = """
import pathlib, sys, time
from cloc_jax.sweeps.engines.claim_files import Claims
with Claims(pathlib.Path(sys.argv[1])) as claims:
    print(claims.take("run"), flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that has the claim."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "True\n"
    yield process
    process.kill()
    process.wait()


def test_one_of_many_gets_it(tmp_path):
    barrier = threading.Barrier(8)

    def take(_):
        with Claims(tmp_path) as claims:
            barrier.wait()
            is_taken = claims.take("run")
            barrier.wait()  # nobody gives it back before all have tried
            return is_taken

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(take, range(8)))
    assert sorted(taken) == [False] * 7 + [True]
    assert not any((tmp_path / claim_files.FOLDER).iterdir())  # all are given back


def test_a_living_owner_keeps_it_and_a_dead_one_loses_it(tmp_path, holder):
    with Claims(tmp_path) as claims:
        assert not claims.take("run")
        assert claim_files.owner(tmp_path, "run").startswith(f"process {holder.pid} ")
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        started = time.monotonic()
        assert claims.take("run")
        assert time.monotonic() - started < 30  # nobody waits for a claim to grow old
        about = json.loads((tmp_path / claim_files.FOLDER / "run").read_text())
        assert about["pid"] == os.getpid()


def test_an_owner_elsewhere_is_dead_when_its_claim_no_longer_changes(tmp_path):
    place = tmp_path / claim_files.FOLDER
    place.mkdir()
    elsewhere = claim_files._myself() | {"host": "another", "token": "1"}
    (place / "run").write_text(json.dumps(elsewhere))
    assert claim_files.is_dead(place / "run") is None
    with Claims(tmp_path) as claims:
        beats = threading.Event()

        def beat():
            while not beats.wait(0.05):
                os.utime(place / "run")

        owner = threading.Thread(target=beat)
        owner.start()
        assert not claims.take("run", patience=1.5)  # it was seen to be touched
        beats.set()
        owner.join()
        assert claims.take("run", patience=0.2)


def test_a_pid_that_was_given_away_is_not_its_owner(tmp_path):
    place = tmp_path / claim_files.FOLDER
    place.mkdir()
    before = claim_files._myself() | {"started": "1", "token": "1"}
    (place / "run").write_text(json.dumps(before))
    assert claim_files.is_dead(place / "run") is True


def test_a_claim_that_was_taken_over_is_neither_touched_nor_released(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(claim_files, "BEAT_SECONDS", 0.02)
    path = tmp_path / claim_files.FOLDER / "run"
    with Claims(tmp_path) as claims:
        assert claims.take("run")
        path.write_text("of another")
        os.utime(path, (1, 1))
        time.sleep(0.2)
        assert path.stat().st_mtime == 1
    assert path.read_text() == "of another"


def test_a_disk_that_fails_once_does_not_end_the_beat(tmp_path, monkeypatch):
    monkeypatch.setattr(claim_files, "BEAT_SECONDS", 0.02)
    touch, failed = os.utime, []

    def stale(path, *times):
        if not failed:
            failed.append(path)
            raise OSError(errno.ESTALE, "stale file handle")
        touch(path, *times)

    with Claims(tmp_path) as claims:
        assert claims.take("run")
        path = tmp_path / claim_files.FOLDER / "run"
        touch(path, (1, 1))
        monkeypatch.setattr(claim_files.os, "utime", stale)
        end = time.monotonic() + 20
        while path.stat().st_mtime == 1 and time.monotonic() < end:
            time.sleep(0.02)
        assert failed and path.stat().st_mtime > 1


def test_where_the_system_does_not_say_who_lives_the_age_tells(tmp_path, monkeypatch):
    monkeypatch.setattr(claim_files, "_read", lambda path: "")
    with Claims(tmp_path) as first:
        assert first.take("run")
        assert claim_files.is_dead(tmp_path / claim_files.FOLDER / "run") is None
        with Claims(tmp_path) as second:
            assert second.take("run", patience=0.1)


def test_a_disk_without_links(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(claim_files.os, "link", refuse)
    with Claims(tmp_path) as first, Claims(tmp_path) as second:
        assert first.take("run") and not second.take("run")
    assert not any((tmp_path / claim_files.FOLDER).iterdir())


def test_those_that_are_free_are_claimed(tmp_path, holder):
    with claim_files.claimed(tmp_path, ["run", "other"]) as mine:
        assert mine == ["other"]
    assert claim_files.owner(tmp_path, "other") == ""
