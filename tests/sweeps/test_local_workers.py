"""Workers of this machine: their shares of it, their ends, and what they train."""

import os
import signal
import sys
import time

import pytest
from ml_collections import ConfigDict

from cloc_jax.runtime import environment
from cloc_jax.sweeps.engines import driver, local_workers, task_files
from cloc_jax.sweeps.engines.driver import Options
from cloc_jax.sweeps.engines.task_files import Task
from cloc_jax.sweeps.run_plan import Plan

# In place of Python: says what it may use, and ends when it is asked to.
WORKER = """#!/bin/sh
trap 'echo saved; exit 143' TERM
echo "cores $(grep Cpus_allowed_list /proc/self/status | cut -f2)"
echo "gpus $CUDA_VISIBLE_DEVICES"
while true; do sleep 0.1; done
"""


@pytest.fixture
def paths(tmp_path, monkeypatch):
    """Files of two tasks whose workers never end by themselves."""
    script = tmp_path / "python"
    script.write_text(WORKER)
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    config = ConfigDict({"seed": 0})
    tasks = [Task(n, (Plan(n, "one", {"seed": 0}, config),)) for n in ("a", "b")]
    return [task_files.write(task, tmp_path) for task in tasks]


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Sets how many cores and GPUs there seem to be."""

    def make(cores, gpus=0):
        monkeypatch.setattr(environment, "usable_cores", lambda: list(range(cores)))
        monkeypatch.setattr(local_workers, "TOPOLOGY", str(tmp_path / "cpu{}-{}"))
        monkeypatch.setattr(local_workers, "_has_plugin", lambda: gpus > 0)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.delenv("JAX_PLATFORMS", raising=False)
        monkeypatch.setattr(local_workers, "GPUS", tmp_path / "gpus")
        for i in range(gpus):
            (tmp_path / "gpus" / f"0000:{i:02x}:00.0").mkdir(parents=True)

    return make


def wait_for(log, text):
    end = time.monotonic() + 30
    while text not in (log.read_text() if log.exists() else ""):
        assert time.monotonic() < end, f"{text} is not in {log}"
        time.sleep(0.05)


def test_every_core_and_gpu_is_in_one_share(machine, monkeypatch):
    machine(7)
    found = local_workers.shares(3)
    assert [list(share.cores) for share in found] == [[0, 1], [2, 3], [4, 5, 6]]
    assert all(share.variables == {} for share in found)
    machine(8, gpus=4)
    found = local_workers.shares(2)
    assert [s.variables["CUDA_VISIBLE_DEVICES"] for s in found] == ["0,1", "2,3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    found = local_workers.shares(2)
    assert [s.variables["CUDA_VISIBLE_DEVICES"] for s in found] == ["5", "7"]
    monkeypatch.setenv("JAX_PLATFORMS", "cuda,cpu")
    assert [s.variables for s in local_workers.shares(2)] == [
        s.variables for s in found
    ]
    for name, value in (("CUDA_VISIBLE_DEVICES", "-1"), ("JAX_PLATFORMS", "cpu")):
        monkeypatch.setenv(name, value)
        assert all(share.variables == {} for share in local_workers.shares(2))


def test_threads_of_one_core_are_in_one_share(machine, tmp_path):
    machine(8)
    for core in range(8):  # as Linux numbers four cores of two threads each
        (tmp_path / f"cpu{core}-physical_package_id").write_text("0\n")
        (tmp_path / f"cpu{core}-core_id").write_text(f"{core % 4}\n")
    found = [list(share.cores) for share in local_workers.shares(2)]
    assert found == [[0, 4, 1, 5], [2, 6, 3, 7]]


def test_more_workers_than_the_machine_has_room_for_are_refused(machine):
    machine(2)
    with pytest.raises(ValueError, match="may use 2 cores; use that many at most"):
        local_workers.LocalWorkers(Options(workers=3))
    machine(64, gpus=2)
    with pytest.raises(ValueError, match="may use 2 GPUs; .* or JAX_PLATFORMS=cpu"):
        local_workers.LocalWorkers(Options(workers=3))


def test_nothing_is_made_where_there_is_no_room(machine, tmp_path):
    machine(2)
    with pytest.raises(ValueError, match="may use 2 cores"):
        driver.carry_out([], tmp_path / "runs", Options(workers=3))
    assert not (tmp_path / "runs").exists()


def test_other_systems_are_refused(machine, monkeypatch):
    machine(8)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ValueError, match="only Linux can give processes cores"):
        local_workers.shares(2)


@pytest.mark.skipif(
    len(environment.usable_cores()) < 2, reason="a share for each needs two cores"
)
def test_workers_keep_to_their_share_and_give_it_back(paths, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    cores = environment.usable_cores()[:2]
    monkeypatch.setattr(environment, "usable_cores", lambda: cores)
    workers = local_workers.LocalWorkers(Options(workers=2))
    jobs = workers.submit(paths)
    for job, core in zip(jobs, cores, strict=True):
        wait_for(job.child.log, f"cores {core}\n")
        assert workers.code(job) is None
    os.kill(jobs[1].child._process.pid, signal.SIGKILL)
    jobs[1].child.wait()
    assert workers.code(jobs[1]) == -signal.SIGKILL
    jobs[1].child.log.unlink()
    again = workers.submit(paths[1:])
    wait_for(again[0].child.log, f"cores {cores[1]}\n")
    workers.cancel(jobs[0])
    workers.close()  # asks the other one too, and none of them twice
    for job in (jobs[0], again[0]):
        assert job.child.code() == 143
        assert job.child.log.read_text().count("saved") == 1


def test_one_that_takes_too_long_is_stopped(paths, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    workers = local_workers.LocalWorkers(Options(workers=1, hours=1e-9))
    [job] = workers.submit(paths[:1])
    wait_for(job.child.log, "gpus")
    assert workers.code(job) == "its worker took more than 1e-09 hours"
    assert "saved" in job.child.log.read_text()
