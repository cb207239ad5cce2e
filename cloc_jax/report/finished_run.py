"""Everything that is made of a finished run: scores, examples, pictures, the page."""

import pathlib

import cv2
import numpy as np

from cloc_jax.data.datasets import Dataset
from cloc_jax.data.source import Subset
from cloc_jax.report import html_page, pictures, thumbnails
from cloc_jax.runtime import files, processes
from cloc_jax.scoring import metrics
from cloc_jax.training import run_scores
from cloc_jax.training.assembly import Parts
from cloc_jax.training.trained_run import TrainedRun

TRAIN_DRAWN = 2000  # training images whose embeddings are drawn


def write_results(run: TrainedRun, parts: Parts) -> run_scores.Results:
    """Writes all results of a run whose stages are trained."""
    folder, results = run.folder, run_scores.compute(run, parts)
    train, test = (parts.dataset.splits[name] for name in ("train", "test"))
    some = np.random.default_rng(0).permutation(len(train))[:TRAIN_DRAWN]
    drawn = Subset(train, np.sort(some))
    of_train = run.embed(drawn)
    if processes.is_first():
        run_scores.write_predictions(folder, results)
        _write_examples(folder.path / "examples", parts.dataset)
        pictures.draw(
            folder.path,
            results.metrics,
            folder.read_history(),
            embeddings={
                "train": (of_train, drawn.labels),
                "test": (results.embeddings, test.labels),
            },
            found=results.test,
            images=test.original(),
        )
        _write_thumbnails(folder.path / thumbnails.NAME, results, parts.dataset)
        html_page.write_report(folder.path, results.metrics)
        # Last: a run that counts as finished has all of it.
        run_scores.finish(folder, results)
    return results


def _write_examples(path: pathlib.Path, dataset: Dataset) -> None:
    """One test image per rank, to try `predict` on where the data are not files."""
    source = dataset.splits["test"]
    if source.paths is not None:
        return
    path.mkdir(exist_ok=True)
    for rank, name in enumerate(dataset.ranks):
        for item in np.flatnonzero(source.labels == rank)[:1]:
            image = source.original()[int(item)]  # `predict` prepares it
            colours_swapped = np.ascontiguousarray(image[..., ::-1])  # OpenCV's BGR
            data = cv2.imencode(".png", colours_swapped)[1].tobytes()
            files.write_bytes(path / f"grade-{name}.png", data)


def _write_thumbnails(
    path: pathlib.Path, results: run_scores.Results, dataset: Dataset
) -> None:
    """Small pictures of the test images that a reader will ask for first."""
    scores, test = results.metrics, results.test
    boundaries = scores["final"]["test"]["boundaries"]
    matter = metrics.boundaries_that_matter(boundaries, scores["critical"])
    order = thumbnails.by_interest(
        test.true,
        test.predicted,
        test.probabilities,
        [list(boundaries).index(name) for name in matter],
    )
    images = dataset.splits["test"].original()
    thumbnails.write(path, images.__getitem__, test.items, order)
