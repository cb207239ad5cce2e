"""Sweeps: one experiment with several settings and seeds, and one summary of them.

Every run of a sweep is a run folder like any other, so it can be evaluated, reported
and used to predict. Runs that are finished are never repeated: the same command goes on
where it was interrupted.
"""

import ast
import contextlib
import copy
import itertools
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from ml_collections import ConfigDict
from rich.table import Table

from cloc_jax.build import assembly, encoder, saved_config
from cloc_jax.build.dataset import build_dataset
from cloc_jax.build.trained_run import TrainedRun
from cloc_jax.data import datasets
from cloc_jax.report import run_scores
from cloc_jax.runtime import (
    atomic_files,
    checked_files,
    processes,
    run_lock,
    sharding,
)
from cloc_jax.runtime.console import console, print_warnings
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.studies.run_plan import FOLD, SEED, Plan, Setting, plan_runs
from cloc_jax.training import loop
from cloc_jax.training.many_runs import FREE, train_together

REPEATS = (SEED, FOLD)  # what the summary takes the mean over
SCORES = ("accuracy", "mae", "qwk")


def sweep(
    config: ConfigDict,
    folder: pathlib.Path,
    *,
    vary: Sequence[str],
    seeds: int,
    folds: str = "",
) -> dict[str, Any]:
    """Trains every combination of settings and seeds and writes a summary.

    Args:
      config: what all runs have in common.
      folder: of the sweep; each run has its own below it.
      vary: settings and their values, each as "method.cloc.weight=0.5;1;2".
      seeds: runs a combination, with seeds from config.seed on.
      folds: of the dataset, as "all" or "0,3", each with every seed; "" for the
        configured one alone.
    """
    chosen = _folds(config.data.name, folds)
    plans = plan_runs(config, combinations(vary), seeds=seeds, folds=chosen)
    run(plans, folder)
    summary = summarize(folder, plans)
    atomic_files.write_json(folder / "summary.json", summary)
    _write_csv(folder / "summary.csv", summary)
    _show(summary)
    console.print(f"written to {folder / 'summary.json'}", soft_wrap=True)
    return summary


def run(plans: Sequence[Plan], folder: pathlib.Path) -> None:
    """Trains and scores those of the runs that are not finished yet.

    All of them are checked before the first is trained.
    """
    with _held(folder, is_new=True):
        _begin(folder, plans)
        waiting = [p for p in plans if not _is_finished(RunFolder(folder / p.name))]
        if len(waiting) < len(plans):
            done = len(plans) - len(waiting)
            console.print(f"{done} of {len(plans)} runs are finished")
        for group in _groups(waiting):
            if len(group) > 1:
                _run_together(group, folder)
            else:
                _run_alone(group[0], folder)


def _held(folder: pathlib.Path, *, is_new: bool = False) -> Any:
    """A context in which only the processes of this sweep write into a folder."""
    if processes.is_first():
        return run_lock.held(folder, "sweep", is_new=is_new)
    return contextlib.nullcontext()


def _is_finished(run: RunFolder) -> bool:
    """Whether the run has results; damaged ones are made again, which is said."""
    try:
        return run.is_finished()
    except checked_files.Damaged as error:
        console.print(f"{error.path} is damaged and made again", soft_wrap=True)
        run.metrics.unlink(missing_ok=True)
        return False


def combinations(vary: Sequence[str]) -> list[Setting]:
    """Every combination of the values of `vary`, each as "method.cloc.weight=0.5;1"."""
    varied = [_parse(text) for text in vary]
    names = [name for name, _ in varied]
    if len(set(names)) < len(names) or set(names) & set(REPEATS):
        raise ValueError(
            f"--vary names {', '.join(names)}; give each setting once, seeds by "
            "--seeds and folds by --folds."
        )
    settings = []
    for texts in itertools.product(*(values for _, values in varied)):
        pairs = list(zip(names, texts, strict=True))
        short = ",".join(f"{name.split('.')[-1]}={text}" for name, text in pairs)
        settings.append(Setting(short, {name: _value(text) for name, text in pairs}))
    return settings


