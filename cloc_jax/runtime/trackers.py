"""Where curves and scores of a run go besides its folder: trackers of experiments.

All of them write to this machine, unless variables of their own name a server
(MLFLOW_TRACKING_URI, WANDB_MODE=online). A run is known to them by its mark, so that
one that goes on, or is evaluated again, goes on there as well.
"""

import contextlib
import importlib.util
import logging
import os
import pathlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from cloc_jax.runtime import errors
from cloc_jax.runtime.run_folder import RunFolder

NAMES = ("tensorboard", "mlflow", "wandb")
PROJECT = "cloc_jax"
MOST_PARAMETERS = 100  # that MLflow takes at once
MOST_LETTERS = 500  # of a parameter


class About(NamedTuple):
    """What a tracker is told of a run."""

    folder: RunFolder
    settings: Mapping[str, Any]  # by dotted name
    first_step: int  # of the curves; what earlier processes wrote from it on is void


class Tracker:
    """One place that curves and scores of a run go to."""

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Adds a point to each curve."""

    def finish(self, scores: Mapping[str, float], page: pathlib.Path) -> None:
        """Keeps the final scores, and the report where there is one."""

    def close(self) -> None:
        """Writes what is left, and marks the run as ended."""


def check(names: Collection[str]) -> None:
    """ValueError for a tracker that is not known or not installed."""
    for name in names:
        if name not in NAMES:
            raise ValueError(f"log.to has {name!r}; it may have {', '.join(NAMES)}.")
        # TensorBoard is written to by default, and nobody need have it.
        if name != "tensorboard" and not importlib.util.find_spec(name):
            raise ValueError(
                f"log.to has {name!r}, which is not installed: "
                f"pip install 'cloc_jax[{name}]'."
            )


@contextlib.contextmanager
def tracked(names: Collection[str], about: About) -> Iterator[list[Tracker]]:
    """The trackers with these names, closed at the end."""
    classes: list[Callable[[About], Tracker]] = [TensorBoard, MLflow, WandB]
    kinds = dict(zip(NAMES, classes, strict=True))
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(contextlib.closing(kinds[name](about)))
            for name in names
        ]


class TensorBoard(Tracker):
    """Event files in the run's folder.

    Written at once: tensorboardX's own writer works in a thread, whose errors, such as
    a full disk, nobody would see, and which then lets the program wait forever.
    """

    def __init__(self, about: About):
        self._folder = about.folder.path / "tensorboard"
        self._first_step = about.first_step
        self._writer: Any = None

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Adds values by name; does nothing where tensorboardX is not installed."""
        try:
            import tensorboardX  # late: it imports PyTorch where that is installed
            from tensorboardX.proto.event_pb2 import Event, SessionLog
        except ImportError:
            return

        with errors.naming(self._folder):
            if self._writer is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                place = str(self._folder / "events")
                self._writer = tensorboardX.event_file_writer.EventsWriter(place)
                start = SessionLog(status=SessionLog.START)
                event = Event(step=self._first_step, session_log=start)
                self._writer.write_event(event)
            for name, value in values.items():
                summary = tensorboardX.summary.scalar(name, value)
                event = Event(summary=summary, step=step, wall_time=time.time())
                self._writer.write_event(event)
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            with errors.naming(self._folder):
                self._writer.close()


class MLflow(Tracker):
    """A run of the experiment "cloc_jax" in MLflow, by default in a local store."""

    def __init__(self, about: About):
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        import mlflow

        logging.getLogger("mlflow").setLevel(logging.WARNING)

        self._entities = mlflow.entities
        self._client = client = mlflow.MlflowClient()
        known = client.get_experiment_by_name(PROJECT)
        place = known.experiment_id if known else client.create_experiment(PROJECT)
        begun = client.search_runs([place], f"tags.mark = '{about.folder.mark}'")
        if begun:
            self._run = begun[0].info.run_id
            client.update_run(self._run, status="RUNNING")
            return
        tags = {"mark": about.folder.mark, "folder": str(about.folder.path.absolute())}
        self._run = client.create_run(
            place, tags=tags, run_name=about.folder.path.name
        ).info.run_id
        parameters = [
            self._entities.Param(name, str(value)[:MOST_LETTERS])
            for name, value in about.settings.items()
        ]
        for start in range(0, len(parameters), MOST_PARAMETERS):
            part = parameters[start : start + MOST_PARAMETERS]
            client.log_batch(self._run, params=part)

    def write(self, values: Mapping[str, float], step: int) -> None:
        now = int(1000 * time.time())
        metrics = [
            # Boundaries are named 1|2, which MLflow refuses.
            self._entities.Metric(name.replace("|", "-"), value, now, step)
            for name, value in values.items()
        ]
        self._client.log_batch(self._run, metrics=metrics)

    def finish(self, scores: Mapping[str, float], page: pathlib.Path) -> None:
        self.write(scores, 0)
        if page.exists():
            self._client.log_artifact(self._run, str(page))

    def close(self) -> None:
        self._client.set_terminated(self._run)


class WandB(Tracker):
    """A run of the project "cloc_jax" in Weights & Biases, by default offline."""

    def __init__(self, about: About):
        os.environ.setdefault("WANDB_MODE", "offline")
        import wandb

        self._wandb = wandb
        self._mark = about.folder.mark
        self._run = wandb.init(
            project=PROJECT,
            id=about.folder.mark,
            name=about.folder.path.name,
            dir=str(about.folder.path),
            config=dict(about.settings),
            resume="allow",
            settings=wandb.Settings(silent=True),
        )

    def write(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def finish(self, scores: Mapping[str, float], page: pathlib.Path) -> None:
        self._run.summary.update(dict(scores))
        if page.exists():
            artifact = self._wandb.Artifact(f"report-{self._mark}", type="report")
            artifact.add_file(str(page))
            self._run.log_artifact(artifact)

    def close(self) -> None:
        self._run.finish()
