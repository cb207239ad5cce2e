"""Commands that finish, fail, die or hang, and who runs them on this machine."""

import os
import pathlib
import pickle
import time

import pytest
from launching import ROOT

from cloc_jax.config import default_config
from cloc_jax.runtime import environment, files
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.sweeps import executors, sweep
from cloc_jax.sweeps.executors import Died, Options, Plan, Work

# In place of launch.py: does what its script says, attempt by attempt.
PLAYED = """
import os, pathlib, signal, sys, time
from cloc_jax.runtime import files
from cloc_jax.runtime.run_folder import RunFolder
words = dict(word.partition("=")[::2] for word in sys.argv[2:])
run = RunFolder(words["--run"])
config = files.read_sealed(pathlib.Path(words["--config"]), remedy="")
if not run.config.exists():
    run.create(config, {"ranks": [], "images": {}, "sha256": ""})
with (run.path / "attempts").open("a+") as file:
    file.seek(0)
    number = len(file.readlines())
    file.write(" ".join(sys.argv[1:]) + chr(10))
script = pathlib.Path(os.environ["SCRIPTS"], run.path.name).read_text().split()
if script[number] == "finish":
    run.write(run.metrics, {"final": {}})
elif script[number] == "fail":
    run.write_failure("no images")
    sys.exit(2)
elif script[number] == "die":
    os.kill(os.getpid(), signal.SIGKILL)

def save(*_):
    print("saved", flush=True)
    sys.exit(143)

signal.signal(signal.SIGTERM, save)
print("cores", sorted(os.sched_getaffinity(0)))
print(dict(os.environ), flush=True)
if script[number] == "hang":
    time.sleep(60)
"""
WORKERS = Options(workers=2, retries=2)
two_cores = pytest.mark.skipif(
    len(environment.usable_cores()) < 2, reason="a share for each needs two cores"
)


