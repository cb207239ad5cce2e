"""The folder of a run: what is where in it, how it is written, and who may write.

config.json        the resolved configuration
dataset.json       ranks, sizes and a fingerprint of the images it was started with,
                   the content of their files included
history.jsonl      one row per epoch
checkpoints/       to go on from while the run is under way; empty in a finished run of
                   a sweep or a study
stages/<name>/     the model each finished stage handed over; <name>.json how it ended,
                   <name>.npz what the method needs besides the model to predict
trunk/<mark>/      the frozen parts of the encoder, where their output was kept; beside
                   the runs in a sweep, which share it
tensorboard/       scalars
metrics.json, predictions.csv, *.png, *.jpg, report.html, examples/     the result
thumbnails.npz     small JPEGs of test images, for the report
failed.json        why training or evaluation failed, where it did
decision.json      how `predict` chooses labels, where `decide` wrote one
lock               who writes into the folder at the moment

JSON files and rows of the history carry a checksum; stages/<name>/, trunk/<mark>/ and
each checkpoint have a list of them, checksums.json. All but failed.json and the frozen
parts carry the run's mark, too, so that a file of another run is known as such.
Everything is checked when it is read.

The lock is the operating system's, on an open file, so a killed process leaves nothing
that blocks. The file says who holds it, for the one that has to wait.
"""

import contextlib
import errno
import io
import itertools
import json
import os
import pathlib
import platform
import secrets
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from cloc_jax.runtime import errors, files

REMEDY = "Put back a copy of it, or train the run again."  # of what was learned
LOCK = "lock"
# What file systems without locks answer; there, nothing is locked.
NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL}
_SHOWN = 3  # names of changed images of each kind
# What is read of a row of the history.
_ROW = {
    "stage": str,
    "epoch": int,
    "seconds": float,
    "train": dict[str, float | None],
    "train_eval": dict[str, float | None],
    "val": dict[str, float | None],
    "readouts": dict[str, dict[str, float | None]],
}


class InUse(OSError):
    """Another process writes into the folder."""


