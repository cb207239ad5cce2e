"""Evaluation of a finished run: metrics, predictions, pictures and report.

The only job that reads the test split, and it changes nothing that training reads.
"""

from ml_collections import ConfigDict

from cloc_jax.report import finished_run, html_page, unmet_margins
from cloc_jax.runtime.console import console
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.training import assembly
from cloc_jax.training.trained_run import TrainedRun


def evaluate(config: ConfigDict, folder: RunFolder) -> None:
    """Writes all results of a trained run, and prints the main ones."""
    console.print("evaluating on validation and test data")
    parts = assembly.build(config, folder)
    run = TrainedRun(config, folder, parts)
    results = finished_run.write_results(run, parts).metrics
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
