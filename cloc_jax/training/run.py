"""A run: training in a folder, with checkpoints, a history, and a person watching.

A run which was stopped goes on as if it had not been.
"""

import contextlib

from ml_collections import ConfigDict

from cloc_jax.config import saved_config
from cloc_jax.runtime import checkpoint, errors, files, processes, sharding, trackers
from cloc_jax.runtime.console import console, print_dataset
from cloc_jax.runtime.run_folder import RunFolder, flatten
from cloc_jax.training import assembly, encoder, fit
from cloc_jax.training.callbacks import RunCallbacks
from cloc_jax.training.train_step import NonFinite


def train(config: ConfigDict, folder: RunFolder, *, resume: bool) -> bool:
    """Trains all stages of a run, from the start or from its newest good checkpoint.

    Further runs of one process reuse what they have in common with the last ones:
    datasets, kept features and compiled programs. The caller holds the folder, which
    may have the run already with `resume`. False where it was finished, and stays so.
    """
    # First the images: nobody should download weights and then have none.
    dataset = assembly.build_dataset(config)
    print_dataset(dataset)  # before minutes of work on features
    config = encoder.resolve(config)
    parts = assembly.build(config, folder if resume else None, dataset=dataset)
    sharding.check_batch(config.train.batch_size, parts.mesh)
    description = parts.describe()
    if resume:
        saved = saved_config(folder.read_config())
        folder.check_settings(saved.to_dict(), config.to_dict())
        folder.check_images(description)
        if _is_finished(folder):
            return False
    elif processes.is_first():
        folder.create(config.to_dict(), description)
    processes.wait("run folder")
    encoder.keep_trunk(parts.trunk, folder)
    _announce(config, parts, parts.dataset.notes[len(dataset.notes) :])
    had_checkpoints = folder.checkpoints.is_dir()
    checkpoints = checkpoint.Checkpoints(folder.checkpoints, folder.mark)
    with contextlib.closing(checkpoints):
        record = None
        if checkpoints.latest():
            record = checkpoints.record()
            where = parts.method.stages[record["stage"]].name
            console.print(f"going on in stage {where} at step {record['step']}")
        elif had_checkpoints and parts.method.stages[-1].name in folder.has_stages():
            return True  # all is trained, and only results are to be made again
        else:
            _check_beginning(folder, had_checkpoints)
        rows = _cut_history(folder, record["rows"] if record else 0)
        total_steps = record["total_steps"] if record else 0
        with (
            errors.stop_requests() as requests,
            tracked(config, folder, first_step=total_steps + 1) as log,
            RunCallbacks(
                config, parts, folder, checkpoints, requests, log
            ) as callbacks,
        ):
            callbacks.rows, callbacks.total_steps = rows, total_steps
            _fit(config, parts, folder, checkpoints, callbacks, record)
    return True


def tracked(
    config: ConfigDict, folder: RunFolder, *, first_step: int = 0
) -> contextlib.AbstractContextManager[list[trackers.Tracker]]:
    """The trackers of a run, of one process only."""
    about = trackers.About(folder, flatten(config.to_dict()), first_step)
    return trackers.tracked(config.log.to if processes.is_first() else (), about)


def _fit(config, parts, folder, checkpoints, callbacks: RunCallbacks, record) -> None:
    stages = parts.method.stages
    task = fit.Training(
        parts.method,
        parts.dataset.splits,
        assembly.fit_settings(config),
        parts.create,
        parts.dataset.ranks,
        parts.mesh,
        parts.samplers,
        [assembly.draws(config, parts.dataset, stage) for stage in stages],
        callbacks,
    )
    try:
        fit.fit(task, fit.Resume(record, checkpoints.arrays) if record else None)
    except NonFinite as error:
        newest = checkpoints.latest()
        good = folder.checkpoints / str(newest) if newest else "none yet"
        raise NonFinite(
            f"{error} Last good checkpoint: {good}. Start another run with a smaller "
            "optimizer.learning_rate.",
            error.step,
        ) from None


def _is_finished(folder: RunFolder) -> bool:
    """Whether a run to be resumed has its results already; says what is the case."""
    try:
        if not folder.is_finished():
            return False
    except files.Damaged as error:
        console.print(f"{error.path} is damaged and made again", soft_wrap=True)
        return False
    is_left = any(folder.checkpoints.glob("*"))
    gone = "" if is_left else "; its checkpoints were removed"
    console.print(
        f"{folder.path} is finished, nothing is left to train{gone}. `launch.py "
        f"evaluate --run={folder.path}` makes its results again.",
        soft_wrap=True,
    )
    return True


def _check_beginning(folder: RunFolder, had_checkpoints: bool) -> None:
    """FileNotFoundError where a run would start anew though it had got further."""
    ended = folder.has_stages()
    # A kill within the first epoch's end may leave one row and no checkpoint.
    history = folder.history.read_bytes() if folder.history.exists() else b""
    rows = history.count(b"\n")
    if not ended and (rows <= 1 if had_checkpoints else not rows):
        return
    done = f"stage {', '.join(ended)}" if ended else f"{rows} epochs"
    raise FileNotFoundError(
        f"{folder.path} has trained {done}, but {folder.checkpoints} holds no "
        "checkpoint to go on from. Put them back, or start another run with another "
        f"--run folder; `launch.py evaluate --run={folder.path}` makes the results "
        "where the last stage had ended."
    )


def _cut_history(folder: RunFolder, wanted: int) -> int:
    """Leaves the history up to the checkpoint; how many rows that are."""
    if not processes.is_first():
        return wanted
    folder.clear_parts()
    rows = folder.cut_history(wanted)
    if rows < wanted:
        console.print(
            f"{folder.history} has {rows} of the {wanted} epochs so far; the curves "
            "will lack the others",
            soft_wrap=True,
        )
    return rows


def _announce(config: ConfigDict, parts: assembly.Parts, notes: list[str]) -> None:
    """What is about to be trained, before it starts; `notes` are those since then."""
    for note in notes:
        console.print(f"  {note}", soft_wrap=True)
    devices = parts.mesh.devices
    line = f"  {config.method.name} on {devices.size} x {devices.flat[0].device_kind}"
    if config.method.name == "cloc":
        form = assembly.loss_form(config, parts.mesh)
        line += f"; its loss computed by the {form} algorithm"
    console.print(line)
    left_out = parts.samplers[0].left_out
    if left_out > config.train.batch_size + len(parts.dataset.ranks):
        console.print(
            f"  {left_out} training images are left out of each epoch (others each "
            "time), because one rank is so common that batches would hold nothing "
            "else; train.sampling='balanced' avoids that"
        )
