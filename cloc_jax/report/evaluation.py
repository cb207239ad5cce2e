"""A run from its configuration to its results: training, scores, pictures, page.

The only code that reads the test split, and it changes nothing that training reads.
"""

import contextlib
import io
import pathlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from ml_collections import ConfigDict
from PIL import Image

from cloc_jax.config import saved_config
from cloc_jax.data.datasets import Dataset
from cloc_jax.data.source import Subset
from cloc_jax.report import html_page, view
from cloc_jax.report.figures import runs, style
from cloc_jax.runtime import errors, files, processes
from cloc_jax.runtime.console import console
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import decisions, metrics
from cloc_jax.scoring.predictions import Predictions
from cloc_jax.scoring.results import RunResults
from cloc_jax.training import assembly, run_scores
from cloc_jax.training import run as training_run
from cloc_jax.training.assembly import Parts
from cloc_jax.training.trained_run import TrainedRun

# Of a split. UMAP compares all pairs of fewer than 4,096 points; two splits are.
MOST_DRAWN = 2000
THUMBNAIL = 224  # pixels of the longer side, at most
MOST_THUMBNAILS = 1500  # as each has to be read and decoded
MOST_BYTES = 4_000_000  # of all thumbnails of a run


def complete_run(
    config: ConfigDict, folder: RunFolder, *, resume: bool, draws: bool = True
) -> None:
    """Trains a run to its end, from the start or from where it stopped, and evaluates.

    Args:
      config: the run's settings.
      folder: where its results go; locked while this works.
      resume: whether it may hold a run with these settings, which goes on or is done.
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
        except (errors.Interrupted, FileExistsError):
            raise  # it goes on later, or the folder is that of another run
        except Exception as error:
            # A mistake in a person's first command leaves nothing behind.
            if is_first and (folder.config.exists() or not draws):
                with contextlib.suppress(OSError):  # a full disk
                    folder.write_failure(errors.sentence(error) or str(error))
            raise


def _complete(
    config: ConfigDict, folder: RunFolder, *, resume: bool, draws: bool
) -> None:
    if not training_run.train(config, folder, resume=resume):
        return
    saved = saved_config(folder.read_config())
    saved.mesh = config.mesh
    if draws:
        evaluate(saved, folder)
        return
    parts = assembly.build(saved, folder)
    evaluation = run_scores.score(TrainedRun(saved, folder, parts), parts)
    _track(saved, folder, evaluation.results)
    if processes.is_first():
        folder.drop_checkpoints()


def evaluate(config: ConfigDict, folder: RunFolder) -> None:
    """Writes all results of a trained run, and prints the main ones."""
    console.print("evaluating on validation and test data")
    parts = assembly.build(config, folder)
    results = write_results(TrainedRun(config, folder, parts), parts)
    _track(config, folder, results)
    test = results.final["test"]
    qwk = "undefined" if test.qwk is None else f"{test.qwk:.3f}"
    console.print(
        f"test  accuracy {test.accuracy:.3f}  MAE {test.mae:.3f}  QWK {qwk}  "
        f"at most one grade off {test.one_off_accuracy:.3f}"
    )
    for name in results.critical:
        rates = test.boundaries[name]
        console.print(
            f"boundary {name}  {rates.crossing_rate:.3f} of all images are predicted "
            f"on its wrong side; error between neighbours {rates.error_rate or 0:.3f}"
        )
    if warning := view.unmet_margins(results.kept_in_training):
        console.print(f"Warning: {warning}", soft_wrap=True)
    console.print(f"report  {folder.path / html_page.NAME}", soft_wrap=True)


def _track(config: ConfigDict, folder: RunFolder, results: RunResults) -> None:
    """Gives the final scores and the page to the trackers of the run."""
    scores = {
        f"final/margin {name}": margin for name, margin in results.margins.items()
    }
    for split, found in results.final.items():
        chosen = found.chosen(("accuracy", "mae", "qwk", "macro_mae"), results.critical)
        scores |= {f"final/{split} {n}": v for n, v in chosen.items() if v is not None}
    with training_run.tracked(config, folder) as log:
        for tracker in log:
            tracker.finish(scores, folder.path / html_page.NAME)


def write_results(run: TrainedRun, parts: Parts) -> RunResults:
    """Writes all results of a run whose stages are trained."""
    folder, evaluation = run.folder, run_scores.compute(run, parts)
    results = evaluation.results
    train, test = (parts.dataset.splits[name] for name in ("train", "test"))
    drawn = Subset(train, _drawn(len(train)))
    of_train = run.embed(drawn)
    if processes.is_first():
        results = run_scores.write_predictions(folder, evaluation)
        _write_examples(folder.path / "examples", parts.dataset)
        embeddings = {
            "train": (of_train, drawn.labels),
            "test": (evaluation.embeddings, test.labels),
        }
        draw(folder.path, results, embeddings)
        matter = results.boundaries_that_matter.values()
        order = by_interest(evaluation.test, matter)
        image, path = test.original().__getitem__, folder.path / view.THUMBNAILS
        write_thumbnails(path, image, evaluation.test.items, order)
        html_page.write_report(folder, results)
        # Last: a run that counts as finished has all of it.
        folder.write(folder.metrics, results.to_json())
    return results


def draw(
    folder: pathlib.Path,
    results: RunResults,
    embeddings: dict[str, tuple[np.ndarray, np.ndarray]],
) -> None:
    """Writes the pictures of a run; of embeddings [image, dim] and labels by split."""
    ranks, counts = results.ranks, results.final["test"].confusion
    cosines = metrics.similarity(*embeddings["test"], len(ranks))
    mapped = {}
    for split, (vectors, labels) in embeddings.items():
        some = _drawn(len(labels))
        mapped[split] = vectors[some], labels[some]
    for name, figure in (
        ("confusion", runs.confusion_figure(counts, ranks, results.critical)),
        ("embedding", runs.embedding_figure(mapped, ranks)),
        ("similarity", runs.similarity_figure(cosines, ranks)),
    ):
        style.save(figure, folder / f"{name}.png")


def _drawn(count: int) -> np.ndarray:
    """Which images of a split are in the maps of embeddings, always the same ones."""
    return np.sort(np.random.default_rng(0).permutation(count)[:MOST_DRAWN])


def _write_examples(path: pathlib.Path, dataset: Dataset) -> None:
    """One test image per rank, to try `predict` on where the data are not files."""
    source = dataset.splits["test"]
    if source.paths is not None:
        return
    path.mkdir(exist_ok=True)
    for rank, name in enumerate(dataset.ranks):
        for item in np.flatnonzero(source.labels == rank)[:1]:
            file = io.BytesIO()
            _picture(source.original()[int(item)]).save(file, "PNG")
            files.write_bytes(path / f"grade-{name}.png", file.getvalue())


def _picture(pixels: np.ndarray) -> Image.Image:
    """The picture of an image in grey or colour."""
    return Image.fromarray(pixels[..., 0] if pixels.shape[2:] == (1,) else pixels)


def by_interest(test: Predictions, boundaries: Iterable[int]) -> list[int]:
    """All images, those first that a reader will want to look at.

    In turn one of the furthest mistakes, the surest first, and one of those nearest to
    a boundary.
    """
    off = np.abs(test.true - test.predicted)
    if test.probabilities is None:
        return np.argsort(-off, kind="stable").tolist()
    sure = test.probabilities[np.arange(len(off)), test.predicted]
    doubt = np.full(len(off), np.inf)
    for h in boundaries:
        above = decisions.probability_above(test.probabilities, h)
        doubt = np.minimum(doubt, np.abs(above - 0.5))
    orders = np.lexsort((-sure, -off)), np.argsort(doubt, kind="stable")
    return list(dict.fromkeys(np.stack(orders, axis=1).ravel().tolist()))


def write_thumbnails(
    path: pathlib.Path,
    image: Callable[[int], np.ndarray],
    names: Sequence[str],
    order: Sequence[int],
) -> None:
    """Keeps small JPEGs of images, in that order of their indices as far as they fit.

    So the page can be drawn again without the data.
    """
    kept: dict[str, bytes] = {}
    room = MOST_BYTES
    for item in order[:MOST_THUMBNAILS]:
        small = _picture(image(item))
        small.thumbnail((THUMBNAIL, THUMBNAIL))
        file = io.BytesIO()
        small.save(file, "JPEG", quality=80)
        room -= file.tell()
        if room < 0:
            break
        kept[names[item]] = file.getvalue()
    file = io.BytesIO()
    np.savez(
        file,
        names=np.array(list(kept), np.str_),
        sizes=np.array([len(data) for data in kept.values()], np.int64),
        bytes=np.frombuffer(b"".join(kept.values()), np.uint8),
    )
    files.write_bytes(path, file.getvalue())
