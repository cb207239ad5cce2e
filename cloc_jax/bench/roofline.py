"""How long a compiled step might take on its target: an estimate, not a measurement.

A device computes no faster than its peak and reads no faster than its memory allows, so
computing takes the longer of operations / peak and bytes / bandwidth. Communication is
added to that, as if none of it overlapped: a ring within a host or slice, one between
them, and a fixed time for each. Real steps compute for longer, since few operations
reach a peak, and may overlap some of the communication.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from cloc_jax.bench import targets
from cloc_jax.bench.compiled_programs import Costs
from cloc_jax.bench.hlo_costs import Collective

Row = dict[str, Any]  # an entry of compile.json

# Each byte of an array goes around the ring so many times.
_ROUNDS = {"all-reduce": 2.0, "collective-permute": 1.0}
_MATRIX = 1024
_COPIED = 2**26  # elements
_TRIES = 5
_LATENCY = 2e-5  # seconds, of devices that are threads of one process; assumed


class Estimate(NamedTuple):
    """Seconds of a step."""

    arithmetic: float  # if operations were all
    memory: float  # if reading and writing were all
    communication: float

    @property
    def computing(self) -> float:
        return max(self.arithmetic, self.memory)

    @property
    def step(self) -> float:
        return self.computing + self.communication


def estimate(costs: Costs, target: targets.Target, dtype: str) -> Estimate:
    """What a step would take, by the target's published figures."""
    figures = target.figures
    peak = figures.bfloat16 if dtype == "bfloat16" else figures.float32
    return Estimate(
        _ratio(costs.flops, peak),
        _ratio(costs.bytes_accessed, figures.bandwidth),
        sum(communication(c, target) for c in costs.collectives),
    )


def communication(collective: Collective, target: targets.Target) -> float:
    """Seconds of one communication.

    Over several hosts or slices an array is first reduced within each of them, so that
    every device then sends only its share to the others.
    """
    figures = target.figures
    devices = collective.devices or target.devices
    if devices == 1:
        return 0.0
    inside = min(devices, target.per_group)
    groups = -(-devices // inside)
    rounds = _ROUNDS.get(collective.kind, 1.0)
    within = rounds * (inside - 1) / inside * collective.bytes
    between = rounds * (groups - 1) / groups * collective.bytes / inside
    return (
        figures.latency
        + _ratio(within, figures.link)
        + _ratio(between, figures.network)
    )


def _ratio(amount: float, rate: float) -> float:
    return amount / rate if rate else 0.0


def measure_machine(target: targets.Target) -> targets.Target:
    """A CPU target with the speeds of this machine in place of those that are 0.

    Peak and bandwidth are those of a matrix product and of a copy on all cores, shared
    by the devices. Devices exchange through the same memory.
    """
    import jax
    import jax.numpy as jnp

    figures = target.figures
    square = jnp.ones((_MATRIX, _MATRIX), jnp.float32)
    long = jnp.ones(_COPIED, jnp.float32)
    product = _fastest(jax.jit(lambda x: x @ x), square)
    copy = _fastest(jax.jit(lambda x: x + 1), long)
    # One device keeps all cores busy with these, though not with everything.
    peak = 2 * _MATRIX**3 / product / target.devices
    bandwidth = 2 * long.nbytes / copy / target.devices
    measured = {
        "float32": peak,
        "bfloat16": peak,
        "bandwidth": bandwidth,
        "link": bandwidth,
        "network": bandwidth,
        "latency": _LATENCY,
    }
    given: dict[str, Any] = {
        name: value for name, value in measured.items() if not getattr(figures, name)
    }
    return target._replace(figures=figures._replace(**given))


def _fastest(function: Callable, argument: Any) -> float:
    import jax

    jax.block_until_ready(function(argument))
    seconds = []
    for _ in range(_TRIES):
        start = time.perf_counter()
        jax.block_until_ready(function(argument))
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def scaling(path: str | os.PathLike, rows: Sequence[Row]) -> None:
    """Saves the plot of `scaling_figure`."""
    from cloc_jax.report.figures import style

    style.save(scaling_figure(rows), path)


def scaling_figure(rows: Sequence[Row]):
    """Estimated samples per second against devices, with the parts of a step below.

    One line per program and batch; dashed is as many times one device's as there are
    devices. Rows of steps that did not fit are left out.
    """
    from matplotlib import ticker

    from cloc_jax.report.figures import style

    rows = [row for row in rows if row.get("estimate") and row["fits"]]
    if not rows:
        raise ValueError("no program fits, so there is nothing to draw.")
    colours = (style.BLUE, style.VERMILION, style.GREEN, style.ORANGE, style.PURPLE)
    figure = style.new_figure(7.0, 6.4)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    lines: dict[str, list[Row]] = {}
    for row in rows:
        lines.setdefault(f"{row['program']}, batch {row['batch']}", []).append(row)
    for i, (name, line) in enumerate(lines.items()):
        colour = colours[i % len(colours)]
        line = sorted(line, key=lambda row: row["devices"])
        devices = [row["devices"] for row in line]
        speed = [row["estimate"]["samples_per_second"] for row in line]
        above.plot(devices, speed, "o-", color=colour, label=name)
        ideal = [speed[0] * n / devices[0] for n in devices]
        above.plot(devices, ideal, "--", color=colour, linewidth=0.8, alpha=0.6)
        for key, form in (("computing", "o-"), ("communication", "^:")):
            # One device has nothing to communicate, and 0 no place on this axis.
            seen = [
                (n, row["estimate"][key]) for n, row in zip(devices, line, strict=True)
            ]
            points = [(n, seconds * 1e3) for n, seconds in seen if seconds]
            if points:
                places, heights = zip(*points, strict=True)
                below.plot(places, heights, form, color=colour, markersize=5)
    above.set_ylabel("Samples per second")
    below.set_ylabel("Milliseconds per step")
    below.set_xlabel("Devices")
    for axes in (above, below):
        style.tidy(axes)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
    ticks = sorted({row["devices"] for row in rows})
    below.set_xticks(ticks, [str(n) for n in ticks])
    below.xaxis.set_minor_locator(ticker.NullLocator())
    above.legend(frameon=False, fontsize=9)
    below.set_title(
        "circles: computing   triangles: communication", fontsize=9, color=style.FAINT
    )
    name = rows[0]["target"].partition(":")[0]
    above.set_title(f"Estimate for {name}, from its published figures")
    figure.supxlabel(
        "An estimate, not a measurement; dashed: as many times the first as devices",
        fontsize=9,
        color=style.FAINT,
    )
    return figure
