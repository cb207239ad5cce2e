"""Cells of a benchmark: measured, shown as a table, and recorded.

A cell is one measurement. Programs that are compared are compiled first and then timed
in turn.
"""

import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table

from cloc_jax.bench import growth_plot
from cloc_jax.bench.stopwatch import (
    Program,
    collectives,
    interleaved,
    temporary_bytes,
)
from cloc_jax.runtime import environment
from cloc_jax.runtime.console import console

FLOOR = "floor"
RELEASED = "released"  # a loop in PyTorch, timed where PyTorch is installed
SORTED = "sorted"
Cell = dict[str, Any]


def announce() -> dict[str, str]:
    """Prints and returns where the figures are made."""
    where = environment.environment()
    console.print("  ".join(f"{k} {v}" for k, v in where.items()), soft_wrap=True)
    return where


def record(
    folder: pathlib.Path, what: str, cells: Sequence[Cell], where: dict[str, str]
) -> None:
    """Adds cells to the bench.jsonl of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "bench.jsonl").open("a") as file:
        for cell in cells:
            file.write(json.dumps(cell | {"what": what, "environment": where}) + "\n")
    console.print(f"rows  {folder / 'bench.jsonl'}", soft_wrap=True)


def measure(
    programs: dict[str, Program], common: Cell, rounds: int, triplets: int
) -> list[Cell]:
    """One cell per program, with its time as a multiple of the floor's."""
    timings = interleaved(programs, rounds=rounds)
    cells = []
    for name, timing in timings.items():
        cell = common | {
            "algorithm": name,
            "milliseconds": timing.median * 1e3,
            "quartiles": [timing.low * 1e3, timing.high * 1e3],
            "samples_per_second": common["batch"] / timing.median,
        }
        if FLOOR in timings:
            cell["times_floor"] = timing.median / timings[FLOOR].median
        if triplets and name != FLOOR:
            cell["triplets_per_second"] = triplets / timing.median
        program = programs[name]
        if program.compiled is not None:
            cell["temporary_mib"] = temporary_bytes(program) / 2**20
            cell["collectives"] = collectives(program)
            cell["compile_seconds"] = program.compile_seconds
        cells.append(cell)
    return cells


def growths(cells: Sequence[Cell]) -> list[str]:
    """How time grows with the batch, in words, for series with three sizes or more."""
    said = []
    for name, line in growth_plot.series(cells).items():
        upper = line[-3:]  # where overheads no longer hide the growth
        if len(upper) == 3:
            sizes = [c["batch"] for c in upper]
            power = growth_plot.exponent(sizes, [c["milliseconds"] for c in upper])
            said.append(
                f"{name}: time ~ batch^{power:.2f} from {sizes[0]} to {sizes[-1]}"
            )
    return said


def ratios(cells: Sequence[Cell]) -> list[str]:
    """How much longer the released way of working takes, in words, for each size."""
    said = []
    for slow in cells:
        if slow.get("algorithm") != RELEASED:
            continue
        for fast in cells:
            same = all(fast[key] == slow[key] for key in ("batch", "dim", "dtype"))
            if same and (fast["algorithm"], fast["devices"]) == (SORTED, 1):
                ratio = slow["milliseconds"] / fast["milliseconds"]
                said.append(
                    f"batch {slow['batch']}, width {slow['dim']}, {slow['dtype']}: "
                    f"{RELEASED} takes {ratio:.0f} times as long as {SORTED}"
                )
    return said


def table(cells: Sequence[Cell]) -> Table:
    """The cells as rows, with the columns that they have."""
    table = Table(box=None, pad_edge=False)
    columns: dict[str, Callable[[Any], str]] = {
        "algorithm": str,
        "stage": str,
        "threads": str,
        "batch": str,
        "views": str,
        "dim": str,
        "dtype": str,
        "devices": str,
        "mesh": str,
        "milliseconds": "{:.2f}".format,
        "quartiles": lambda q: f"{q[0]:.2f}-{q[1]:.2f}",
        "times_floor": "{:.1f}".format,
        "samples_per_second": "{:.3g}".format,
        "images_per_second": "{:.0f}".format,
        "views_per_second": "{:.0f}".format,
        "step_needs_per_second": "{:.0f}".format,
        "times_bare": "{:.2f}".format,
        "triplets_per_second": "{:.3g}".format,
        "temporary_mib": "{:.1f}".format,
        "collectives": lambda c: " ".join(f"{n} {k}" for k, n in c.items()) or "none",
    }
    used = {k: show for k, show in columns.items() if any(k in c for c in cells)}
    for name in used:
        table.add_column(name.replace("_", " "), justify="right")
    for cell in cells:
        table.add_row(*(show(cell[k]) if k in cell else "" for k, show in used.items()))
    return table
