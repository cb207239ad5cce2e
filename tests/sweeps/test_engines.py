"""Engines for real: the same results as this process makes, though workers die."""

import contextlib
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

SWEEP = [
    "sweep",
    *TINY,
    "--config.train.max_epochs=4",
    "--config.mesh.devices=1",
    "--vary=method.name=ce;sord",
]
LAUNCH = (str(ROOT / "launch.py"),)
SUBMITIT = ["--engine=slurm", "--option=cluster=local"]
DRIVER = """
import sys
from cloc_jax.cli import main
code = main.main(sys.argv[1:])
loads = not {"--workers=2", "--engine=ray"} & set(sys.argv)
assert loads or "jax" not in sys.modules, "the driver loads JAX"
sys.exit(code)
"""


def start(place, run, *arguments, program=("-c", DRIVER), **environment):
    """A driver that is at work, in a group of processes of its own."""
    return subprocess.Popen(
        [sys.executable, *program, *SWEEP, f"--run={run}", *arguments],
        start_new_session=True,
        # Which a shell's background jobs ignore.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
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
    return summary(place / "runs")


def summary(runs):
    """To six digits, as a run on one core rounds otherwise than one on two."""
    text = (runs / "summary.json").read_text()
    return json.loads(text, parse_float=lambda digits: round(float(digits), 6))["cells"]


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
    """The process that trains a run which has a checkpoint and is not finished."""
    for run in runs.glob("*seed=*"):
        has_checkpoint = any(run.glob(f"checkpoints/*/{files.SEAL}"))
        if has_checkpoint and not (run / "metrics.json").exists():
            with contextlib.suppress(OSError, ValueError):
                return json.loads((run / "lock").read_text())["pid"]
    return None


def finish(process, runs, serial):
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert summary(runs) == serial
    return said


def logs_of(runs):
    return "".join(path.read_text() for path in (runs / "commands").glob("*.log"))


def parent_of(pid: int) -> int:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1])


def lives(pid: int) -> bool:
    try:
        return "State:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGUSR2], ids=str)
def test_a_job_ends(number, serial, tmp_path):
    """By force, or as SLURM warns before the end."""
    joins = {"SLURM_NTASKS": "4", "SLURM_PROCID": "1", "SLURM_JOB_NUM_NODES": "2"}
    process = start(tmp_path, "runs", *SUBMITIT, "--workers=2", **joins)
    runs = tmp_path / "runs"
    pid = wait_for(lambda: under_way(runs), process, "a checkpoint")
    os.kill(parent_of(pid), number)
    said = finish(process, runs, serial)
    assert ("(attempt 1)" in said) == (number == signal.SIGKILL), said
    assert "going on in stage" in logs_of(runs)


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["worker", "machine"])
def test_ray_loses_a_worker_or_a_machine(lost, serial, tmp_path):
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    cluster = cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0}
    )
    try:
        nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
        options = ["--engine=ray", f"--option=address={cluster.address}"]
        process = start(tmp_path, "runs", *options)
        runs = tmp_path / "runs"
        pid = wait_for(lambda: under_way(runs), process, "a checkpoint")
        worker = parent_of(pid)
        raylets = [node.all_processes["raylet"][0].process.pid for node in nodes]
        if lost == "worker":
            os.kill(worker, signal.SIGKILL)
        else:
            [place] = [i for i, raylet in enumerate(raylets) if is_below(pid, raylet)]
            cluster.remove_node(nodes[place], allow_graceful=False)
        finish(process, runs, serial)
        assert "going on in stage" in logs_of(runs)
    finally:
        cluster.shutdown()


@pytest.mark.slow
def test_what_no_machine_of_ray_has_is_said(tmp_path):
    options = ["--engine=ray", "--option=num_gpus=3"]
    process = start(tmp_path, "runs", *options)
    try:
        said = next(line for line in process.stdout if "Ray cluster" in line)
        assert "no machine of the Ray cluster has CPU=1, GPU=3: runs wait" in said
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=200)


def is_below(pid: int, ancestor: int) -> bool:
    while pid > 1 and pid != ancestor:
        pid = parent_of(pid)
    return pid == ancestor


@pytest.mark.slow
def test_a_driver_ends_and_the_command_goes_on(serial, tmp_path):
    runs = tmp_path / "runs"
    # As a terminal does it: Ctrl-C is a signal to the whole group of launch.py.
    process = start(tmp_path, "runs", "--workers=2", program=LAUNCH)
    pid = wait_for(lambda: under_way(runs), process, "a checkpoint")
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGINT, said
    assert "goes on with the same command" in said
    assert not lives(pid) and "ended at once" not in logs_of(runs)
    # A killed driver leaves commands that still write their checkpoints.
    process = start(tmp_path, "runs", "--workers=2")
    pid = wait_for(lambda: under_way(runs), process, "a run that goes on")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=120)
    finish(start(tmp_path, "runs", "--workers=2"), runs, serial)
    assert "stopping as soon as all is saved" in logs_of(runs)


@pytest.mark.slow
def test_two_drivers_share_the_runs(serial, tmp_path):
    drivers = [start(tmp_path, "runs", *words) for words in ([], ["--workers=2"])]
    said = [process.communicate(timeout=900)[0] for process in drivers]
    assert [process.returncode for process in drivers] == [0, 0], said
    runs = tmp_path / "runs"
    assert summary(runs) == serial
    trained = "".join(said) + logs_of(runs)
    assert trained.count("ended after epoch") == 2, said  # each run once
