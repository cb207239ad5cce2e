"""Export: a trained run as a folder that others can use without the run."""

import os
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

import jinja2
import numpy as np
from ml_collections import ConfigDict
from safetensors.numpy import save_file

import cloc_jax
from cloc_jax.encoders.backbone import PREPROCESSINGS
from cloc_jax.report.view import View
from cloc_jax.runtime import files
from cloc_jax.runtime.console import console
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import exported_model as folder_of
from cloc_jax.scoring import predictions
from cloc_jax.scoring.decisions import Decision
from cloc_jax.scoring.results import SplitScores
from cloc_jax.training import encoder, trained_run
from cloc_jax.training.assembly import network_input
from cloc_jax.training.trained_run import TrainedRun

PACKAGES = ("jax", "flax", "numpy")
TEMPLATE = pathlib.Path(__file__).with_name("model_card.md.jinja")
# What the model card shows.
SCORES = {
    "accuracy": "accuracy",
    "mae": "mean absolute error, in grades",
    "qwk": "quadratic weighted kappa",
    "one_off_accuracy": "at most one grade off",
}
FEW = 30  # test images of a grade, below which the card warns
# Settings that may be paths, which say something of the machine and nothing to others.
PLACES = {"data": ("root", "prepared", "csv"), "encoder": ("weights",)}


def export(config: ConfigDict, folder: RunFolder, target: pathlib.Path) -> None:
    """Writes the model of a trained run into a new folder, whole or not at all."""
    run = TrainedRun(config, folder)
    decision = Decision.read(folder.decision, run.ranks, folder.mark)
    console.print(f"exporting for {', '.join(trained_run.PLATFORMS)}")
    program = trained_run.export_program(run)
    # Only what this process made is removed.
    part = target.with_name(f"{target.name}.{os.getpid()}{files.PART}")
    part.mkdir(parents=True)
    try:
        (part / folder_of.PROGRAM).write_bytes(program.artifact)
        _save_arrays(part / folder_of.WEIGHTS, program.weights)
        if program.support:
            _save_arrays(part / folder_of.SUPPORT, program.support)
        if decision:
            shutil.copyfile(folder.decision, part / folder_of.DECISION)
        files.write_json(part / folder_of.CONFIG, _portable(folder.read_config()))
        how = _preprocessing(config)
        files.write_json(part / folder_of.PREPROCESSING, how)
        about, card = _about(run, program, decision, how["image"])
        files.write_json(part / folder_of.ABOUT, about)
        files.seal_folder(part)
        # Not under the seal: people may edit it.
        (part / folder_of.CARD).write_text(card, encoding="utf-8")
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    size = sum(p.stat().st_size for p in target.iterdir()) / 2**20
    console.print(
        f"written to {target} ({size:.1f} MiB); in Python: "
        f"cloc_jax.load({str(target)!r})(images)",
        soft_wrap=True,
    )


def _save_arrays(path: pathlib.Path, arrays: Mapping[str, np.ndarray]) -> None:
    # C order, and not by ascontiguousarray, which would make a number a vector.
    save_file({k: np.array(v, order="C") for k, v in arrays.items()}, path)
    path.chmod(0o644)  # others are meant to read it


def _portable(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with the names, not the places, of files on this machine."""
    for group, fields in PLACES.items():
        for field in fields:
            value = config.get(group, {}).get(field)
            if value and pathlib.PurePath(value).is_absolute():
                config[group][field] = pathlib.PurePath(value).name
    return config


def _preprocessing(config: ConfigDict) -> dict[str, Any]:
    """How an image becomes the program's input, and what the program does first."""
    name = config.encoder.preprocessing
    scaling: dict[str, Any] = {"done_by": "the program, on uint8 pixels"}
    if name:
        scaling |= {"name": name} | PREPROCESSINGS[name]._asdict()
    return {"image": network_input(config)._asdict(), "scaling": scaling}


def _about(
    run: TrainedRun,
    program: trained_run.Program,
    decision: Decision | None,
    image: Mapping[str, Any],
) -> tuple[dict[str, Any], str]:
    """What the model is, for programs and as a card for people."""
    finished = View(run.folder) if run.folder.metrics.exists() else None
    temperature = None
    tables: dict[str, SplitScores] = {}
    if finished:
        tables["most likely grade"] = finished.scores
        test, chances = finished.test, finished.test.probabilities
        temperature = finished.temperature if finished.calibrated else None
        if decision and decision.chooses_labels and chances is not None:
            labels = decision.apply(chances)
            scores = predictions.scores_of_labels(test.true, labels, run.ranks)
            tables["saved decision"] = scores
    about = {
        "format": folder_of.FORMAT,
        "version": cloc_jax.__version__,
        "method": run.config.method.name,
        "ranks": run.ranks,
        "outputs": list(program.outputs),
        "temperature": temperature,
        "platforms": list(trained_run.PLATFORMS),
        # With batches of this size results are those of `predict`, to the bit.
        "batch": {"images": run.prediction_batch, "devices": run.mesh.size},
        "versions": {"cloc_jax": cloc_jax.__version__}
        | {n: metadata.version(n) for n in PACKAGES},
    }
    return about, _card(run, finished, tables, decision, **image, **about)


def _card(
    run: TrainedRun,
    finished: View | None,
    tables: Mapping[str, SplitScores],
    decision: Decision | None,
    **more: Any,
) -> str:
    """The model card; `tables` are of the test images by how grades were chosen."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)
    environment.filters["shown"] = _shown
    card = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        config=run.config,
        frozen=encoder.frozen_groups(run.config),
        # A path of the machine that trained would mean nothing to others.
        weights=pathlib.PurePath(run.config.encoder.weights or "random").name,
        data=run.folder.read_dataset(),
        finished=finished,
        names=SCORES,
        tables=tables,
        few=FEW,
        decision=decision.describe() if decision else [],
        **more,
    )
    return card.rstrip() + "\n"


def _shown(value: float | None, ends: Sequence[float] | None) -> str:
    if value is None:
        return "not defined"
    return f"{value:.3f}" + (f" ({ends[0]:.3f} to {ends[1]:.3f})" if ends else "")
