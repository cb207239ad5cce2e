"""Scalars for TensorBoard, written at once.

tensorboardX's own writer works in a thread, whose errors, such as a full disk, nobody
would see, and which then lets the program wait forever.
"""

import pathlib
import time
from collections.abc import Mapping
from typing import Any

from cloc_jax.runtime import light_imports, os_errors


class ScalarLog:
    """Event files of a run; use as a context manager.

    Args:
      folder: where they are.
      first_step: what earlier files have from this step on is not shown.
      is_written: False in all processes of a run except the first.
    """

    def __init__(self, folder: pathlib.Path, first_step: int, *, is_written: bool):
        self._folder = folder
        self._writer: Any = None
        # Where PyTorch is installed, tensorboardX imports it to name its types.
        library = light_imports.import_without("tensorboardX", "torch")
        self._summary = library.summary
        self._proto = library.proto.event_pb2
        if not is_written:
            return
        folder.mkdir(parents=True, exist_ok=True)
        with os_errors.naming(folder):
            writer = library.event_file_writer.EventsWriter(str(folder / "events"))
            log = self._proto.SessionLog
            start = log(status=log.START)
            writer.write_event(self._proto.Event(step=first_step, session_log=start))
        self._writer = writer

    def __enter__(self) -> "ScalarLog":
        return self

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            with os_errors.naming(self._folder):
                self._writer.close()

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Adds values by name."""
        if self._writer is None:
            return
        with os_errors.naming(self._folder):
            for name, value in values.items():
                event = self._proto.Event(
                    summary=self._summary.scalar(name, value),
                    step=step,
                    wall_time=time.time(),
                )
                self._writer.write_event(event)
            self._writer.flush()
