"""Tasks: what one worker trains, as a file that it reads on whatever machine it is.

A task is one run, or several that are one program. Its file holds the configurations,
so a worker plans nothing, and the folder and the variables of the driver's environment
that decide where things are.
"""

import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from cloc_jax.runtime import files
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.sweeps.run_plan import Plan
from cloc_jax.training import one_program

FOLDER = "tasks"  # in that of the runs
# Of the driver's environment; others may hold secrets, and stay where they are.
CARRIED = re.compile(r"JAX_|XLA_|TF_CPP|XDG_CACHE_HOME$|HF_HOME$|HF_ENDPOINT$")
# What would make a worker join a run of several processes.
JOINS = re.compile(
    r"SLURM_|PMI_|PMIX_|OMPI_|JAX_(COORDINATOR_ADDRESS|NUM_PROCESSES|PROCESS_ID)$"
)


class Task(NamedTuple):
    """Runs that one worker trains."""

    name: str
    plans: tuple[Plan, ...]

    @property
    def is_group(self) -> bool:
        """Whether its runs are trained as one program, which always starts anew."""
        return len(self.plans) > 1


def make_tasks(plans: Sequence[Plan]) -> list[Task]:
    """Runs that can be trained as one program stand together, others alone."""
    groups: dict[str, list[Plan]] = {}
    for plan in plans:
        groups.setdefault(one_program.key(plan.config) or plan.name, []).append(plan)
    return [
        Task(group[0].name + (f"+{len(group) - 1}" if group[1:] else ""), tuple(group))
        for group in groups.values()
    ]


def is_finished(folder: pathlib.Path, plan: Plan) -> bool:
    """Whether the run has been trained and scored."""
    return RunFolder(folder / plan.name).metrics.exists()


def write(task: Task, folder: pathlib.Path) -> pathlib.Path:
    """Writes the file of a task of that folder of runs, and returns its path."""
    place = folder / FOLDER
    place.mkdir(exist_ok=True)
    path = (place / f"{task.name}.json").absolute()
    carried = {k: v for k, v in os.environ.items() if CARRIED.match(k)}
    about = {
        "folder": str(folder.absolute()),
        "working_folder": os.getcwd(),
        "environment": {k: v for k, v in carried.items() if not JOINS.match(k)},
        "runs": [p._asdict() | {"config": p.config.to_dict()} for p in task.plans],
    }
    files.write_sealed(path, about)
    return path


def read(path: pathlib.Path) -> tuple[Task, pathlib.Path]:
    """A task and the folder of its runs."""
    found = _read(path)
    plans = [
        Plan(**(run | {"config": ConfigDict(_as_tuples(run["config"]))}))
        for run in found["runs"]
    ]
    return Task(path.stem, tuple(plans)), pathlib.Path(found["folder"])


def environment_of(path: pathlib.Path) -> tuple[dict[str, str], str]:
    """The variables and the working folder of a task's worker on this machine."""
    found = _read(path)
    here = {k: v for k, v in os.environ.items() if not JOINS.match(k)}
    package = pathlib.Path(__file__).resolve().parents[3]
    paths = [str(package), *here.get("PYTHONPATH", "").split(os.pathsep)]
    here |= found["environment"]
    here["PYTHONPATH"] = os.pathsep.join(filter(None, dict.fromkeys(paths)))
    place = found["working_folder"]
    return here, place if os.path.isdir(place) else os.getcwd()


def _read(path: pathlib.Path) -> dict[str, Any]:
    remedy = "Start the command again, which writes it anew."
    return files.read_sealed(path, remedy=remedy, fields=("folder", "runs"))


def _as_tuples(value: Any) -> Any:
    """JSON as a configuration has it: lists were tuples."""
    if isinstance(value, dict):
        return {key: _as_tuples(one) for key, one in value.items()}
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value
