"""Sweeps: one experiment with several settings and seeds, and one summary of them.

Every run of a sweep is a run folder like any other. The same command goes on where it
was interrupted. The summary has means over seeds and folds: JSON, CSV and a table.
"""

import contextlib
import copy
import itertools
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict
from ml_collections.config_flags import config_path
from rich.table import Table

from cloc_jax.config import check_settings, saved_config
from cloc_jax.data import datasets
from cloc_jax.runtime import files
from cloc_jax.runtime.console import console
from cloc_jax.runtime.run_folder import RunFolder, changed_images
from cloc_jax.scoring import results
from cloc_jax.scoring.results import Spread, Summary, SummaryCell, SummaryRun
from cloc_jax.sweeps import executors
from cloc_jax.sweeps.executors import Options, Plan

SEED, FOLD = "seed", "data.fold"
LOCAL = Options()
LISTED = "sweep.json"
# What lies beside runs; the last are of `tables`, which are there without any run.
NOT_RUNS = {"trunk", executors.COMMANDS, "summaries", "tables.md"}
# What the weights decide: filled in by whoever loads them.
RESOLVED = ("stride", "epsilon", "preprocessing")
SCORES = ("accuracy", "mae", "qwk")
# What settings can be chosen by: more is better, or less.
MORE = ("accuracy", "qwk", "one_off_accuracy", "minimum_sensitivity", "gmsec")
LESS = ("mae", "macro_mae", "max_mae", "nll", "rps")
RATES = ("error", "crossing")  # of a critical boundary, as "error 1|2"; less is better
# In the summary and to choose by, not printed.
MORE_SCORES = tuple(s for s in MORE + LESS if s not in SCORES)
Scores = dict[str, float | None]


class Setting(NamedTuple):
    """One of the settings that are compared."""

    name: str
    overrides: Mapping[str, Any]  # of the configuration, by dotted name


def sweep(
    config: ConfigDict,
    folder: pathlib.Path,
    settings: Sequence[Setting],
    *,
    seeds: int,
    folds: str = "",
    options: Options = LOCAL,
    choose: str = "",
) -> Summary:
    """Trains every setting with every seed and writes a summary.

    Settings have `seeds` runs each, from config.seed on, on each of the `folds`: "all"
    or "0,3"; "" for the configured one alone. With `choose`, a score of the validation
    data, settings are ranked by it; the summary then says nothing of the test data, and
    the best one becomes a configuration.
    """
    if choose:
        check_choice(choose, settings, config.data.critical)
    numbers = folds_of(config.data.name, folds)
    plans = plan_runs(config, settings, seeds=seeds, folds=numbers)
    train_runs(plans, folder, options)
    found, more = summarize(folder, plans, is_choosing=bool(choose)), {}
    if choose:
        found = rank_cells(found, choose)
        best = found.cells[0]
        chosen = {"settings": best.settings, "val": files.to_plain(best.val[choose])}
        more = {"choose": choose, "chosen": chosen}
    files.write_sealed(folder / "summary.json", found.to_json() | more)
    _write_csv(folder / "summary.csv", found)
    _show(found, choose)
    console.print(f"written to {folder / 'summary.json'}", soft_wrap=True)
    if choose:
        _write_choice(folder, found.cells[0], choose, config)
    return found


# --- the runs: a configuration for each setting, fold and seed ---


def plan_runs(
    config: ConfigDict,
    settings: Sequence[Setting],
    *,
    seeds: int,
    folds: Sequence[int] = (),
) -> list[Plan]:
    """Every setting with every fold and seed, all of them checked."""
    plans = []
    repeats = itertools.product(
        settings, list(folds) or [-1], range(config.seed, config.seed + seeds)
    )
    for setting, fold, seed in repeats:
        overrides = dict(setting.overrides)
        if folds:
            overrides[FOLD] = fold
        overrides[SEED] = seed
        own = changed(config, overrides)
        check_settings(own)
        name = run_name(setting.name, seed, fold if folds else None)
        plans.append(Plan(name, setting.name, overrides, own))
    if len({p.name for p in plans}) < len(plans):
        raise ValueError("two of the runs are the same; give each value once.")
    return plans


