"""Executors: who runs the commands that train runs.

In turn this process or several of this machine, submitit's jobs, or Ray's tasks.

The command is the unit of work. `launch.py train --config=FILE --run=DIR --resume
--no-report` starts a run, goes on with it, or does nothing where it is finished, all
under the run's lock. So whoever executes a command need know nothing else, and the
run's folder says what became of it: results, or failed.json with the reason.
"""

import concurrent.futures
import contextlib
import importlib.util
import logging
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from cloc_jax.runtime import environment, errors, files, processes
from cloc_jax.runtime.console import console
from cloc_jax.runtime.run_folder import InUse, RunFolder

PACKAGES = {"local": "cloc_jax", "slurm": "submitit", "ray": "ray"}  # by engine
COMMANDS = "commands"  # folder beside the runs: a configuration and a log of each
PROGRAM = ("-m", "cloc_jax")  # launch.py is not where the package is installed
PACKAGE = str(pathlib.Path(__file__).resolve().parents[2])
# What would make a command join a run of several processes.
JOINS = re.compile(
    r"SLURM_|PMI_|PMIX_|OMPI_|JAX_(COORDINATOR_ADDRESS|NUM_PROCESSES|PROCESS_ID)$"
)
LOOK_SECONDS = 0.2  # between two looks at a command
JOBS_SECONDS = 1.0  # between two looks at all jobs of SLURM
HELD_SECONDS = 5.0  # between two looks at a run that another process trains
GRACE_SECONDS = 60.0  # to write a checkpoint when asked to stop
# Of the driver's environment; other variables may be secrets.
CARRIED = re.compile(r"JAX_|XLA_|TF_CPP|XDG_CACHE_HOME$|HF_HOME$|HF_ENDPOINT$")


class Plan(NamedTuple):
    """One run."""

    name: str  # of its folder
    setting: str
    overrides: dict[str, Any]  # of the setting, and its fold and seed
    config: ConfigDict


class Options(NamedTuple):
    """Where and how runs are trained."""

    engine: str = "local"
    # Runs at a time; 0 for as many as there is room for, or one of the local engine.
    workers: int = 0
    hours: float = 24.0  # that a job of SLURM may take before it is queued again
    retries: int = 2  # of a command that died
    settings: Mapping[str, Any] = {}  # the engine's own

    @property
    def is_in_process(self) -> bool:
        """Whether this process trains the runs itself."""
        return self.engine == "local" and self.workers <= 1


def check_options(options: Options) -> None:
    """ValueError where runs cannot be trained as it is asked for."""
    name = options.engine
    if not importlib.util.find_spec(PACKAGES[name]):
        raise ValueError(
            f"--engine={name} needs {PACKAGES[name]}: pip install 'cloc_jax[{name}]'."
        )
    if name == "local" and not options.is_in_process:
        environment.shares(options.workers)


def train(
    plans: Sequence[Plan], folder: pathlib.Path, options: Options
) -> dict[str, str]:
    """Trains runs as it is asked for; why some were lost, by name."""
    if options.is_in_process:
        train_in_process(plans, folder)
        return {}
    works = [Work(plan, folder) for plan in plans]
    logs = folder / COMMANDS
    console.print(f"what the commands of runs say is in {logs}", soft_wrap=True)
    by_engine = {"slurm": train_on_slurm, "ray": train_on_ray}
    return by_engine.get(options.engine, train_with_workers)(works, options)


# --- runs and their commands ---


def has_ended(path: pathlib.Path) -> bool:
    """Whether a run is finished or has failed."""
    run = RunFolder(path)
    with contextlib.suppress(files.Damaged):
        return run.is_finished() or bool(run.read_failure())
    return False


def is_held(path: pathlib.Path) -> bool:
    """Whether another process writes into the folder of a run."""
    if not path.is_dir():
        return False
    try:
        with RunFolder(path).held("sweep"):
            return False
    except InUse:
        return True


class Died(Exception):
    """A command ended without results or a reason, such as by a signal."""


