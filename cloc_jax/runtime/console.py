"""What a person sees of training: a live line in a terminal, a row an epoch."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

# No markup: names of files and ranks may hold brackets. A file has no width, and
# tables should not be squeezed into that of a punched card.
console = Console(
    highlight=False, markup=False, width=None if sys.stdout.isatty() else 160
)


@contextlib.contextmanager
def track(text: str, total: int, *, note: str = "") -> Iterator[Callable[..., None]]:
    """A bar while something is done `total` times; call what it gives after each.

    It takes how many were done and a remark to show beside the bar. With a `note`, that
    and how long all took stay on the screen at the end.
    """
    started = time.monotonic()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed} of {task.total}"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task(text, total=total)

        def advance(count: int = 1, remark: str = "") -> None:
            bar.update(task, advance=count, description=f"{text}  {remark}".rstrip())

        yield advance
    if note:
        console.print(f"{note}: {time.monotonic() - started:.0f} s", soft_wrap=True)


def print_dataset(dataset: Any) -> None:
    """What a dataset is: notes, and how many images each split has of each rank."""
    for note in dataset.notes:
        console.print(f"  {note}")
    width = max(7, *map(len, dataset.splits))
    for split, source in dataset.splits.items():
        counts = np.bincount(source.labels, minlength=len(dataset.ranks))
        shown = "  ".join(
            f"{r}: {n}" for r, n in zip(dataset.ranks, counts, strict=True)
        )
        console.print(f"{split:>{width}}  {len(source)} images  ({shown})")


class Display:
    """Progress of one stage; use as a context manager."""

    def __init__(self, stage: str, steps_per_epoch: int, max_epochs: int, step: int):
        self._stage = stage
        self._steps_per_epoch = steps_per_epoch
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(),
            TextColumn("left at most"),  # a stop rule may end the stage earlier
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(
            f"[bold]{stage}[/bold]",
            total=max_epochs * steps_per_epoch,
            completed=step,
            text="compiling",
        )

    def __enter__(self):
        self._bar.__enter__()
        return self

    def __exit__(self, *error):
        self._bar.__exit__(*error)

    def step(self, step: int, loss: float, accuracy: float) -> None:
        epoch = (step - 1) // self._steps_per_epoch + 1
        text = f"epoch {epoch}  loss {loss:.3f}  batch accuracy {accuracy:.3f}"
        self._bar.update(self._task, completed=step, text=text)

    def text(self, text: str) -> None:
        self._bar.update(self._task, text=text)

    def epoch(self, row: dict[str, Any]) -> None:
        """One line an epoch that stays on the screen or in the log."""
        # Images as they are, or, where that was not needed, as augmented in batches.
        kind = "train" if row["train_eval"] else "batch"
        accuracy = (row["train_eval"] or row["train"])["accuracy"]
        parts = [
            f"{self._stage:>7} {row['epoch']:3d}",
            f"loss {row['train']['loss']:.3f}",
            f"{kind} acc {accuracy:.3f}",
            f"val acc {row['val']['accuracy']:.3f} mae {row['val']['mae']:.3f}",
        ]
        if row["margins"]:
            shown = [f"{v:.2f}" for v in row["margins"].values()]
            cut = shown if len(shown) <= 8 else [*shown[:3], "…", *shown[-3:]]
            parts.append("margins " + " ".join(cut))
        parts.append(f"{row['seconds']:.0f} s")
        self._bar.console.print("  ".join(parts), soft_wrap=True)
