"""A run from its configuration to its results: training, scores, pictures, page.

The only code that reads the test split, and it changes nothing that training reads.
"""

import contextlib

from ml_collections import ConfigDict

from cloc_jax.config import saved_config
from cloc_jax.report import finished_run, html_page, unmet_margins
from cloc_jax.runtime import errors, processes
from cloc_jax.runtime.console import console
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.training import assembly, run, run_scores
from cloc_jax.training.trained_run import TrainedRun


def complete_run(
    config: ConfigDict, folder: RunFolder, *, resume: bool, draws: bool = True
) -> None:
    """Trains a run to its end, from the start or from where it stopped, and evaluates.

    Args:
      config: the run's settings.
      folder: where its results go; locked while this works.
      resume: whether the folder may hold a run with the same settings, which goes on
        or, where it is finished, is left as it is.
      draws: whether there are pictures and a page, or scores alone, and then no
        checkpoints are left: many runs would fill a disk with them.
    """
    is_first = processes.is_first()
    lock = folder.held("train", is_new=True)
    with lock if is_first else contextlib.nullcontext():
        is_there = resume and folder.config.exists()
        processes.wait("look at the run's folder")  # before one of them writes into it
        if is_first:
            folder.failed.unlink(missing_ok=True)
        try:
            _complete(config, folder, resume=is_there, draws=draws)
        except errors.Interrupted:
            raise
        except Exception as error:
            # A mistake in a person's first command leaves nothing behind.
            if is_first and (folder.config.exists() or not draws):
                with contextlib.suppress(OSError):  # a full disk
                    folder.write_failure(errors.sentence(error) or str(error))
            raise


def _complete(
    config: ConfigDict, folder: RunFolder, *, resume: bool, draws: bool
) -> None:
    if not run.train(config, folder, resume=resume):
        return
    saved = saved_config(folder.read_config())
    saved.mesh = config.mesh
    if draws:
        evaluate(saved, folder)
        return
    parts = assembly.build(saved, folder)
    run_scores.score(TrainedRun(saved, folder, parts), parts)
    if processes.is_first():
        folder.drop_checkpoints()


def evaluate(config: ConfigDict, folder: RunFolder) -> None:
    """Writes all results of a trained run, and prints the main ones."""
    console.print("evaluating on validation and test data")
    parts = assembly.build(config, folder)
    trained = TrainedRun(config, folder, parts)
    results = finished_run.write_results(trained, parts).metrics
    test = results["final"]["test"]
    qwk = "undefined" if test["qwk"] is None else f"{test['qwk']:.3f}"
    console.print(
        f"test  accuracy {test['accuracy']:.3f}  MAE {test['mae']:.3f}  QWK {qwk}  "
        f"at most one grade off {test['one_off_accuracy']:.3f}"
    )
    for name in results["critical"]:
        rates = test["boundaries"][name]
        console.print(
            f"boundary {name}  crossed by {rates['crossing_rate']:.3f} of all images, "
            f"error rate between neighbours {rates['error_rate'] or 0:.3f}"
        )
    if warning := unmet_margins.sentence(results.get("violated", {})):
        console.print(f"Warning: {warning}", soft_wrap=True)
    console.print(f"report  {folder.path / html_page.NAME}", soft_wrap=True)
