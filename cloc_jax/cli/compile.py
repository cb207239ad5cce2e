"""Compiles a run's programs for hardware that need not be here, and reads them."""

import pathlib
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict
from rich.table import Table

from cloc_jax.bench import compiled_programs, targets
from cloc_jax.runtime import environment, sharding
from cloc_jax.runtime.console import console
from cloc_jax.runtime.files import write_json

Row = dict[str, Any]
MIB = 2**20
COLUMNS = (
    "target",
    "program",
    "batch",
    "compile s",  # tracing and lowering + compiling
    "arguments",
    "outputs",
    "temporaries",
    "peak",
    "fits",
    "GFLOP",
    "collectives",
    "launches",
)


def compile_run(
    config: ConfigDict,
    folder: pathlib.Path,
    target: targets.Target,
    *,
    ranks: int,
    batches: Sequence[int],
    counts: Sequence[int],
    kinds: Sequence[str],
) -> list[Row]:
    """Compiles, prints a table and writes compile.json.

    Args:
      ranks: of the dataset, where its layout does not tell; 0 for what is known.
      batches: to try from the smallest on, until one does not fit; () for the run's.
      counts: numbers of devices; () for the target's own.
      kinds: of programs, some of step, evaluation and loss.
    """
    num_ranks = compiled_programs.number_of_ranks(config, ranks)
    batches = sorted(batches) or [config.train.batch_size]
    console.print(f"compiling for {target}")
    aims = [targets.of_size(target, n) for n in counts] if counts else [target]
    dividing = {aim: _that_divide(batches, aim) for aim in aims}
    if not any(dividing.values()):
        fewest = min(aim.devices for aim in aims)
        raise ValueError(
            f"a batch of {' or '.join(map(str, batches))} does not divide over the "
            f"devices; use a multiple of {fewest}, such as --batches={8 * fewest}."
        )
    written: Row = {"environment": environment.environment(), "programs": []}
    rows: list[Row] = written["programs"]
    folder.mkdir(parents=True, exist_ok=True)
    for aim, fitting in dividing.items():
        rows += _of_target(config, aim, num_ranks, fitting, kinds)
        write_json(folder / "compile.json", written)  # the next may take long
    console.print(table(rows))
    for line in largest_that_fit(rows):
        console.print(line)
    console.print(f"rows  {folder / 'compile.json'}", soft_wrap=True)
    return rows


def _that_divide(batches: Sequence[int], target: targets.Target) -> list[int]:
    """The batches that divide over a target's devices; says which others do not."""
    fitting = [batch for batch in batches if batch % target.devices == 0]
    left_out = [str(batch) for batch in batches if batch not in fitting]
    if left_out:
        console.print(
            f"  {target}: without batch {', '.join(left_out)}, not a multiple of its "
            f"{target.devices} devices"
        )
    return fitting


def _of_target(config, target, num_ranks, batches, kinds) -> list[Row]:
    mesh = sharding.mesh_of(targets.mesh_devices(target), config.mesh.shape)
    rows: list[Row] = []
    for batch in batches:
        changed = config.copy_and_resolve_references()
        changed.train.batch_size = batch
        found = [
            _row(program, target)
            for program in compiled_programs.programs(changed, num_ranks, mesh)
            if _kind(program.name) in kinds
        ]
        rows += found
        if not all(row["fits"] for row in found):
            break  # larger ones would not either
    return rows


def _kind(name: str) -> str:
    kind = name.split()[0]
    return "evaluation" if kind == "embeddings" else kind


def _row(program: compiled_programs.Program, target: targets.Target) -> Row:
    row: Row = {
        "program": program.name,
        "target": str(target),
        "devices": target.devices,
        "batch": program.batch,
    }
    where = f"{program.name}, batch {program.batch}, {target}"
    with console.status(f"compiling {where}"):
        try:
            costs = compiled_programs.compile_program(program, target.platform)
        except compiled_programs.TooLarge as error:
            console.print(f"  {where}: does not fit")
            return row | {"fits": False, "error": str(error)}
    seconds = costs.trace_seconds + costs.compile_seconds
    console.print(f"  {where}: {seconds:.0f} s")  # all may take long
    fits = costs.peak <= target.memory
    return row | {"memory": target.memory, "fits": fits} | costs._asdict()


def largest_that_fit(rows: Sequence[Row]) -> list[str]:
    """What fits of several batches, in words; [] of one batch."""
    if len({row["batch"] for row in rows if row["program"].startswith("step")}) < 2:
        return []
    said = []
    for target in dict.fromkeys(row["target"] for row in rows):
        mine = [r for r in rows if r["target"] == target]
        tried = {r["batch"] for r in mine if r["program"].startswith("step")}
        fit = {b for b in tried if all(r["fits"] for r in mine if r["batch"] == b)}
        said.append(
            f"{target}: the largest batch that fits, of those tried, is {max(fit)}"
            if fit
            else f"{target}: none of the batches fits"
        )
    return said


def table(rows: Sequence[Row]) -> Table:
    """The programs as rows: memory in MiB per device."""
    shown = Table(box=None, pad_edge=False)
    for name in COLUMNS:
        shown.add_column(name, justify="right")
    for row in rows:
        start = (row["target"], row["program"], str(row["batch"]))
        if "error" in row:
            shown.add_row(*start, "", "", "", "", "", "no")
            continue
        sizes = [row[k] for k in ("arguments", "outputs", "temporaries", "peak")]
        shown.add_row(
            *start,
            f"{row['trace_seconds']:.0f}+{row['compile_seconds']:.0f}",
            *(f"{size / MIB:.1f}" for size in sizes),
            "yes" if row["fits"] else "no",
            f"{row['flops'] / 1e9:.3g}" if row["flops"] else "",
            "\n".join(
                f"{sums['count']} {kind} {sums['bytes'] / MIB:.3g}"
                for kind, sums in row["collectives"].items()
            )
            or "none",
            str(row["launches"]),
        )
    return shown
