"""What a person sees: a live line in a terminal, and one line per epoch in a log."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from cloc_jax.runtime import environment, errors


class SafeConsole(Console):
    """A console that shows names of files as they are, and obeys nothing in them."""

    def render_str(self, text: str, **options: Any) -> Text:
        shown = errors.printable(environment.commands_here(text))
        return super().render_str(shown, **options)

    def on_broken_pipe(self) -> None:
        self.quiet = True
        raise SystemExit(errors.UNREAD)


# No markup: names of files and ranks may hold brackets. A file has no width, and
# tables should not be squeezed into that of a punched card.
console = SafeConsole(
    highlight=False, markup=False, width=None if sys.stdout.isatty() else 160
)


LINE_SECONDS = 30.0  # between two lines of progress where there is no bar


def _bar(*columns: ProgressColumn) -> Progress:
    """A bar in a terminal, and nothing in a log."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


@contextlib.contextmanager
def track(text: str, total: int, *, note: str = "") -> Iterator[Callable[..., None]]:
    """A bar while something is done `total` times; call what it gives after each.

    That takes how many were done and a remark. Where output is not a terminal, a line
    now and then takes the place of the bar. A `note` stays at the end, with the time.
    """
    started = shown = time.monotonic()
    done = 0
    bar = _bar(
        TextColumn("{task.completed} of {task.total}"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with bar:
        task = bar.add_task(text, total=total)

        def advance(count: int = 1, remark: str = "") -> None:
            nonlocal done, shown
            bar.update(task, advance=count, description=f"{text}  {remark}".rstrip())
            done += count
            now = time.monotonic()
            if console.is_terminal or now < shown + LINE_SECONDS or done >= total:
                return
            shown, spent = now, now - started
            left = spent / max(done, 1) * (total - done)
            console.print(
                f"  {text}: {done} of {total}, {duration(spent)} so far, about "
                f"{duration(left)} left",
                soft_wrap=True,
            )

        yield advance
    if note:
        console.print(f"{note}: {time.monotonic() - started:.0f} s", soft_wrap=True)


def duration(seconds: float) -> str:
    """A time in the unit that reads best, such as 40 s, 12 min or 3.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


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
        self._bar = _bar(
            TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(),
            TextColumn("left at most"),  # a stop rule may end the stage earlier
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

    def step(self, step: int, means: Mapping[str, float]) -> None:
        epoch = (step - 1) // self._steps_per_epoch + 1
        text = f"epoch {epoch}  loss {means['loss']:.3f}"
        if "accuracy" in means:
            text += f"  batch accuracy {means['accuracy']:.3f}"
        self._bar.update(self._task, completed=step, text=text)

    def text(self, text: str) -> None:
        self._bar.update(self._task, text=text)

    def epoch(self, row: dict[str, Any]) -> None:
        """One line per epoch that stays on the screen or in the log."""
        parts = [f"{self._stage:>7} {row['epoch']:3d}"]
        parts.append(f"loss {row['train']['loss']:.3f}")
        # Images as they are, or, where that was not needed, as augmented in batches.
        kind = "train" if row["train_eval"] else "batch"
        accuracy = (row["train_eval"] or row["train"]).get("accuracy")
        if accuracy is not None:
            parts.append(f"{kind} acc {accuracy:.3f}")
        if row["val"]:
            val = row["val"]
            parts.append(f"val acc {val['accuracy']:.3f} mae {val['mae']:.3f}")
        for name, values in row["readouts"].items():
            shown = [f"{v:.2f}" for v in values.values()]
            cut = shown if len(shown) <= 8 else [*shown[:3], "…", *shown[-3:]]
            parts.append(f"{name.replace('_', ' ')} {' '.join(cut)}")
        parts.append(f"{row['seconds']:.0f} s")
        self._bar.console.print("  ".join(parts), soft_wrap=True)