def _folds(dataset: str, text: str) -> list[int]:
    layout = datasets.LAYOUTS.get(dataset)
    count = layout.protocol.folds if layout else 0
    if not text:
        return []
    if not count:
        raise ValueError(
            f"--folds is {text}, but the dataset {dataset!r} has no folds."
        )
    try:
        chosen = (
            list(range(count)) if text == "all" else list(map(int, text.split(",")))
        )
    except ValueError:
        chosen = [-1]
    if not set(chosen) <= set(range(count)):
        raise ValueError(
            f"--folds is {text}; write all, or some of 0 to {count - 1} with commas "
            "between them."
        )
    return chosen


def _parse(text: str) -> tuple[str, list[str]]:
    name, separator, values = text.partition("=")
    listed = [v.strip() for v in values.split(";") if v.strip()]
    if not separator or not listed:
        raise ValueError(
            f"--vary is {text!r}; write a setting and its values with semicolons "
            "between them, such as --vary='method.cloc.weight=0.5;1;2'."
        )
    return name.strip().removeprefix("config."), listed


def _value(text: str) -> Any:
    """A value as the command line would read it: a literal, or a plain word."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _begin(folder: pathlib.Path, plans: Sequence[Plan]) -> None:
    """Notes what the sweep is; refuses a folder that is something else."""
    about = {"runs": [{"name": p.name, **p.overrides} for p in plans]}
    path = folder / "sweep.json"
    if path.exists():
        remedy = "Put back a copy, or move it away: this command then writes it anew."
        found = checked_files.read_json(path, remedy=remedy, fields=("runs",))
        before = {run["name"] for run in found["runs"]}
        if not before <= {p.name for p in plans}:
            raise FileExistsError(
                f"{folder} holds another sweep, with runs such as "
                f"{sorted(before)[0]}; give this one another --run folder."
            )
    elif folder.exists() and not _is_only_runs(folder, plans):
        raise FileExistsError(
            f"{folder} holds files that are not a sweep; give another --run folder."
        )
    folder.mkdir(parents=True, exist_ok=True)
    _check(plans)
    for p in plans:
        run = RunFolder(folder / p.name)
        if run.config.exists():
            saved = saved_config.read(run.read_config(), copy.deepcopy(p.config))
            if _plain(saved) != _plain(p.config):
                raise ValueError(
                    f"{run.path} was made with other settings than this command's; "
                    "give another --run folder."
                )
    checked_files.write_json(path, about)


def _is_only_runs(folder: pathlib.Path, plans: Sequence[Plan]) -> bool:
    """Whether a folder without sweep.json holds nothing but runs of this sweep."""
    ours = {p.name for p in plans} | {"trunk"}
    return all(path.name in ours for path in run_lock.leftovers(folder))


def _check(plans: Sequence[Plan]) -> None:
    """ValueError where one of the runs could not be trained as it is set."""
    loaded: dict[str, datasets.Dataset] = {}
    checked: set[str] = set()
    for p in plans:
        config = copy.deepcopy(p.config)
        config.seed = config.data.permute = 0
        setting = config.to_json(sort_keys=True)
        if setting in checked:
            continue
        checked.add(setting)
        # Runs of a sweep differ in their data by folds at most, as a rule.
        images = json.dumps([config.data.to_dict(), config.augment.to_dict()])
        try:
            if images not in loaded:
                loaded[images] = build_dataset(config)
            parts = assembly.check(config, loaded[images])
            sharding.check_batch(config.train.batch_size, parts.mesh)
        except ValueError as error:
            raise ValueError(f"run {p.name}: {error}") from None


def _plain(config: ConfigDict) -> Any:
    return json.loads(json.dumps(config.to_dict()))


def _groups(plans: Sequence[Plan]) -> list[list[Plan]]:
    """Runs that can be trained as one program stand together."""
    groups: dict[str, list[Plan]] = {}
    for p in plans:
        key = p.name
        if p.config.encoder.frozen:
            same = copy.deepcopy(p.config)
            shared = "shared" in str(
                same.method.cloc.margins
            )  # one value, another shape
            # A frozen encoder that was drawn at random is another one by seed.
            drawn = encoder.weights_of(same) is None and same.seed
            with same.ignore_type():
                same.update_from_flattened_dict(dict.fromkeys(FREE, 0))
            key = f"{shared} {drawn} {same.to_json(sort_keys=True)}"
        groups.setdefault(key, []).append(p)
    return list(groups.values())


def _run_together(plans: Sequence[Plan], folder: pathlib.Path) -> None:
    common = copy.deepcopy(plans[0].config)
    common.data.permute = 0
    dataset = build_dataset(common)
    print_warnings(dataset)
    parts = assembly.build(common, dataset=dataset)
    runs = [RunFolder(folder / p.name) for p in plans]
    with contextlib.ExitStack() as stack:
        for run in runs:
            stack.enter_context(_held(run.path, is_new=True))
            run.clear()  # they start anew together
        finished = train_together([p.config for p in plans], runs, parts)
        for p, run in zip(plans, runs, strict=True):
            if any(run.path == done.path for done in finished):
                own = assembly.with_method(parts, p.config)
                run_scores.score(TrainedRun(p.config, run, own), own)


def _run_alone(one: Plan, folder: pathlib.Path) -> None:
    run = RunFolder(folder / one.name)
    console.print(f"run {one.name}", soft_wrap=True)
    with _held(run.path, is_new=True):
        loop.train(one.config, run, resume=run.config.exists())
        parts = assembly.build(one.config, run)
        run_scores.score(TrainedRun(one.config, run, parts), parts)


def summarize(folder: pathlib.Path, plans: Sequence[Plan]) -> dict[str, Any]:
    """Mean and standard deviation over seeds and folds for each combination."""
    cells: dict[str, dict[str, Any]] = {}
    for p in plans:
        path = RunFolder(folder / p.name).metrics
        settings = {k: v for k, v in p.overrides.items() if k not in REPEATS}
        cell = cells.setdefault(
            json.dumps(settings), {"settings": settings, "runs": [], "unfinished": []}
        )
        if not path.exists():
            cell["unfinished"].append(p.name)
            continue
        found = RunFolder(folder / p.name).read_metrics()
        test, val = found["final"]["test"], found["final"]["val"]
        scores = {name: test[name] for name in SCORES}
        for boundary in found["critical"]:
            rates = test["boundaries"][boundary]
            scores[f"error {boundary}"] = rates["error_rate"]
            scores[f"crossing {boundary}"] = rates["crossing_rate"]
        cell["runs"].append(
            {
                "name": p.name,
                "val": {name: val[name] for name in SCORES},
                "test": scores,
                "margins": found["margins"],
            }
        )
    for cell in cells.values():
        for split in ("val", "test"):
            names = cell["runs"][0][split] if cell["runs"] else ()
            cell[split] = {
                name: _spread([run[split][name] for run in cell["runs"]])
                for name in names
            }
    return {"cells": list(cells.values())}


def _spread(values: Sequence[float | None]) -> dict[str, float | int | None]:
    known = [v for v in values if v is not None]
    if not known:
        return {"mean": None, "std": None, "count": 0}
    std = float(np.std(known, ddof=1)) if len(known) > 1 else None
    return {"mean": float(np.mean(known)), "std": std, "count": len(known)}


def _write_csv(path: pathlib.Path, summary: dict[str, Any]) -> None:
    rows = []
    for cell in summary["cells"]:
        for run in cell["runs"]:
            val = {f"val {name}": value for name, value in run["val"].items()}
            rows.append({"run": run["name"]} | val | run["test"])
    columns = list(rows[0]) if rows else ["run"]
    table = [[row.get(column, "") for column in columns] for row in rows]
    atomic_files.write_csv(path, [columns, *table])


def _show(summary: dict[str, Any]) -> None:
    table = Table(box=None, pad_edge=False)
    columns: dict[str, None] = {}
    shown = [
        {f"val {k}": v for k, v in cell["val"].items()} | cell["test"]
        for cell in summary["cells"]
    ]
    for scores in shown:
        columns |= dict.fromkeys(scores)
    for name in ("settings", "runs", *columns):
        table.add_column(name, justify="left" if name == "settings" else "right")
    for cell, scores in zip(summary["cells"], shown, strict=True):
        settings = "  ".join(f"{k}={v}" for k, v in cell["settings"].items())
        row = [settings or "(as configured)", str(len(cell["runs"]))]
        for name in columns:
            spread = scores.get(name, {"mean": None})
            if spread["mean"] is None:
                row.append("")
            elif spread["std"] is None:
                row.append(f"{spread['mean']:.3f}")
            else:
                row.append(f"{spread['mean']:.3f} ± {spread['std']:.3f}")
        table.add_row(*row)
    console.print(table)
    for cell in summary["cells"]:
        for name in cell["unfinished"]:
            console.print(f"not finished: {name}", soft_wrap=True)