def check_plans(plans: Sequence[Plan], finished: Mapping[str, RunFolder]) -> None:
    """ValueError where one of the runs could not be trained as it is set.

    Also where its images are not those of a finished run, given by settings of data.
    """
    from cloc_jax.runtime import sharding  # late: it loads JAX
    from cloc_jax.training import assembly, encoder

    checked: set[str] = set()
    for plan in plans:
        config = copy.deepcopy(plan.config)
        config.seed = config.data.permute = 0
        if (setting := config.to_json(sort_keys=True)) in checked:
            continue
        checked.add(setting)
        try:
            dataset = assembly.build_dataset(config)
            parts = assembly.check(encoder.resolve(config), dataset)
            sharding.check_batch(config.train.batch_size, parts.mesh)
            if run := finished.get(plan.config.data.to_json(sort_keys=True)):
                run.check_images(parts.describe())
        except ValueError as error:
            raise ValueError(f"run {plan.name}: {error}") from None


def check_images(folder: pathlib.Path, plans: Sequence[Plan]) -> None:
    """ValueError where finished runs on the same data were trained on other images.

    Labels and splits are compared, too, where settings of data are the same.
    """
    seen: dict[Any, RunFolder] = {}
    for plan in plans:
        if not is_finished(folder, plan):
            continue
        run, data = RunFolder(folder / plan.name), plan.config.data
        place, settings = (data.name, data.root, data.csv), data.to_json(sort_keys=True)
        other = seen.get(settings) or seen.get(place, run)
        changes = changed_images(
            other.read_dataset(),
            run.read_dataset(),
            is_of_files=settings not in seen,
        )
        if changes:
            raise ValueError(
                f"{run.path} was trained on other images than {other.path}, so there "
                f"is no summary of both: {changes}. Restore the images and move away "
                "the runs that were trained on others, or give another --run folder."
            )
        seen |= {key: seen.get(key, run) for key in (place, settings)}


def run_name(setting: str, seed: int, fold: int | None = None) -> str:
    """The name of the folder of a run."""
    parts = [setting, "" if fold is None else f"fold={fold}", f"seed={seed}"]
    return re.sub(r"[^\w.=,>|-]+", "_", ",".join(filter(None, parts))).strip("_")


def describe(settings: Mapping[str, Any]) -> str:
    """Settings in one line."""
    return "  ".join(f"{k}={v}" for k, v in settings.items()) or "(as configured)"


def changed(config: ConfigDict, overrides: Mapping[str, Any]) -> ConfigDict:
    """The configuration with fields set by their dotted names."""
    own = copy.deepcopy(config)
    for name, value in overrides.items():
        set_value(own, name, value)
    return own


def set_value(config: ConfigDict, name: str, value: Any) -> None:
    """Sets a field by its dotted name; ValueError where the schema forbids it.

    What looks like a number may be text, and true a boolean.
    """
    try:
        kind = config_path.get_type(name, config)
        if kind is bool and str(value).lower() in ("true", "false"):
            value = str(value).lower() == "true"
        config_path.set_value(name, config, str(value) if kind is str else value)
    except (KeyError, AttributeError, TypeError, ValueError, IndexError) as error:
        raise ValueError(
            f"{name} cannot be set to {value!r}, which cloc_jax/config.py does not "
            f"allow: {str(error).splitlines()[0]}"
        ) from None


def folds_of(dataset: str, text: str) -> list[int]:
    """The folds that `text` names, "all" or "0,3"; [] where it is empty."""
    if not text:
        return []
    layout = datasets.LAYOUTS.get(dataset)
    known = [str(fold) for fold in range(layout.folds if layout else 0)]
    words = known if text == "all" else [word.strip() for word in text.split(",")]
    if not known or not set(words) <= set(known):
        there = (
            f"folds 0 to {known[-1]}; write all, or some of them" if known else "none"
        )
        raise ValueError(f"--folds is {text}, but the dataset {dataset!r} has {there}.")
    return [int(word) for word in words]


# --- training ---


