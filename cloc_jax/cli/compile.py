"""Compiles a run's programs for hardware that need not be here, and reads them."""

import pathlib
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from cloc_jax.bench import compiled_programs, measurement
from cloc_jax.bench.targets import Target, mesh_devices
from cloc_jax.runtime import environment, sharding
from cloc_jax.runtime.console import console
from cloc_jax.runtime.files import write_json

Row = dict[str, Any]
MIB = 2**20


def compile_run(
    config: ConfigDict,
    folder: pathlib.Path,
    targets: Sequence[Target],
    *,
    ranks: int,
    batches: Sequence[int],
    kinds: Sequence[str],
) -> list[Row]:
    """Compiles, prints a table and writes compile.json.

    Batches, the run's own if none is given, are tried from the smallest on, until one
    does not fit.
    """
    batches = sorted(batches) or [config.train.batch_size]
    rows: list[Row] = []
    for target in targets:
        for batch in batches:
            if batch % target.devices:
                console.print(f"  batch {batch} does not divide over {target}")
                continue
            compiled = _of_batch(config, target, ranks, batch, kinds)
            rows += compiled
            folder.mkdir(parents=True, exist_ok=True)
            written = {"environment": environment.environment(), "programs": rows}
            write_json(folder / "compile.json", written)  # the next may take long
            if not all(row["fits"] for row in compiled):
                break  # larger ones would not either
    if not rows:
        raise ValueError(
            f"a batch of {' or '.join(map(str, batches))} does not divide over the "
            "devices; give multiples of their number with --batches."
        )
    console.print(measurement.table([_cell(row) for row in rows]))
    console.print(f"rows  {folder / 'compile.json'}", soft_wrap=True)
    return rows


def _of_batch(config, target, ranks, batch, kinds) -> list[Row]:
    config = config.copy_and_resolve_references()
    config.train.batch_size = batch
    mesh = sharding.mesh_of(mesh_devices(target), config.mesh.shape)
    return [
        _row(program, target)
        for program in compiled_programs.programs(config, ranks, mesh)
        if program.name.split()[0] in kinds
    ]


def _row(program: compiled_programs.Program, target: Target) -> Row:
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
    seconds = costs["trace_seconds"] + costs["compile_seconds"]
    console.print(f"  {where}: {seconds:.0f} s")  # all may take long
    fits = costs["peak"] <= target.memory
    return row | {"memory": target.memory, "fits": fits} | costs


def _cell(row: Row) -> Row:
    """What the table shows of a row: sizes in MiB per device."""
    cell = {name: row[name] for name in ("target", "program", "batch")}
    cell["fits"] = "yes" if row["fits"] else "no"
    if "error" in row:
        return cell
    cell["compile s"] = f"{row['trace_seconds']:.0f}+{row['compile_seconds']:.0f}"
    for name in ("arguments", "outputs", "temporaries", "peak"):
        cell[name] = f"{row[name] / MIB:.1f}"
    sums = row["collectives"].items()
    lines = [f"{of['count']} {kind} {of['bytes'] / MIB:.3g}" for kind, of in sums]
    return cell | {
        "collectives": "\n".join(lines) or "none",
        "launches": row["launches"],
    }
