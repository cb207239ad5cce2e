"""Sweeps: one experiment with several settings and seeds, and one summary of them.

Every run of a sweep is a run folder like any other, so it can be evaluated, reported
and used to predict. Runs that are finished are never repeated: the same command goes on
where it was interrupted.
"""

import itertools
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from ml_collections import ConfigDict

from cloc_jax.data import datasets
from cloc_jax.runtime.console import console
from cloc_jax.runtime.files import write_sealed
from cloc_jax.sweeps import choice, sweep_summary
from cloc_jax.sweeps.engines import LOCAL, Options, carry_out
from cloc_jax.sweeps.run_plan import Setting, plan_runs, value_of
from cloc_jax.sweeps.sweep_summary import REPEATS


def sweep(
    config: ConfigDict,
    folder: pathlib.Path,
    *,
    vary: Sequence[str],
    seeds: int,
    folds: str = "",
    options: Options = LOCAL,
    choose: str = "",
    per: str = "",
    schema: Callable[[], ConfigDict] | None = None,
) -> dict[str, Any]:
    """Trains every combination of settings and seeds and writes a summary.

    Args:
      config: what all runs have in common.
      folder: of the sweep; each run has its own below it.
      vary: settings and their values, each as "method.cloc.weight=0.5;1;2".
      seeds: runs a combination, with seeds from config.seed on.
      folds: of the dataset, as "all" or "0,3", each with every seed; "" for the
        configured one alone.
      options: where and how the runs are trained.
      choose: a score of the validation data by which settings are ranked; the summary
        then says nothing of the test data, and the best one becomes a configuration.
      per: a setting of `vary`; the best is chosen for each of its values.
      schema: gives every field with its default; needed to choose.
    """
    chosen = folds_of(config.data.name, folds)
    settings = combinations(vary)
    choice.check(choose, per, settings, config.data.critical)
    plans = plan_runs(
        config, settings, seeds=seeds, folds=chosen, is_resolved=options.is_in_process
    )
    carry_out(plans, folder, options)
    splits = ("val",) if choose else ("val", "test")
    summary = sweep_summary.summarize(folder, plans, splits=splits)
    if choose:
        summary |= choice.rank(summary, choose, per)
    write_sealed(folder / "summary.json", summary)
    sweep_summary.write_csv(folder / "summary.csv", summary)
    sweep_summary.show(summary, choose)
    console.print(f"written to {folder / 'summary.json'}", soft_wrap=True)
    if choose and schema:
        choice.write(folder, summary, config, schema(), choose)
    return summary


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
        settings.append(Setting(short, {name: value_of(text) for name, text in pairs}))
    return settings


def folds_of(dataset: str, text: str) -> list[int]:
    """The folds that `text` names, "all" or "0,3"; [] where it is empty."""
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
