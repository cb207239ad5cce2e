"""A worker process: what it leaves alone, how it is stopped, and what it says."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest
from launching import ROOT
from ml_collections import ConfigDict

from cloc_jax.runtime import environment, files
from cloc_jax.sweeps.engines import claim_files, slurm, task_files, worker
from cloc_jax.sweeps.engines.task_files import Task
from cloc_jax.sweeps.run_plan import Plan

# In place of Python: says its name, and ends half a second after it is asked to.
SLOW = """#!/bin/sh
trap 'echo saved; sleep 0.5; exit 143' TERM
echo "error: started with $*"
while true; do sleep 0.1; done
"""


@pytest.fixture
def task(tmp_path):
    plans = [
        Plan(name, "one", {"seed": 0}, ConfigDict({"seed": 0})) for name in ("a", "b")
    ]
    for plan in plans:
        (tmp_path / plan.name).mkdir()
    return Task("a+1", tuple(plans)), tmp_path


@pytest.fixture
def slow(task, monkeypatch):
    """The file of a task whose worker never ends by itself."""
    script = task[1] / "python"
    script.write_text(SLOW)
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    return task_files.write(*task)


def exit_code(path):
    command = [sys.executable, "-m", "cloc_jax.sweeps.engines.worker", str(path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment).returncode


def test_what_is_finished_or_claimed_or_not_ready_is_left_alone(task):
    one, folder = task
    path = task_files.write(one, folder)
    with claim_files.claimed(folder, ["a", "b"]) as mine:
        assert mine == ["a", "b"]
        assert exit_code(path) == worker.BUSY
    (folder / "a" / "history.jsonl").write_text("{}\n")
    assert exit_code(path) == worker.UNREADY  # only the driver may clear it
    assert (folder / "a" / "history.jsonl").exists()
    for name in ("a", "b"):
        files.write_sealed(folder / name / "metrics.json", {})
    assert exit_code(path) == worker.DONE


def test_memory_is_kept_before_a_claim_starts_its_thread(task, monkeypatch):
    # A thread that was there before would leave others with memory of its own kind.
    path, order, start = task_files.write(*task), [], threading.Thread.start

    def starting(thread):
        order.append("thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starting)
    monkeypatch.setattr(environment, "keep_memory", lambda: order.append("kept"))
    monkeypatch.setattr(worker, "_train", lambda plans, folder: worker.DONE)
    assert worker.main(path) == worker.DONE
    assert order == ["kept", "thread"]


def test_one_that_takes_too_long_is_asked_to_save_and_end(slow):
    child = worker.Child(slow)
    while not child.log.read_text():
        time.sleep(0.05)
    assert child.wait(0.2) == -signal.SIGTERM
    assert "saved" in child.log.read_text()
    assert child._has_ended()
    said = worker.reason(child.log)
    assert said.startswith("started with -m cloc_jax.sweeps.engines.worker")


def test_a_job_whose_time_is_up_is_saved_and_queued_again(slow):
    """As submitit does it: in a signal handler, while the job waits."""
    submitit = pytest.importorskip("submitit")
    job, again = slurm.Job(slow), []
    log = slow.with_suffix(".log")

    def warn():
        while not (job._child and log.read_text()):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGUSR2)

    before = signal.signal(signal.SIGUSR2, lambda *_: again.append(job.checkpoint()))
    try:
        threading.Thread(target=warn).start()
        started = time.monotonic()
        assert job() == 143  # as the worker ended
        assert time.monotonic() - started < worker.GRACE_SECONDS / 2
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert isinstance(again[0], submitit.helpers.DelayedSubmission)
    assert again[0].function.path == slow
    assert "saved" in log.read_text()


def test_a_worker_ends_with_its_parent(slow):
    code = (
        "import pathlib, sys, time\n"
        "from cloc_jax.sweeps.engines import worker\n"
        "python, sys.executable = sys.executable, sys.argv[2]\n"
        "child = worker.Child(pathlib.Path(sys.argv[1]))\n"
        "print(child._process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    python = pathlib.Path(sys.prefix) / "bin" / "python"
    parent = subprocess.Popen(
        [str(python), "-c", code, str(slow), sys.executable],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    pid = int(parent.stdout.readline())
    log = slow.with_suffix(".log")
    while not log.read_text():
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    end = time.monotonic() + 30
    while claim_files._started(pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert not claim_files._started(pid)
    assert "saved" in log.read_text()  # it was asked, not killed


def test_submitit_without_a_cluster_says_so(tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))  # no sbatch
    from cloc_jax.sweeps.engines.driver import Options

    with pytest.raises(ValueError, match="found no sbatch"):
        slurm.Slurm(tmp_path, Options("slurm"))
    wrong = Options("slurm", settings={"cluster": "local", "colour": "red"})
    with pytest.raises(ValueError, match="which submitit does not take"):
        slurm.Slurm(tmp_path, wrong)
    assert json.dumps(wrong._asdict())
