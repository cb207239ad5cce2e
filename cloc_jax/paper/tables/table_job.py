"""The paper's tables by one command: plan, train what is waiting, summarise, and write.

All runs lie side by side in one folder, so that tables share them, a further table adds
to them, and the same command goes on after an interruption.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from cloc_jax.paper import tables_page
from cloc_jax.paper.tables import merged_summaries, summaries
from cloc_jax.paper.tables.table_plans import Planned, Request, how_to_get
from cloc_jax.report import published
from cloc_jax.runtime.console import console
from cloc_jax.runtime.files import write_sealed
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.sweeps.engines import Options, carry_out
from cloc_jax.sweeps.engines.driver import (
    LISTED,
    check_same,
    read_failures,
    read_listed,
)
from cloc_jax.sweeps.engines.task_files import is_finished, make_tasks
from cloc_jax.sweeps.run_plan import Plan

SUMMARIES = "summaries"  # in the folder of the runs


def train(planned: Planned, folder: pathlib.Path, options: Options) -> dict[str, str]:
    """Trains the runs that are not finished; why some could not be."""
    for dataset, how in planned.absent.items():
        console.print(f"{dataset}: {how}", soft_wrap=True)
    if not planned.plans:
        return {}
    return carry_out(
        planned.plans, folder, options, is_open=True, entries=planned.entries
    )


def write(
    request: Request,
    planned: Planned,
    folder: pathlib.Path,
    *,
    to: pathlib.Path,
    kept: pathlib.Path,
) -> list[pathlib.Path]:
    """Writes summaries of all runs in the folder, and the page.

    Args:
      request: what was asked for; its tables and datasets are shown.
      planned: its runs.
      folder: of the runs, those of earlier commands too.
      to: folder of the page.
      kept: folder of the summaries.
    """
    found = make_summaries(folder)
    _keep(found, kept)
    shown = [one for one in found if one["dataset"] in request.data]
    absent = {name: how_to_get(name) for name in planned.absent}
    sections = tables_page.sections(
        shown, only=request.only, data=request.data, absent=absent
    )
    return tables_page.write(to, sections, shown)


def rebuild(
    sources: Sequence[pathlib.Path],
    to: pathlib.Path,
    *,
    only: Sequence[str],
    data: Sequence[str],
    kept: pathlib.Path | None = None,
) -> list[pathlib.Path]:
    """Writes the page from summaries alone.

    Args:
      sources: folders of summaries, which are merged.
      to: folder of the page.
      only: tables to show.
      data: datasets to show; all of them where there is none.
      kept: folder where the merged summaries go.
    """
    found = [one for source in sources for one in summaries.read(source)]
    found = merged_summaries.merge(found)
    if kept:
        _keep(found, kept)
    shown = [one for one in found if not data or one["dataset"] in data]
    wanted = list(data) or [*published.DATASETS, "clap2015"]
    here = {one["dataset"] for one in shown}
    absent = {name: how_to_get(name) for name in wanted if name not in here}
    sections = tables_page.sections(shown, only=only, data=data, absent=absent)
    return tables_page.write(to, sections, shown)


def _keep(found: Sequence[Mapping[str, Any]], folder: pathlib.Path) -> None:
    """Writes summaries under their usual names."""
    folder.mkdir(parents=True, exist_ok=True)
    for one in found:
        write_sealed(folder / f"{one['dataset']}-{one['protocol']}.json", dict(one))


def make_summaries(folder: pathlib.Path) -> list[dict[str, Any]]:
    """Of every dataset and protocol that the folder has finished runs of."""
    path = folder / LISTED
    if not path.exists():
        return []
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in read_listed(path):
        groups.setdefault((run["dataset"], run["protocol"]), []).append(run)
    failed = read_failures(folder)
    found = [summaries.summarize(folder, runs, failed) for runs in groups.values()]
    return [one for one in found if one]


def dry_run(planned: Planned, folder: pathlib.Path) -> None:
    """Prints the runs, how many are finished, and hours that the others may take."""
    for plan in planned.plans:
        check_same(folder, plan)
    spent = _spent(folder, planned)
    table = Table(box=None, pad_edge=False)
    for name in ("dataset", "setting", "seeds", "runs", "finished", "hours left"):
        table.add_column(
            name, justify="left" if name in ("dataset", "setting") else "right"
        )
    known, unknown = 0.0, 0
    for (dataset, setting), plans in _grouped(planned).items():
        waiting = [p for p in plans if not is_finished(folder, p)]
        hours = _hours(waiting, dataset, spent)
        known += hours or 0.0
        unknown += len(waiting) if hours is None else 0
        left = "" if not waiting else "?" if hours is None else f"{hours:.2f}"
        table.add_row(
            dataset,
            setting,
            " ".join(map(str, dict.fromkeys(p.config.seed for p in plans))),
            str(len(plans)),
            str(len(plans) - len(waiting)),
            left,
        )
    console.print(table)
    done = sum(is_finished(folder, p) for p in planned.plans)
    tasks = len(make_tasks([p for p in planned.plans if not is_finished(folder, p)]))
    console.print(
        f"{len(planned.plans)} runs, {done} finished; {tasks} tasks to train in "
        f"{folder}",
        soft_wrap=True,
    )
    console.print(_estimate(known, unknown), soft_wrap=True)
    for dataset, how in planned.absent.items():
        console.print(f"{dataset}: {how}", soft_wrap=True)


def _estimate(known: float, unknown: int) -> str:
    spent = f"about {known:.1f} hours" if known >= 1 else f"about {60 * known:.0f} min"
    if not unknown:
        return f"{spent} left, on one machine like those of the finished runs"
    more = f"{spent}, and " if known else ""
    return (
        f"{more}{unknown} runs of which none like them is finished, so that their time "
        "is not known yet"
    )


def _grouped(planned: Planned) -> dict[tuple[str, str], list[Plan]]:
    """Plans by dataset and setting."""
    found: dict[tuple[str, str], list[Plan]] = {}
    for plan in planned.plans:
        dataset = planned.entries[plan.name]["dataset"]
        found.setdefault((dataset, plan.setting), []).append(plan)
    return found


def _spent(
    folder: pathlib.Path, planned: Planned
) -> dict[tuple[str, str, str], list[float]]:
    """Seconds of finished runs by dataset, method and setting."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for plan in planned.plans:
        if is_finished(folder, plan):
            seconds = RunFolder(folder / plan.name).read_metrics()["seconds"]["total"]
            dataset = planned.entries[plan.name]["dataset"]
            key = (dataset, plan.config.method.name, plan.setting)
            found.setdefault(key, []).append(seconds)
    return found


def _hours(
    waiting: Sequence[Plan],
    dataset: str,
    spent: Mapping[tuple[str, str, str], list[float]],
) -> float | None:
    """By finished runs of the same setting, else method, else dataset; or None.

    Runs that are one program each count its whole time, so they cost it once.
    """
    if not waiting:
        return 0.0
    method, setting = waiting[0].config.method.name, waiting[0].setting
    alike = (
        [v for k, v in spent.items() if k == (dataset, method, setting)],
        [v for k, v in spent.items() if k[:2] == (dataset, method)],
        [v for k, v in spent.items() if k[0] == dataset],
    )
    for found in alike:
        seconds = [value for values in found for value in values]
        if seconds:
            return len(make_tasks(waiting)) * sum(seconds) / len(seconds) / 3600
    return None