@pytest.fixture(autouse=True)
def played(tmp_path, monkeypatch):
    """Commands are played, and looked at often."""
    script = tmp_path / "played.py"
    script.write_text(PLAYED)
    monkeypatch.setattr(executors, "PROGRAM", (str(script),))
    monkeypatch.setattr(executors, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(executors, "HELD_SECONDS", 0.1)
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    monkeypatch.setenv("SCRIPTS", str(scripts))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")


def plan(name, *script):
    pathlib.Path(os.environ["SCRIPTS"], name).write_text(" ".join(script))
    return Plan(name, "one", {"seed": 0}, default_config())


def attempts(folder, name):
    return (folder / name / "attempts").read_text().splitlines()


def work_of(tmp_path, *script):
    (tmp_path / "runs").mkdir()
    return Work(plan("a", *script), tmp_path / "runs")


def wait_for(log, text):
    end = time.monotonic() + 30
    while text not in (log.read_text() if log.exists() else ""):
        assert time.monotonic() < end, f"{text} is not in {log}"
        time.sleep(0.05)


def log_of(work):
    return work.config.with_suffix(".log")


@two_cores
def test_what_dies_is_tried_again_and_what_fails_is_not(tmp_path):
    folder = tmp_path / "runs"
    plans = [
        plan("fine", "finish"),
        plan("killed", "die", "die", "finish"),
        plan("wrong", "fail"),
        plan("lost", "die", "die", "die"),
    ]
    failed = sweep.train_runs(plans, folder, WORKERS)
    assert {p.name: len(attempts(folder, p.name)) for p in plans} == {
        "fine": 1,
        "killed": 3,
        "wrong": 1,
        "lost": 3,
    }
    assert failed["wrong"] == "no images"
    assert failed["lost"].startswith("its command ended with -9 in 3 attempts; see ")
    assert set(failed) == {"wrong", "lost"}
    assert RunFolder(folder / "lost").read_failure() == failed["lost"]
    files.read_sealed(folder / "commands" / "fine.json", remedy="")
    [words] = attempts(folder, "fine")
    assert words == (
        f"train --config={folder / 'commands' / 'fine.json'} --run={folder / 'fine'} "
        "--resume --no-report"
    )
    # What failed is tried again by the next command; what is finished is not.
    again = [*plans[:2], plan("wrong", "fail", "finish"), plan("lost", *["finish"] * 4)]
    assert not sweep.train_runs(again, folder, WORKERS)
    assert not RunFolder(folder / "lost").read_failure()
    assert len(attempts(folder, "fine")) == 1 and len(attempts(folder, "wrong")) == 2


@two_cores
def test_a_driver_that_is_stopped_saves_its_runs(tmp_path, monkeypatch):
    folder = tmp_path / "runs"
    logs = [folder / "commands" / f"{name}.log" for name in "ab"]

    def interrupted(futures):
        for log in logs:
            wait_for(log, "cores")
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(executors.concurrent.futures, "as_completed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        plans = [plan(name, "hang") for name in "abc"]
        sweep.train_runs(plans, folder, WORKERS)
    for log in logs:
        assert log.read_text().count("saved") == 1
    assert not (folder / "c").exists()
    cores = [next(iter(log.read_text().splitlines())) for log in logs]
    assert cores[0] != cores[1]  # each has its own


def test_commands_join_no_other_run(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    work = work_of(tmp_path, "env")
    assert "secret" not in str(pickle.dumps(work))
    # As within a job of several processes.
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "host:1")
    with pytest.raises(Died, match="ended with 0"):
        work({"CUDA_VISIBLE_DEVICES": "3"})
    text = log_of(work).read_text()
    assert "'HF_TOKEN': 'secret'" in text and "'CUDA_VISIBLE_DEVICES': '3'" in text
    assert "SLURM_" not in text and "COORDINATOR" not in text


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Sets how many cores and GPUs there seem to be."""

    def make(cores, gpus=0):
        monkeypatch.setattr(environment, "usable_cores", lambda: list(range(cores)))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.delenv("JAX_PLATFORMS", raising=False)
        monkeypatch.setattr(environment, "GPUS", tmp_path / "gpus")
        for i in range(gpus):
            (tmp_path / "gpus" / f"0000:{i:02x}:00.0").mkdir(parents=True)

    return make


def test_every_core_and_gpu_is_in_one_share(machine, monkeypatch):
    machine(7)
    assert environment.shares(3) == [([0, 1], {}), ([2, 3], {}), ([4, 5, 6], {})]
    machine(8, gpus=4)
    name = "CUDA_VISIBLE_DEVICES"
    assert [variables for _, variables in environment.shares(2)] == [
        {name: "0,1"},
        {name: "2,3"},
    ]
    monkeypatch.setenv(name, "5,7")
    for platforms in ("", "cuda,cpu"):
        monkeypatch.setenv("JAX_PLATFORMS", platforms)
        found = [variables for _, variables in environment.shares(2)]
        assert found == [{name: "5"}, {name: "7"}]
    for variable, value in ((name, "-1"), ("JAX_PLATFORMS", "cpu")):
        monkeypatch.setenv(variable, value)
        assert [variables for _, variables in environment.shares(2)] == [{}, {}]


@pytest.mark.parametrize(
    "cores, gpus, options, message",
    [
        (2, 0, Options(workers=3), "may use 2 cores; use that many at most"),
        (64, 2, Options(workers=3), "may use 2 GPUs; .* or JAX_PLATFORMS=cpu"),
    ],
)
def test_nothing_is_made_where_there_is_no_room(
    cores, gpus, options, message, machine, tmp_path
):
    machine(cores, gpus)
    with pytest.raises(ValueError, match=message):
        sweep.train_runs([plan("a", "finish")], tmp_path / "runs", options)
    assert not (tmp_path / "runs").exists()


def test_what_is_not_there_is_said(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.delattr(os, "sched_setaffinity")
        with pytest.raises(ValueError, match="--workers needs Linux"):
            environment.shares(2)
    with monkeypatch.context() as patched:
        patched.setattr(executors.importlib.util, "find_spec", lambda name: None)
        with pytest.raises(ValueError, match=r"pip install 'cloc_jax\[ray\]'"):
            executors.check_options(Options("ray"))
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))  # no sbatch
    with pytest.raises(ValueError, match="found no sbatch"):
        executors.make_executor(tmp_path, Options("slurm"))
    wrong = Options("slurm", settings={"cluster": "local", "colour": "red"})
    with pytest.raises(ValueError, match="which submitit does not take"):
        executors.make_executor(tmp_path, wrong)