def train_runs(
    plans: Sequence[Plan],
    folder: pathlib.Path,
    options: Options = LOCAL,
    *,
    is_open: bool = False,
) -> dict[str, str]:
    """Trains and scores the runs that are not finished; why some could not be, by name.

    With `is_open` the folder may hold further runs, and all of these may fail.
    """
    executors.check_options(options)
    waiting = [plan for plan in plans if not is_finished(folder, plan)]
    check_images(folder, plans)
    if options.is_in_process and not is_open:
        finished = {
            plan.config.data.to_json(sort_keys=True): RunFolder(folder / plan.name)
            for plan in plans
            if plan not in waiting
        }
        # Before anything is made; commands check their own runs.
        check_plans(waiting, finished)
    list_runs(folder, plans, is_open=is_open)
    if len(waiting) < len(plans):
        console.print(f"{len(plans) - len(waiting)} of {len(plans)} runs are finished")
    for plan in waiting:
        RunFolder(folder / plan.name).failed.unlink(missing_ok=True)  # tried again
    lost = executors.train(waiting, folder, options) if waiting else {}
    failed = {}
    check_images(folder, plans)
    for plan in waiting:
        run = RunFolder(folder / plan.name)
        if is_finished(folder, plan):
            continue
        if not run.read_failure():
            log = folder / executors.COMMANDS / f"{plan.name}.log"
            run.write_failure(f"{lost.get(plan.name, 'it has no results')}; see {log}")
        failed[plan.name] = run.read_failure()
        console.print(f"not finished: {plan.name}: {failed[plan.name]}", soft_wrap=True)
    if failed and not is_open and len(failed) == len(plans):
        raise ValueError(
            f"none of the {len(plans)} runs finished; the first one said: "
            f"{next(iter(failed.values()))}"
        )
    return failed


def list_runs(
    folder: pathlib.Path, plans: Sequence[Plan], *, is_open: bool = False
) -> None:
    """Writes what the runs of a folder are; refuses a folder that is something else."""
    path, names = folder / LISTED, {plan.name for plan in plans}
    if path.exists():
        remedy = "Put back a copy, or move it away: this command then writes it anew."
        fields = {"runs": list[dict[str, Any]]}
        listed = files.read_sealed(path, remedy=remedy, fields=fields)["runs"]
        before = {str(run.get("name")) for run in listed} - names
        if before and not is_open:
            raise FileExistsError(
                f"{folder} holds another sweep, with runs such as {min(before)}; give "
                "this one another --run folder."
            )
    elif folder.exists():
        there = {p.name for p in folder.iterdir() if not files.is_part(p)}
        if there - NOT_RUNS and there.isdisjoint(names):
            raise FileExistsError(
                f"{folder} holds files that are not a sweep; give another --run folder."
            )
    for plan in plans:
        check_same(folder, plan)
    folder.mkdir(parents=True, exist_ok=True)
    if is_open and path.exists():
        return
    runs = [] if is_open else [{"name": p.name, **p.overrides} for p in plans]
    try:
        with contextlib.nullcontext() if path.exists() else files.claimed(path):
            files.write_sealed(path, {"runs": runs})
    except FileExistsError:
        raise FileExistsError(
            f"another command began with {folder} at the same moment; repeat this one, "
            "which goes on with its runs or says that they are others."
        ) from None


def check_same(folder: pathlib.Path, plan: Plan) -> None:
    """ValueError where the run that lies there was made with other settings.

    FileExistsError where something lies there that is no run.
    """
    run = RunFolder(folder / plan.name)
    if not run.config.exists():
        run.check_new()
        return
    before, now = saved_config(run.read_config()).to_dict(), plan.config.to_dict()
    for field in RESOLVED:
        now["encoder"][field] = now["encoder"][field] or before["encoder"][field]
    run.check_settings(before, now)


def is_finished(folder: pathlib.Path, plan: Plan) -> bool:
    """Whether a run has been trained and scored, and its results are whole."""
    with contextlib.suppress(files.Damaged):
        return RunFolder(folder / plan.name).is_finished()
    return False


# --- the summary ---


def summarize(
    folder: pathlib.Path, plans: Sequence[Plan], *, is_choosing: bool
) -> Summary:
    """Mean and standard deviation over seeds and folds for each combination.

    Leaves the test data out with `is_choosing`.
    """
    groups: dict[str, list[Plan]] = {}
    for plan in plans:
        groups.setdefault(plan.setting, []).append(plan)
    return Summary([_cell(folder, own, is_choosing) for own in groups.values()])


def _cell(
    folder: pathlib.Path, plans: Sequence[Plan], is_choosing: bool
) -> SummaryCell:
    overrides = plans[0].overrides
    runs, unfinished = [], []
    for plan in plans:
        if not is_finished(folder, plan):
            unfinished.append(plan.name)
            continue
        found = results.read_results(RunFolder(folder / plan.name))
        val = _scores(found, "val", has_rates=is_choosing)
        test = None if is_choosing else _scores(found, "test", has_rates=True)
        kept = found.kept_in_training
        runs.append(SummaryRun(plan.name, val, found.margins, kept, test))
    return SummaryCell(
        {name: overrides[name] for name in overrides if name not in (SEED, FOLD)},
        runs,
        unfinished,
        _spreads([run.val for run in runs]),
        None if is_choosing else _spreads([run.test or {} for run in runs]),
    )


