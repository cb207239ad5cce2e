"""Engines for real: the same results as this process makes, though workers die."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from launching import ROOT, TINY

from cloc_jax.runtime import files
from cloc_jax.sweeps.engines import claim_files

SWEEP = [
    "sweep",
    *TINY,
    "--config.train.max_epochs=4",
    "--config.mesh.devices=1",
    "--vary=method.name=ce;sord",
]
# Features of a frozen encoder, so that many runs are one program.
STUDY = [
    *TINY,
    "--config.encoder.frozen=True",
    "--config.encoder.weights=random",
    "--config.head.projection=8",
    "--config.train.max_epochs=2",
    "--config.mesh.devices=1",
]
LAUNCH = (str(ROOT / "launch.py"),)
# The driver, and a look at what it loaded.
DRIVER = """
import sys
import launch
code = launch.main(sys.argv[1:])
loads = "--engine=local" in sys.argv and "--workers=2" not in sys.argv
assert loads or "jax" not in sys.modules, "the driver loads JAX"
sys.exit(code)
"""


def start(place, run, *arguments, command=SWEEP, program=("-c", DRIVER), **environment):
    """A driver that is at work, in a group of processes of its own."""
    return subprocess.Popen(
        [sys.executable, *program, *command, f"--run={run}", *arguments],
        start_new_session=True,
        cwd=place,
        env=os.environ
        | {"PYTHONPATH": str(ROOT), "XLA_FLAGS": "", "JAX_NUM_CPU_DEVICES": "1"}
        | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    place = tmp_path_factory.mktemp("serial")
    process = start(place, "runs", "--engine=local")
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    return json.loads((place / "runs" / "summary.json").read_text())


def wait_for(found, process, what, seconds=300):
    """What `found` gives once it is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            pytest.fail(f"the driver ended before {what}: {process.stdout.read()}")
        if value := found():
            return value
        time.sleep(0.1)
    process.kill()
    pytest.fail(f"{what} did not come: {process.stdout.read()}")


def under_way(runs: pathlib.Path):
    """The process of a run that has a checkpoint and is not finished."""
    for run in runs.glob("*seed=*"):
        # Those without checksums are still being written.
        has_checkpoint = any(run.glob(f"checkpoints/*/{files.SEAL}"))
        claim = runs / claim_files.FOLDER / run.name
        if has_checkpoint and not (run / "metrics.json").exists() and claim.exists():
            return json.loads(claim.read_text())["pid"]
    return None


def finish(process, runs, serial):
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert json.loads((runs / "summary.json").read_text()) == serial
    assert not any((runs / claim_files.FOLDER).iterdir())
    return said


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [["--engine=slurm", "--option=cluster=local"], ["--engine=local"]]
)
def test_a_worker_is_killed(options, serial, tmp_path):
    joins = {"SLURM_NTASKS": "4", "SLURM_PROCID": "1", "SLURM_JOB_NUM_NODES": "2"}
    process = start(tmp_path, "runs", *options, "--workers=2", **joins)
    runs = tmp_path / "runs"
    pid = wait_for(lambda: under_way(runs), process, "a checkpoint")
    os.kill(pid, signal.SIGKILL)
    said = finish(process, runs, serial)
    assert "it goes on from where it was" in said
    logs = "".join(p.read_text() for p in (runs / "tasks").glob("*.log"))
    assert "going on in stage" in logs


@pytest.mark.slow
@pytest.mark.parametrize(
    "job, flags",
    [
        ("control", ["--values=0.3", "--boundary=1|2"]),
        ("margins", ["--seeds=2", "--draws=19"]),
    ],
)
def test_a_study_with_workers(job, flags, tmp_path):
    common = [job, *STUDY, *flags]
    found = {}
    for run, options in ("alone", []), ("workers", ["--workers=2"]):
        process = start(tmp_path, run, *options, command=common, program=LAUNCH)
        said, _ = process.communicate(timeout=600)
        assert process.returncode == 0, said
        found[run] = json.loads((tmp_path / run / f"{job}.json").read_text())
        del found[run]["command"], found[run]["integrity"]
        assert (tmp_path / run / "tasks").exists() == (run == "workers")
    assert found["alone"] == found["workers"]


@pytest.mark.slow
def test_ctrl_c_stops_workers_of_this_machine_and_the_command_goes_on(serial, tmp_path):
    options = ["--engine=local", "--workers=2"]
    # As a terminal does it: a signal to the whole group of launch.py.
    process = start(tmp_path, "runs", *options, program=LAUNCH)
    runs = tmp_path / "runs"
    pid = wait_for(lambda: under_way(runs), process, "a checkpoint")
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGINT, said
    assert "goes on with the same command" in said
    assert not claim_files._started(pid)
    logs = "".join(p.read_text() for p in (runs / "tasks").glob("*.log"))
    assert "stopping as soon as all is saved" in logs
    assert "ended at once" not in logs
    finish(start(tmp_path, "runs", *options), runs, serial)


@pytest.mark.slow
def test_submitit_with_a_job_whose_time_is_up(serial, tmp_path):
    options = ["--engine=slurm", "--option=cluster=local", "--workers=2"]
    process = start(tmp_path, "runs", *options)
    runs = tmp_path / "runs"
    pid = wait_for(lambda: under_way(runs), process, "a checkpoint")
    os.kill(parent_of(pid), signal.SIGUSR2)  # how SLURM warns before the end
    said = finish(process, runs, serial)
    assert "it goes on" not in said  # the job queued itself again
    logs = "".join(p.read_text() for p in (runs / "tasks").glob("*.log"))
    assert "going on in stage" in logs


@pytest.mark.slow
def test_ray_with_a_machine_lost(serial, tmp_path):
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    cluster = cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0}
    )
    try:
        workers = [cluster.add_node(num_cpus=1) for _ in range(2)]
        options = ["--engine=ray", f"--option=address={cluster.address}"]
        process = start(tmp_path, "runs", *options)
        runs = tmp_path / "runs"
        pid = wait_for(lambda: under_way(runs), process, "a checkpoint")
        of = [
            w
            for w in workers
            if is_below(pid, w.all_processes["raylet"][0].process.pid)
        ]
        assert len(of) == 1
        cluster.remove_node(of[0], allow_graceful=False)
        said = finish(process, runs, serial)
        assert "its machine or worker was lost" in said
    finally:
        cluster.shutdown()


def is_below(pid: int, ancestor: int) -> bool:
    while pid > 1 and pid != ancestor:
        pid = parent_of(pid)
    return pid == ancestor


def parent_of(pid: int) -> int:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1])


@pytest.mark.slow
def test_two_drivers_share_the_runs(serial, tmp_path):
    drivers = [start(tmp_path, "runs", "--engine=local") for _ in range(2)]
    said = [process.communicate(timeout=900)[0] for process in drivers]
    assert [process.returncode for process in drivers] == [0, 0], said
    for name in ("name=ce,seed=0", "name=sord,seed=0"):
        assert sum(text.count(f"run {name}\n") for text in said) == 1, said
    assert json.loads((tmp_path / "runs" / "summary.json").read_text()) == serial
