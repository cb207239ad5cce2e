"""The folder of a run: what is where in it, and how it is written.

config.json        the resolved configuration
dataset.json       ranks, sizes and a fingerprint of the images it was started with
history.jsonl      one row per epoch
checkpoints/       to go on from while the run is under way
stages/<name>/     the model each finished stage handed over; <name>.json how it ended,
                   <name>.npz what the method needs besides the model to predict
trunk/<mark>/      the frozen parts of the encoder, where their output was kept; beside
                   the runs in a sweep, which share it
tensorboard/       scalars
metrics.json, predictions.csv, *.png, *.jpg, report.html, examples/     the result
thumbnails.npz     small JPEGs of test images, for the report
decision.json      how `predict` chooses labels, where `decide` wrote one
"""

import io
import json
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

from cloc_jax.runtime.atomic_files import write_bytes, write_json, write_text


class RunFolder:
    """Paths and files of one run."""

    def __init__(self, path: str | pathlib.Path):
        self.path = pathlib.Path(path)
        self.config = self.path / "config.json"
        self.dataset = self.path / "dataset.json"
        self.history = self.path / "history.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.tensorboard = self.path / "tensorboard"
        self.metrics = self.path / "metrics.json"
        self.decision = self.path / "decision.json"

    def trunk(self, mark: str = "") -> pathlib.Path | None:
        """Where the frozen parts with that mark lie, by default the run's own.

        None where the run has none. Runs of one sweep keep them together.
        """
        if not mark and self.dataset.exists():
            mark = self.read_dataset().get("trunk", "")
        is_of_sweep = (self.path.parent / "sweep.json").is_file()
        place = self.path.parent if is_of_sweep else self.path
        return place / "trunk" / mark if mark else None

    def stage(self, name: str) -> pathlib.Path:
        """Where the model that a stage handed over lies."""
        return self.path / "stages" / name

    def create(self, config: dict[str, Any], dataset: dict[str, Any]) -> None:
        """Makes the folder for a new run; never touches an existing one."""
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            free = next(
                p
                for n in range(2, 10**6)
                if not (p := self.path.with_name(f"{self.path.name}-{n}")).exists()
            )
            done = "a finished run" if self.metrics.exists() else "files"
            raise FileExistsError(
                f"{self.path} already holds {done}. Continue it with --resume, start "
                f"another with --run={free}, or move the folder away."
            )
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(self.dataset, dataset)
        write_json(self.config, config)  # last: a run is a folder with a config

    def check_same(
        self,
        config: dict[str, Any],
        dataset: dict[str, Any],
        saved_config: dict[str, Any],
    ) -> None:
        """ValueError where a run to be resumed had other settings or other images.

        `saved_config` is the run's own as the current schema has it.
        """
        saved, given = _flat(_as_json(saved_config)), _flat(_as_json(config))
        changed = [
            f"{key} was {saved.get(key)!r}, is now {given.get(key)!r}"
            for key in sorted(saved | given)
            # The same run may go on with another number of devices.
            if saved.get(key) != given.get(key) and not key.startswith("config.mesh.")
        ]
        if changed:
            raise ValueError(
                f"{self.path} was started with other settings: {'; '.join(changed)}. "
                "Resume with the command that started it, or start another run with "
                "another --run folder."
            )
        self.check_images(dataset)

    def check_images(self, dataset: dict[str, Any]) -> None:
        """ValueError where the images are not those the run was started with."""
        before = self.read_dataset()
        if before["sha256"] != dataset["sha256"]:
            raise ValueError(
                f"the images have changed since {self.path} was started: it had "
                f"{before['images']}, now there are {dataset['images']}. Restore them "
                "or start another run."
            )

    def clear(self) -> None:
        """Removes an unfinished run; a finished one is never removed."""
        if self.metrics.exists():
            raise FileExistsError(f"{self.path} holds a finished run.")
        shutil.rmtree(self.path)

    def read_config(self) -> dict[str, Any]:
        """The configuration the run was started with."""
        if not self.config.is_file():
            raise FileNotFoundError(
                f"{self.path} is not a run: it has no config.json. Give --run= the "
                "folder that training wrote, such as runs/quickstart."
            )
        return json.loads(self.config.read_text())

    def read_dataset(self) -> dict[str, Any]:
        """Ranks and sizes of the data the run was started with."""
        return json.loads(self.dataset.read_text())

    def read_metrics(self) -> dict[str, Any]:
        """What evaluation wrote of a finished run."""
        if not self.metrics.is_file():
            self.read_config()  # a folder that is no run is named as such
            raise FileNotFoundError(
                f"{self.path} is not finished: it has no metrics.json. Go on with the "
                "command that started it and --resume, or `launch.py evaluate` it."
            )
        return _with_readouts(json.loads(self.metrics.read_text()))

    def read_history(self) -> list[dict[str, Any]]:
        """The rows of all epochs so far."""
        if not self.history.exists():
            return []
        lines = self.history.read_text().splitlines()
        return [_with_readouts(json.loads(line)) for line in lines]

    def append_history(self, row: dict[str, Any]) -> None:
        with self.history.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def read_stage(self, name: str) -> dict[str, Any]:
        """How a stage ended."""
        path = self.stage(name).with_suffix(".json")
        if not path.is_file():
            raise FileNotFoundError(
                f"{self.path} has not finished stage {name}, so there is nothing to "
                "evaluate yet. Continue it with the command that started it and "
                "--resume."
            )
        return json.loads(path.read_text())

    def write_support(self, name: str, support: Mapping[str, Any]) -> None:
        """Keeps what a stage's method needs besides its model to predict."""
        import numpy as np  # late: `launch.py --help` answers at once

        data = io.BytesIO()
        np.savez(data, allow_pickle=False, **support)
        write_bytes(self.stage(name).with_suffix(".npz"), data.getvalue())

    def read_support(self, name: str) -> dict[str, Any] | None:
        """What `write_support` kept; None where the method needs nothing."""
        import numpy as np

        path = self.stage(name).with_suffix(".npz")
        if not path.is_file():
            return None
        with np.load(path, allow_pickle=False) as arrays:
            return {key: arrays[key] for key in arrays.files}

    def write_stage(
        self,
        name: str,
        *,
        epochs: int,
        steps: int,
        rule: str,
        reason: str,
        seconds: float,
    ) -> None:
        """Notes how a stage ended, beside the model that it handed over."""
        summary = {
            "name": name,
            "epochs": epochs,
            "steps": steps,
            "stop_rule": rule,
            "stop_reason": reason,
            "seconds": seconds,
        }
        write_json(self.stage(name).with_suffix(".json"), summary)

    def cut_history(self, rows: int) -> None:
        """Drops what was written after the checkpoint that a run resumes from."""
        if not self.history.exists():
            return
        lines = self.history.read_text().splitlines(keepends=True)[:rows]
        write_text(self.history, "".join(lines))


def _as_json(value: Any) -> Any:
    """A value as it is after writing and reading: tuples have become lists."""
    return json.loads(json.dumps(value))


def _with_readouts(found: dict[str, Any]) -> dict[str, Any]:
    """Metrics or a history row as written now, also those of older runs."""
    if "readouts" in found:
        return found
    margins = found.get("margins") or {}
    if "final" not in found:
        return found | {"readouts": {"margins": margins} if margins else {}}
    readout = {
        "per": "boundary",
        "values": margins,
        "kinds": found.get("margin_kinds") or {},
        "limit": found.get("margin_limit"),
    }
    return found | {"readouts": {"margins": readout} if margins else {}}


def _flat(tree: dict[str, Any], prefix: str = "config") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}.{key}"
        flat |= _flat(value, name) if isinstance(value, dict) else {name: value}
    return flat