class Work:
    """A command for one run; call it on the machine that trains, until the run ends."""

    def __init__(self, plan: Plan, folder: pathlib.Path):
        """Writes the configuration of a run of that folder, for its command."""
        self.run = folder.absolute() / plan.name
        self.config = folder.absolute() / COMMANDS / f"{plan.name}.json"
        self.is_stopped = False  # set it to have the run saved and the call return
        self._process: subprocess.Popen | None = None
        self._working_folder = os.getcwd()
        self.config.parent.mkdir(exist_ok=True)
        files.write_sealed(self.config, plan.config.to_dict())

    def __call__(self, variables: Mapping[str, str] | None = None) -> None:
        """Raises Died where the run neither finished nor failed.

        A run that another process trains is waited for. `variables` are of the
        command's environment, besides those of this process.
        """
        while not (self.is_stopped or has_ended(self.run)):
            if is_held(self.run):
                time.sleep(HELD_SECONDS)
                continue
            self._process = process = self._start(variables or {})
            self._wait()
            code = process.wait()
            if not (self.is_stopped or has_ended(self.run) or is_held(self.run)):
                raise Died(f"its command ended with {code}")

    def stop(self) -> None:
        """Lets the command write a checkpoint, and ends it.

        A signal handler may call it amid the call: no locks of `subprocess` here.
        """
        self.is_stopped = True
        self._wait()

    def checkpoint(self) -> Any:
        """What submitit submits in turn, before the end of a job's time."""
        import submitit

        self.stop()
        self.is_stopped, self._process = False, None
        return submitit.helpers.DelayedSubmission(self)

    def _wait(self) -> None:
        """Waits for the command's end, and sees to it once the work is stopped."""
        kill = math.inf
        while self._process and not _has_exited(self._process.pid):
            if self.is_stopped and kill == math.inf:
                kill = time.monotonic() + GRACE_SECONDS
                self._process.send_signal(signal.SIGTERM)
            elif time.monotonic() > kill:
                self._process.kill()
            time.sleep(LOOK_SECONDS)

    def _start(self, variables: Mapping[str, str]) -> subprocess.Popen:
        words = ["train", f"--config={self.config}", f"--run={self.run}"]
        merged = {**os.environ, **variables}
        paths = (PACKAGE, merged.get("PYTHONPATH", ""))
        merged["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        place = self._working_folder
        with self.config.with_suffix(".log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *PROGRAM, *words, "--resume", "--no-report"],
                cwd=place if os.path.isdir(place) else None,
                env={k: v for k, v in merged.items() if not JOINS.match(k)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # It may still write a checkpoint, so it is asked and not killed.
                preexec_fn=lambda: processes.end_with_parent(signal.SIGTERM),
                # Ctrl-C is for the parent, which stops its commands in its own way.
                process_group=0,
            )


def _has_exited(pid: int) -> bool:
    """Whether a child has, leaving its exit code for `wait`."""
    try:
        return bool(os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT))
    except ChildProcessError:
        return True  # its exit code was read already


# --- this machine ---


def train_in_process(plans: Sequence[Plan], folder: pathlib.Path) -> None:
    """Trains runs one after another in this process, those last that others train.

    A run that fails leaves its reason in its folder; only a full disk ends the others.
    """
    # Late: it loads JAX, which the drivers of other executors never do.
    from cloc_jax.report import evaluation

    waiting = list(plans)
    while waiting:
        plan = waiting.pop(0)
        run = RunFolder(folder / plan.name)
        if has_ended(run.path):
            continue  # another driver was faster
        try:
            console.print(f"run {plan.name}", soft_wrap=True)
            evaluation.complete_run(plan.config, run, resume=True, draws=False)
            processes.wait(f"results of {plan.name}")
        except InUse as error:
            console.print(f"waiting: {error}", soft_wrap=True)
            waiting.append(plan)
            while all(is_held(folder / other.name) for other in waiting):
                time.sleep(HELD_SECONDS)
        except errors.Interrupted:
            raise
        except Exception as error:
            is_full = getattr(error, "errno", None) in errors.NO_ROOM
            # Processes that train together must not go on alone.
            if is_full or not processes.is_alone():
                raise
            if not isinstance(error, ValueError | OSError | ArithmeticError):
                console.print_exception()


def train_with_workers(works: Sequence[Work], options: Options) -> dict[str, str]:
    """Runs commands side by side on this machine; why runs were lost, by name."""
    free, own = environment.shares(options.workers), threading.local()
    lost: dict[str, str] = {}

    def begin() -> None:
        cores, own.variables = free.pop()
        os.sched_setaffinity(0, cores)  # of this thread and what it starts

    def train(work: Work) -> None:
        name = work.run.name
        for number in range(1, options.retries + 2):
            try:
                return work(own.variables)
            except Died as died:
                lost[name] = f"{died} in {number} attempts"
                console.print(f"{name}: {died} (attempt {number})", soft_wrap=True)
        return None

    with concurrent.futures.ThreadPoolExecutor(len(free), initializer=begin) as pool:
        try:
            futures = [pool.submit(train, work) for work in works]
            for count, future in enumerate(concurrent.futures.as_completed(futures), 1):
                future.result()
                console.print(f"{count} of {len(works)} runs have ended")
        except BaseException:
            console.print("stopping workers as soon as all is saved")
            for work in works:
                work.is_stopped = True
            raise
    return lost


# --- SLURM ---


def make_executor(folder: pathlib.Path, options: Options) -> Any:
    """Submitit's executor; ValueError where it cannot work as it is asked to."""
    import submitit  # late: it is optional

    settings = dict(options.settings)
    cluster = settings.pop("cluster", None)
    executor = submitit.AutoExecutor(
        folder, cluster=cluster, slurm_max_num_timeout=options.retries
    )
    if executor.cluster == "local" and cluster != "local":
        raise ValueError(
            "--engine=slurm found no sbatch on this machine; start it where jobs are "
            "submitted, or add --option=cluster=local to try it here."
        )
    minutes = max(1, round(options.hours * 60))
    try:
        executor.update_parameters(name="cloc_jax", timeout_min=minutes)
        if options.workers and executor.cluster == "slurm":
            executor.update_parameters(slurm_array_parallelism=options.workers)
        executor.update_parameters(**settings)
    except (NameError, TypeError) as error:
        raise ValueError(
            f"--option is {settings}, which submitit does not take: {error}"
        ) from None
    return executor


def train_on_slurm(works: Sequence[Work], options: Options) -> dict[str, str]:
    """Runs commands in job arrays; why runs were lost, by name."""
    executor = make_executor(works[0].config.parent / "slurm", options)
    waiting = [(work, 1) for work in works]
    busy: list[tuple[Any, Work, int]] = []
    lost: dict[str, str] = {}
    try:
        while waiting or busy:
            if waiting:
                with executor.batch():
                    busy += [(executor.submit(work), work, n) for work, n in waiting]
            waiting = []
            time.sleep(JOBS_SECONDS)
            ended = [one for one in busy if one[0].done()]
            busy = [one for one in busy if one not in ended]
            for job, work, number in ended:
                if has_ended(work.run):
                    continue
                why = f"its job {job.job_id} {job.state.lower()}"
                lost[work.run.name] = f"{why} in {number} attempts"
                console.print(f"{work.run.name}: {why} (attempt {number})")
                if number <= options.retries:
                    waiting.append((work, number + 1))
            if ended:
                left = len(waiting) + len(busy)
                console.print(f"{len(works) - left} of {len(works)} runs have ended")
    finally:
        for job, _, _ in busy:
            job.cancel()
    return lost


# --- Ray ---


def train_one(work: Work) -> None:
    """What Ray runs on one of its machines; saves the run when it is cancelled."""
    try:
        work()
    except KeyboardInterrupt:
        work.stop()
        raise


def train_on_ray(works: Sequence[Work], options: Options) -> dict[str, str]:
    """Runs commands on a Ray cluster; why runs were lost, by name."""
    import ray  # late: it is optional, and takes seconds

    settings = dict(options.settings)
    address = settings.pop("address", None)
    carried = {k: v for k, v in os.environ.items() if CARRIED.match(k)}
    given: dict[str, Any] = {
        "num_cpus": 1,
        "num_gpus": 0,
        "resources": {},
        "max_retries": options.retries,
        "retry_exceptions": [Died],
        "runtime_env": {"env_vars": carried | {"PYTHONPATH": PACKAGE}},
    }
    try:
        remote = ray.remote(train_one).options(**(given | settings))
        # With None it joins the cluster that RAY_ADDRESS names, or starts one.
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError as error:
        raise ValueError(f"no Ray cluster answers at {address}: {error}") from None
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"--option is {settings}, which Ray does not take: {error}"
        ) from None
    given |= settings
    needed = {"CPU": given["num_cpus"], "GPU": given["num_gpus"], **given["resources"]}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(all(n.get(k, 0) >= v for k, v in needed.items()) for n in nodes):
        asked = ", ".join(f"{k}={v:g}" for k, v in needed.items() if v)
        console.print(
            f"no machine of the Ray cluster has {asked}: runs wait until one joins; "
            "Ctrl-C ends this",
            soft_wrap=True,
        )
    waiting, busy = list(works), dict[Any, str]()
    lost: dict[str, str] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < (options.workers or math.inf):
                work = waiting.pop(0)
                busy[remote.remote(work)] = work.run.name
            for task in ray.wait(list(busy))[0]:
                name = busy.pop(task)
                try:
                    ray.get(task)
                except ray.exceptions.RayTaskError as error:
                    lost[name] = f"{error.cause} in {options.retries + 1} attempts"
                except ray.exceptions.RayError as error:
                    lost[name] = f"Ray lost its worker ({type(error).__name__})"
                left = len(waiting) + len(busy)
                console.print(f"{len(works) - left} of {len(works)} runs have ended")
    finally:
        for task in busy:
            ray.cancel(task)
        ray.wait(list(busy), num_returns=len(busy), timeout=GRACE_SECONDS)
        ray.shutdown()
    return lost
