"""Timing programs side by side, and reading what the compiler made of them."""

import os
import pathlib
import resource
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from cloc_jax.bench import hlo_costs


class Timing(NamedTuple):
    """Seconds a call, over the rounds."""

    median: float
    low: float  # first quartile
    high: float  # third quartile


class Program(NamedTuple):
    """Something to time: a call that waits for its result."""

    call: Callable[[], Any]
    compiled: Any = None  # by JAX, where it was
    compile_seconds: float = 0.0
    most_calls: int = 10**9  # for programs so slow that a few calls must do


def compiled(function, *arguments) -> Program:
    """A function compiled for arguments, before any clock runs."""
    start = time.perf_counter()
    program = jax.jit(function).lower(*arguments).compile()
    seconds = time.perf_counter() - start
    return Program(lambda: jax.block_until_ready(program(*arguments)), program, seconds)


def interleaved(
    programs: Mapping[str, Program], *, rounds: int, warm_up: int = 2
) -> dict[str, Timing]:
    """Times programs in turn, round by round, so that a slow moment hits them all."""
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(warm_up + rounds):
        for name, program in programs.items():
            if turn >= program.most_calls:
                continue
            start = time.perf_counter()
            program.call()
            if turn >= min(warm_up, program.most_calls - 1):
                seconds[name].append(time.perf_counter() - start)
    return {
        name: Timing(*(float(np.quantile(s, q)) for q in (0.5, 0.25, 0.75)))
        for name, s in seconds.items()
    }


def temporary_bytes(program: Program) -> int:
    """Memory a program needs on a device besides its arguments and results."""
    return int(program.compiled.memory_analysis().temp_size_in_bytes)


def collectives(program: Program) -> dict[str, int]:
    """How many communications of each kind the compiled program has."""
    found = hlo_costs.read_collectives(program.compiled.as_text())
    return {kind: sums["count"] for kind, sums in hlo_costs.summarise(found).items()}


def resident_bytes() -> int:
    """Memory that this process holds; where that is not told, the most it ever held."""
    try:
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")
