"""Margin collapse: the paper's precautions, taken away one by one.

Nothing in the loss keeps margins up, so a long phase one may shrink them to nothing.
The paper holds against it softplus, starts in [0.5, 1), and a stop at 95% training
accuracy; here each is switched off alone, and all of them together.
"""

import pathlib
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from cloc_jax.paper import conclusion
from cloc_jax.paper.learned_margins import read_courses
from cloc_jax.paper.precautions import COLLAPSED, WITH, WITHOUT, precautions
from cloc_jax.report import figures
from cloc_jax.scoring import metrics
from cloc_jax.sweeps.engines import LOCAL, Options
from cloc_jax.sweeps.run_plan import plan_runs
from cloc_jax.training.dataset import build_dataset


def collapse(
    config: ConfigDict, folder: pathlib.Path, *, seeds: int, options: Options = LOCAL
) -> dict[str, Any]:
    """Trains phase one with and without the precautions, and draws their margins.

    Args:
      config: what all runs have in common.
      folder: of the study; each run has its own below it.
      seeds: runs per setting.
      options: where and how the runs are trained.
    """
    if config.method.name != "cloc":
        raise ValueError(
            f"method.name is {config.method.name!r}, which has no margins; use cloc."
        )
    ranks = build_dataset(config).ranks
    settings = precautions(config.train.max_epochs)
    runs = plan_runs(config, settings, seeds=seeds, is_resolved=options.is_in_process)
    plans = conclusion.train(runs, folder, options)
    names = metrics.boundary_names(ranks)
    rows, found = [], {}
    for name, runs in plans.items():
        courses = [read_courses(folder, [run], names)[0] for run in runs]
        ends = np.array([course[-1] for course in courses])  # [run, boundary]
        found[name] = {
            "courses": [course.tolist() for course in courses],
            "collapsed": int((ends < COLLAPSED).any(1).sum()),
            "epochs": [len(course) for course in courses],
            "end": ends.mean(0).tolist(),
        }
        rows.append(
            [
                name,
                "–".join(f"{f(found[name]['epochs'])}" for f in (min, max)),
                " ".join(f"{v:.3f}" for v in ends.mean(0)),
                f"{found[name]['collapsed']} of {len(runs)}",
            ]
        )
    study = {
        "seeds": seeds,
        "ranks": list(ranks),
        "boundaries": names,
        "settings": found,
        "sentence": (
            f"A margin fell below {COLLAPSED} in {found[WITH]['collapsed']} of {seeds} "
            f"runs with all precautions, and in {found[WITHOUT]['collapsed']} of "
            f"{seeds} with none of them."
        ),
        "columns": ["Setting", "Epochs", "Margins at the end", "Runs that collapsed"],
        "rows": rows,
    }
    figures.collapse(folder / "collapse.png", study)
    conclusion.finish(folder, "collapse", study, plans[WITH][0])
    return study
