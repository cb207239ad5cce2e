"""Timing programs side by side; one cell per measurement, as a table and as JSON."""

import json
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.table import Table

from cloc_jax.bench import hlo_text
from cloc_jax.runtime import environment
from cloc_jax.runtime.console import console

FLOOR = "floor"  # the program that the others of a comparison are multiples of
Cell = dict[str, Any]
HIDDEN = ("ranks", "images")  # the same in all cells; bench.jsonl has them


class Program(NamedTuple):
    """Something to time: a call that waits for its result."""

    call: Callable[[], Any]
    compiled: Any = None  # by JAX, where it was
    compile_seconds: float = 0.0


def compiled(function: Any, *arguments: Any) -> Program:
    """A function compiled for arguments, before any clock runs."""
    start = time.perf_counter()
    program = jax.jit(function).lower(*arguments).compile()
    seconds = time.perf_counter() - start
    return Program(lambda: jax.block_until_ready(program(*arguments)), program, seconds)


def interleaved(
    programs: Mapping[str, Program], *, rounds: int, warm_up: int = 2
) -> dict[str, Cell]:
    """Times programs in turn, round by round, so that a slow moment hits them all.

    Milliseconds per call: the median over the rounds, and the quartiles.
    """
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(warm_up + rounds):
        for name, program in programs.items():
            start = time.perf_counter()
            program.call()
            if turn >= warm_up:
                seconds[name].append(time.perf_counter() - start)
    timings = {}
    for name, spent in seconds.items():
        low, median, high = (1e3 * np.quantile(spent, (0.25, 0.5, 0.75))).tolist()
        timings[name] = {"milliseconds": median, "quartiles": [low, high]}
    return timings


def measure(programs: Mapping[str, Program], common: Cell, rounds: int) -> list[Cell]:
    """One cell per program, with its time as a multiple of the floor's."""
    timings = interleaved(programs, rounds=rounds)
    cells = []
    for name, timing in timings.items():
        median = timing["milliseconds"]
        cell = common | {"algorithm": name} | timing
        cell["samples_per_second"] = common["batch"] / median * 1e3
        if FLOOR in timings:
            cell["times_floor"] = median / timings[FLOOR]["milliseconds"]
        program = programs[name]
        if program.compiled is not None:
            memory = program.compiled.memory_analysis()
            collectives = hlo_text.read_collectives(program.compiled.as_text())
            cell["temporary_mib"] = memory.temp_size_in_bytes / 2**20
            cell["collectives"] = {kind: s["count"] for kind, s in collectives.items()}
            cell["compile_seconds"] = program.compile_seconds
        cells.append(cell)
    return cells


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


def table(cells: Sequence[Cell]) -> Table:
    """The cells as rows, with the columns that they have."""
    shown = Table(box=None, pad_edge=False)
    names = [n for n in dict.fromkeys(n for c in cells for n in c) if n not in HIDDEN]
    for name in names:
        shown.add_column(name.replace("_", " "), justify="right")
    for cell in cells:
        shown.add_row(*(_text(cell.get(name, "")) for name in names))
    return shown


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{n} {name}" for name, n in value.items()) or "none"
    if isinstance(value, list):
        return "-".join(map(_text, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)
