"""Tasks on machines that die, fail or are slow, played by a backend of ours."""

import json
import os

import pytest
from ml_collections import ConfigDict

from cloc_jax.runtime import files
from cloc_jax.sweeps.engines import driver, remote, task_files, worker
from cloc_jax.sweeps.engines.driver import Options
from cloc_jax.sweeps.engines.task_files import Task
from cloc_jax.sweeps.run_plan import Plan


def plan(name, **config):
    return Plan(name, "one", {"seed": 0}, ConfigDict({"seed": 0} | config))


class Played:
    """Workers that do what they are told, attempt by attempt."""

    limit = 0

    def __init__(self, folder, script):
        self.folder, self.script = folder, script
        self.submitted, self.cancelled, self.most = [], [], 0

    def submit(self, paths):
        jobs = []
        for path in paths:
            task, folder = task_files.read(path)
            assert folder == self.folder.absolute()
            assert all((self.folder / p.name).is_dir() for p in task.plans)
            self.submitted.append(task.name)
            jobs.append((task, self.script[task.name].pop(0)))
        return jobs

    def code(self, job):
        task, said = job
        if said == "done":
            for one in task.plans:
                files.write_sealed(self.folder / one.name / "metrics.json", {})
            return worker.DONE
        if said == "error":
            log = self.folder / task_files.FOLDER / f"{task.name}.log"
            log.write_text("train …\nerror: the loss was not finite\n")
            return worker.FAILED
        return said

    def cancel(self, job):
        self.cancelled.append(job[0].name)


def carry_out(folder, script, *, retries=2, tasks=None):
    folder.mkdir(exist_ok=True)
    backend = Played(folder, {k: list(v) for k, v in script.items()})
    tasks = tasks or [Task(name, (plan(name),)) for name in script]
    options = Options("played", retries=retries)
    failed = remote.train(backend, tasks, folder, options, sleep=lambda _: None)
    return backend, failed


def test_what_dies_is_tried_again_and_what_fails_is_not(tmp_path):
    script = {
        "fine": ["done"],
        "killed": [-9, "its machine was lost", "done"],
        "wrong": ["error"],
    }
    backend, failed = carry_out(tmp_path, script)
    assert sorted(backend.submitted) == ["fine", "killed", "killed", "killed", "wrong"]
    assert list(failed) == ["wrong"]
    assert failed["wrong"].startswith("the loss was not finite (see ")


def test_what_earlier_commands_said_is_no_reason(tmp_path):
    logs = tmp_path / task_files.FOLDER
    logs.mkdir()
    (logs / "lost.log").write_text("error: data.root is gone\n")
    _, failed = carry_out(tmp_path, {"lost": [-9]}, retries=0)
    assert "it said nothing" in failed["lost"] and "gone" not in failed["lost"]


def test_runs_of_a_group_fail_for_reasons_of_their_own(tmp_path):
    log = tmp_path / "group.log"
    log.write_text("error: a: not finite\nerror: b: no images\nerror: all of it\n")
    said = [worker.reason(log, run).partition(" (see")[0] for run in "abc"]
    assert said == ["not finite", "no images", "all of it"]
    start = log.stat().st_size
    log.write_text(log.read_text() + "Killed\n")
    assert worker.reason(log, "a", start=start).startswith("Killed (see")


def test_what_dies_each_time_is_listed_and_the_others_go_on(tmp_path):
    backend, failed = carry_out(
        tmp_path, {"lost": [-9, -9], "fine": ["done"]}, retries=1
    )
    assert backend.submitted.count("lost") == 2
    assert "its worker ended with -9 in 2 attempts" in failed["lost"]
    assert (tmp_path / "fine" / "metrics.json").exists()


def test_what_somebody_else_works_on_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "BUSY_SECONDS", 0.0)
    backend, failed = carry_out(
        tmp_path, {"one": [worker.BUSY] * 4 + ["done"]}, retries=0
    )
    assert backend.submitted == ["one"] * 5 and not failed  # waiting is no attempt