def _scores(found: results.RunResults, split: str, *, has_rates: bool) -> Scores:
    """Of one split; the rates of critical boundaries as well where they are wanted."""
    boundaries = found.critical if has_rates else ()
    return found.final[split].chosen(SCORES + MORE_SCORES, boundaries)


def _spreads(runs: Sequence[Scores]) -> dict[str, Spread]:
    """Mean and standard deviation of each score of the first run."""
    spreads = {}
    for name in (runs or [{}])[0]:
        known = [score for run in runs if (score := run.get(name)) is not None]
        mean = float(np.mean(known)) if known else None
        std = float(np.std(known, ddof=1)) if len(known) > 1 else None
        spreads[name] = Spread(mean, std, len(known))
    return spreads


def _columns(val: Mapping[str, Any], test: Mapping[str, Any] | None) -> dict[str, Any]:
    """Scores of both splits under the names of their columns."""
    return {f"val {name}": value for name, value in val.items()} | dict(test or {})


def _write_csv(path: pathlib.Path, summary: Summary) -> None:
    """Writes a row per run."""
    rows = [
        {"run": run.name}
        | _columns(run.val, run.test)
        | {f"kept triplets {name}": kept for name, kept in run.kept_triplets.items()}
        for cell in summary.cells
        for run in cell.runs
    ]
    columns = {name: None for row in rows for name in row} or {"run": None}
    table = [[row.get(name, "") for name in columns] for row in rows]
    files.write_csv(path, [list(columns), *table])


def _show(summary: Summary, choose: str) -> None:
    """Prints a row per combination; with `choose` only what was chosen by."""
    shown = [_columns(cell.val, cell.test) for cell in summary.cells]
    more = {*MORE_SCORES, *(f"val {name}" for name in MORE_SCORES)}  # in the files
    columns = {name: None for scores in shown for name in scores if name not in more}
    if choose:
        columns = dict.fromkeys(f"val {name}" for name in (choose, *SCORES))
    table = Table(box=None, pad_edge=False)
    for name in ("settings", "runs", *columns):
        table.add_column(name, justify="left" if name == "settings" else "right")
    for cell, scores in zip(summary.cells, shown, strict=True):
        found = [str(scores.get(name, "")) for name in columns]
        table.add_row(describe(cell.settings), str(len(cell.runs)), *found)
    console.print(table)


# --- the choice, by the validation data alone ---


def check_choice(choose: str, settings: Sequence[Any], critical: Sequence[str]) -> None:
    """ValueError where there is nothing to choose from, or by."""
    rates = [f"{rate} {name}" for rate in RATES for name in critical]
    known = (*MORE, *LESS, *rates)
    if choose not in known:
        raise ValueError(f"--choose is {choose!r}; use one of {', '.join(known)}.")
    if len(settings) < 2:
        raise ValueError(
            f"--choose={choose} needs several settings to choose from; add --vary."
        )


def rank_cells(summary: Summary, choose: str) -> Summary:
    """The summary with its cells from best to worst.

    Settings of which a run is missing come last and are never chosen; of two that are
    equal the first one given comes first.
    """
    means: list[tuple[float, SummaryCell]] = []
    for cell in summary.cells:
        score = cell.val.get(choose)
        if not cell.unfinished and score and score.mean is not None:
            means.append((score.mean, cell))
    if not means:
        raise ValueError(
            f"no setting has all its runs finished with a validation {choose}, so none "
            "was chosen; the same command goes on with the others."
        )
    is_less_better = choose.split()[0] in LESS + RATES
    means.sort(key=lambda pair: pair[0] if is_less_better else -pair[0])
    ranked = [cell for _, cell in means]
    return Summary(ranked + [cell for cell in summary.cells if cell not in ranked])


def _write_choice(
    folder: pathlib.Path, chosen: SummaryCell, choose: str, config: ConfigDict
) -> None:
    """Writes the configuration of a choice and prints how to use it."""
    path = folder / "chosen.json"
    files.write_sealed(path, changed(config, chosen.settings).to_dict())
    score = chosen.val[choose]
    console.print(
        f"Chosen by validation {choose}, {score} over {score.count} runs: "
        f"{describe(chosen.settings)}\n  python launch.py --config={path}",
        soft_wrap=True,
    )