class RunFolder:
    """Paths and files of one run."""

    def __init__(self, path: str | pathlib.Path):
        self.path = pathlib.Path(path)
        self.config = self.path / "config.json"
        self.dataset = self.path / "dataset.json"
        self.history = self.path / "history.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.metrics = self.path / "metrics.json"
        self.decision = self.path / "decision.json"
        self.failed = self.path / "failed.json"

    @property
    def mark(self) -> str:
        """What the run's files have in common, drawn as it began."""
        mark = files.owner_of(self.config)
        if mark is None and self.config.exists():
            self.read_config()  # which says what is wrong with it
        return mark or ""

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

    @contextlib.contextmanager
    def held(self, job: str, *, is_new: bool = False) -> Iterator[None]:
        """Lets no other process write into the folder meanwhile; InUse if one does.

        The same process may hold it several times. With `is_new` the folder is made,
        and removed where nothing was written into it.
        """
        import filelock  # late: `launch.py --help` answers at once

        missing = [
            path for path in (self.path, *self.path.parents) if not path.exists()
        ]
        if is_new:
            self.path.mkdir(parents=True, exist_ok=True)
        path = self.path.resolve() / LOCK
        if path.exists():
            files.check_regular(path)
        lock = filelock.FileLock(path, timeout=0, is_singleton=True, thread_local=False)
        try:
            lock.acquire()
        except filelock.Timeout:
            raise InUse(self._in_use()) from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
        is_first = lock.lock_counter <= 1
        try:
            if is_first:
                _write_holder(path, job)
            yield
        finally:
            if is_first:
                path.unlink(missing_ok=True)  # while it is still locked
            lock.release()
            for made in missing if is_new else ():
                with contextlib.suppress(OSError):  # it is not empty, as it should be
                    made.rmdir()

    def _in_use(self) -> str:
        """Who holds the folder, as far as the lock's file says it, and what to do."""
        try:
            holder = json.loads((self.path / LOCK).read_text())
            who = "process {pid} on {host} ({job}) has been".format(**holder)
            who += f" writing into it since {holder['since']}"
        except (OSError, ValueError, LookupError, TypeError):
            who = "another process writes into it"
        return (
            f"{self.path} is in use: {who}. Wait until it ends or end it, or give "
            "another --run folder."
        )

    def check_new(self) -> None:
        """FileExistsError or OSError where a new run could not be written there."""
        if self.path.exists() and (not self.path.is_dir() or self._is_taken()):
            done = "a finished run" if self.metrics.exists() else "files"
            raise FileExistsError(
                f"{self.path} already holds {done}. Continue it with --resume, start "
                f"another with --run={files.unused_path(self.path)}, or move the "
                "folder away."
            )
        errors.check_writable(self.path, "--run")

    def create(self, config: dict[str, Any], dataset: dict[str, Any]) -> None:
        """Makes the folder for a new run; never touches an existing one."""
        self.check_new()
        self.path.mkdir(parents=True, exist_ok=True)
        mark = secrets.token_hex(8)
        files.write_sealed(self.dataset, dataset, mark)
        # Last: a run is a folder with a config.
        files.write_sealed(self.config, config, mark)

    def _is_taken(self) -> bool:
        """Whether there is more than an interrupted or failed start leaves."""
        for path in self.path.iterdir():
            is_ours = (
                path in (self.dataset, self.failed) and files.owner_of(path) is not None
            )
            if not (is_ours or path.name == LOCK or files.is_part(path)):
                return True
        return False

    def is_finished(self) -> bool:
        """Whether the run has results; Damaged where they cannot be read."""
        return self.metrics.is_file() and bool(self.read_metrics())

    def check_settings(self, saved: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        """ValueError where a run has other settings than those it is to go on with.

        `saved` are the run's own as the current schema has them.
        """
        if changed := changed_settings(saved, now):
            raise ValueError(
                f"{self.path} was started with other settings: {'; '.join(changed)}. "
                "Resume with the command that started it, or give another --run folder."
            )

    def check_images(self, dataset: Mapping[str, Any]) -> None:
        """ValueError where the images are not those the run was started with."""
        if changes := changed_images(self.read_dataset(), dataset):
            kept = dataset.get("details", {}).get("prepared")
            more = f", or remove {kept} if they have not: they are read there"
            raise ValueError(
                f"the images have changed since {self.path} was started: {changes}. "
                f"Restore them or start another run{more if kept else ''}; nothing was "
                "changed in this one."
            )

    def drop_checkpoints(self) -> None:
        """Removes the checkpoints of a finished run, which has its models."""
        for path in self.checkpoints.glob("*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def clear_parts(self) -> None:
        """Removes what a killed or failed process left. Needs the lock."""
        self.failed.unlink(missing_ok=True)
        for place in (self.path, self.path / "stages"):
            for part in filter(files.is_part, place.glob("*")):
                part.unlink()

    def read_config(self) -> dict[str, Any]:
        """The configuration the run was started with."""
        if not self.config.is_file():
            raise FileNotFoundError(
                f"{self.path} is not a run: it has no config.json. Give --run= the "
                "folder that training wrote, such as runs/quickstart."
            )
        return files.read_sealed(self.config, remedy=REMEDY)

    def read_dataset(self) -> dict[str, Any]:
        """Ranks and sizes of the data the run was started with."""
        return files.read_sealed(
            self.dataset,
            remedy=f"Put back a copy, or start another run; {self.path} needs it.",
            fields={"ranks": list[str], "images": dict[str, int], "sha256": str},
            owner=self.mark,
        )

    def read_metrics(self) -> dict[str, Any]:
        """What evaluation wrote of a finished run."""
        if not self.metrics.is_file():
            self.read_config()  # a folder that is no run is named as such
            raise FileNotFoundError(
                f"{self.path} is not finished: it has no metrics.json. Go on with the "
                "command that started it and --resume, or `launch.py evaluate` it."
            )
        remedy = f"`launch.py evaluate --run={self.path}` makes it again."
        fields = {"final": dict[str, Any]}
        return files.read_sealed(
            self.metrics, remedy=remedy, fields=fields, owner=self.mark
        )

    def write(self, path: pathlib.Path, value: Mapping[str, Any]) -> None:
        """Writes one of its files; with `metrics` the run is finished."""
        files.write_sealed(path, value, self.mark)

    def write_failure(self, sentence: str) -> None:
        """Notes why training or evaluation failed, until training goes on."""
        self.path.mkdir(parents=True, exist_ok=True)  # it may have failed before
        files.write_sealed(self.failed, {"error": sentence})

    def read_failure(self) -> str:
        """Why training or evaluation failed; "" where it did not."""
        if not self.failed.is_file():
            return ""
        fields = {"error": str}
        found = files.read_sealed(self.failed, remedy="Remove it.", fields=fields)
        return found["error"]

    def read_history(self) -> list[dict[str, Any]]:
        """The rows of all epochs so far."""
        return [row for _, row in self._rows()]

    def append_history(self, row: dict[str, Any]) -> None:
        """Adds the row of an epoch."""
        with errors.naming(self.history), self.history.open("a") as file:
            file.write(json.dumps(files.sealed(row, self.mark)) + "\n")

    def cut_history(self, rows: int) -> int:
        """Drops what was written after the checkpoint that a run resumes from.

        Returns how many rows are left: fewer, where the file was removed.
        """
        # What a killed process wrote half of lies behind them.
        lines = [line for line, _ in itertools.islice(self._rows(), rows)]
        if self.history.exists():
            files.write_bytes(self.history, b"".join(lines))
        return len(lines)

    def _rows(self) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """The lines of the history, and what each holds."""
        if not self.history.exists():
            return
        lines, mark = files.read_regular(self.history).splitlines(True), self.mark
        for number, line in enumerate(lines, 1):
            try:
                yield line, files.check_fields(files.unsealed(line, mark), _ROW)
            except ValueError as error:
                raise files.Damaged(
                    self.history,
                    f"row {number}: {error}",
                    "Put back a copy, or move it away: the run goes on without the "
                    "curves of the epochs before.",
                ) from None

    def read_stage(self, name: str) -> dict[str, Any]:
        """How a stage ended; Damaged where what it left is not as it was written."""
        path = self.stage(name).with_suffix(".json")
        if not path.is_file():
            raise FileNotFoundError(
                f"{self.path} has not finished stage {name}, so there is nothing to "
                "evaluate yet. Continue it with the command that started it and "
                "--resume."
            )
        summary = files.read_sealed(
            path,
            remedy=REMEDY,
            fields={"name": str, "seconds": float, "files": dict[str, str]},
            owner=self.mark,
        )
        for file, digest in summary.pop("files").items():
            files.check_digest(path.parent / file, digest, remedy=REMEDY)
        return summary

    def has_stages(self) -> list[str]:
        """The names of the stages that have ended."""
        return [path.stem for path in sorted(self.path.glob("stages/*.json"))]

    def read_support(self, name: str) -> dict[str, Any] | None:
        """What the method needs besides its model; None for nothing."""
        path = self.stage(name).with_suffix(".npz")
        if not path.is_file():
            return None
        return files.read_arrays(path, remedy=REMEDY)

    def write_stage(
        self,
        name: str,
        ended: Mapping[str, Any],
        support: Mapping[str, Any] | None = None,
    ) -> None:
        """Notes how a stage ended, beside the model that it handed over.

        `support` is what its method needs besides the model to predict.
        """
        import numpy as np  # late: `launch.py --help` answers at once

        path = self.stage(name).with_suffix(".json")
        arrays = path.with_suffix(".npz")
        if support is not None:
            data = io.BytesIO()
            np.savez(data, allow_pickle=False, **support)
            files.write_bytes(arrays, data.getvalue())
        written = (self.stage(name) / files.SEAL, arrays)
        digests = {
            file.relative_to(path.parent).as_posix(): files.sha256(file)
            for file in written
            if file.is_file()
        }
        value = {"name": name, **ended, "files": digests}
        files.write_sealed(path, value, self.mark)


def _write_holder(path: pathlib.Path, job: str) -> None:
    holder = {
        "pid": os.getpid(),
        "host": platform.node(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        "job": job,
    }
    with contextlib.suppress(OSError):  # a full disk: the lock holds without it
        path.write_text(json.dumps(holder) + "\n")


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of nested dicts by dotted name, such as train.batch_size.

    Empty dicts are left out.
    """
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        is_dict = isinstance(value, Mapping)
        flat |= flatten(value, f"{name}.") if is_dict else {name: value}
    return flat


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What makes two configurations different runs, as a user would write it.

    Devices and trackers do not, nor do settings of methods other than the chosen one:
    those of one method may change in a sweep over several.
    """
    saved, given = _settings_used(before), _settings_used(now)
    return [
        f"config.{name} was {saved.get(name)!r}, is now {given.get(name)!r}"
        for name in sorted(saved | given)
        if saved.get(name) != given.get(name)
    ]


def _settings_used(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted name, as JSON keeps them: tuples are lists."""
    tree = json.loads(json.dumps(config))
    for name in ("mesh", "log"):
        tree.pop(name, None)
    method = tree.get("method", {})
    chosen = method.get("name")
    tree["method"] = {
        name: value
        for name, value in method.items()
        if name == chosen or not isinstance(value, dict)
    }
    return flatten(tree)


def changed_images(
    before: Mapping[str, Any], now: Mapping[str, Any], *, is_of_files: bool = False
) -> str:
    """What changed between two descriptions of a dataset, in words; "" for nothing.

    A description has `sha256`, of names and labels in their order, `images`, the number
    in each split, and `content`, a digest of each file by split and name, which is
    empty for drawn images. With `is_of_files`, only the content of files counts.
    """
    old, new = _digests(before), _digests(now)
    parts = [
        _some([n for n in old if new.get(n, old[n]) != old[n]], "with other content")
    ]
    if is_of_files:
        return parts[0]
    parts += (
        _some(old.keys() - new.keys(), "missing"),
        _some(new.keys() - old.keys(), "new"),
    )
    if found := "; ".join(filter(None, parts)):
        return found
    is_same = all(before[key] == now[key] for key in ("images", "sha256"))
    return "" if is_same else "names, labels or splits differ"


def _digests(description: Mapping[str, Any]) -> dict[str, str]:
    """The digest of each file by name."""
    splits = (description.get("content") or {}).values()
    return {name: digest for split in splits for name, digest in split.items()}


def _some(names: Collection[str], what: str) -> str:
    if not names:
        return ""
    shown = ", ".join(sorted(names)[:_SHOWN]) + ", …" * (len(names) > _SHOWN)
    noun = "image" if len(names) == 1 else "images"
    return f"{len(names)} {noun} {what} ({shown})"