def test_a_group_starts_anew_and_a_run_goes_on(tmp_path):
    # "left" was trained as one program with others, which keeps no checkpoints.
    for name in ("a", "b", "alone", "cut", "left"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "history.jsonl").write_text("{}\n")
    for name in ("a", "alone", "left"):
        files.write_sealed(tmp_path / name / "config.json", {})
    (tmp_path / "alone" / "checkpoints").mkdir()
    group = Task("a+1", (plan("a"), plan("b")))
    tasks = [group, *(Task(name, (plan(name),)) for name in ("alone", "cut", "left"))]
    assert not driver.is_ready(group, tmp_path)
    for task in tasks:
        driver.prepare(task, tmp_path)
        assert driver.is_ready(task, tmp_path)
    left = {p.parent.name for p in tmp_path.glob("*/history.jsonl")}
    assert left == {"alone"}


def test_a_driver_that_is_stopped_takes_its_workers_along(tmp_path):
    backend = Played(tmp_path, {"one": [None], "two": [None]})

    def interrupted(_):
        raise KeyboardInterrupt

    tasks = [Task(name, (plan(name),)) for name in ("one", "two")]
    with pytest.raises(KeyboardInterrupt):
        remote.train(backend, tasks, tmp_path, Options("played"), sleep=interrupted)
    assert backend.cancelled == ["one", "two"]


def test_no_more_at_a_time_than_there_are_workers(tmp_path):
    backend = Played(tmp_path, {name: ["done"] for name in "abcde"})
    backend.limit = 2
    seen = []
    submit = backend.submit
    backend.submit = lambda paths: seen.append(len(paths)) or submit(paths)
    tasks = [Task(name, (plan(name),)) for name in "abcde"]
    options = Options("played")
    assert not remote.train(backend, tasks, tmp_path, options, sleep=lambda _: None)
    assert seen == [2, 2, 1]


def test_a_task_file_gives_back_the_task_and_the_driver_s_environment(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.setenv("SLURM_PROCID", "2")
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "host:1")
    one = plan("one", data={"size": (24, 24), "crop": None}, margins=("learn", 0.5))
    path = task_files.write(Task("one", (one,)), tmp_path)
    assert "secret" not in path.read_text()
    task, folder = task_files.read(path)
    assert task.plans[0].config.to_dict() == one.config.to_dict()
    assert task.plans[0].config.data.size == (24, 24)
    assert folder == tmp_path
    # A worker on another machine has the driver's folders, and joins no other run.
    monkeypatch.delenv("XDG_CACHE_HOME")
    found, place = task_files.environment_of(path)
    assert found["XDG_CACHE_HOME"] == "/cache" and found["HF_TOKEN"] == "secret"
    assert not [k for k in found if k.startswith("SLURM_") or "COORDINATOR" in k]
    assert place == os.getcwd()


def test_failures_are_kept_until_they_are_mended(tmp_path):
    plans = [plan("a"), plan("b")]
    driver._note_failures(tmp_path, plans[:1], {"a": "no memory"})
    driver._note_failures(tmp_path, plans[1:], {"b": "no data"})
    assert driver.read_failures(tmp_path) == {"a": "no memory", "b": "no data"}
    (tmp_path / "a").mkdir()
    files.write_sealed(tmp_path / "a" / "metrics.json", {})
    driver._note_failures(tmp_path, plans[1:], {})
    assert driver.read_failures(tmp_path) == {}
    assert not (tmp_path / driver.FAILED).exists()


def test_engines_that_are_not_known_or_have_no_cluster_say_so(tmp_path):
    with pytest.raises(ValueError, match="--engine is 'cloud'"):
        driver.carry_out([plan("a")], tmp_path / "runs", Options("cloud"))
    assert not (tmp_path / "runs").exists()
    assert json.dumps(Options()._asdict())  # plain data
