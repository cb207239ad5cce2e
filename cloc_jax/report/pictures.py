"""Which pictures a run gets, and what is in each."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from cloc_jax.data.source import Source
from cloc_jax.report import figures
from cloc_jax.scoring import calibration, embedding_order, metrics, predictions

NEAREST = 6  # images of each side
BINS = 10


def draw(
    folder: pathlib.Path,
    results: Mapping[str, Any],
    history: Sequence[Mapping[str, Any]],
    *,
    embeddings: Mapping[str, tuple[np.ndarray, np.ndarray]],
    found: predictions.Predictions,
    images: Source,
) -> None:
    """Writes all pictures of a finished run into its folder.

    Args:
      results: as in metrics.json.
      history: one row per epoch.
      embeddings: [image, dim] and labels, by split; test is the last.
      found: the predictions for the test images.
      images: the test images.
    """
    ranks, critical = results["ranks"], results["critical"]
    scores = results["final"]["test"]
    confusion = np.array(scores["confusion"])
    figures.confusion(folder / "confusion.png", confusion, ranks, critical=critical)
    figures.curves(folder / "curves.png", history)
    for name, found_values in results["readouts"].items():
        figures.readout(
            folder / f"{name}.png",
            history,
            name,
            ranks,
            per=found_values["per"],
            kinds=found_values["kinds"] or None,
        )
    figures.embedding(
        folder / "embedding.png",
        np.concatenate([vectors for vectors, _ in embeddings.values()]),
        np.concatenate([labels for _, labels in embeddings.values()]),
        ranks,
        [name for name, (_, labels) in embeddings.items() for _ in labels],
    )
    cosines = embedding_order.similarity(*embeddings["test"], len(ranks))
    figures.similarity(folder / "similarity.png", cosines, ranks)
    if found.probabilities is not None:
        _draw_probabilities(folder, results, found.probabilities, found, images)


def _draw_probabilities(
    folder: pathlib.Path,
    results: Mapping[str, Any],
    probabilities: np.ndarray,
    found: predictions.Predictions,
    images: Source,
) -> None:
    """Whether probabilities hold, and the images near the boundaries that matter."""
    ranks = results["ranks"]
    bins = min(BINS, max(len(found.true) // BINS, 1))  # with enough images in each
    panels = [
        figures.Panel(
            "The likeliest rank",
            "its probability",
            "it was the true one",
            _bins(calibration.reliability(probabilities, found.true, bins)),
        )
    ]
    boundaries = results["final"]["test"]["boundaries"]
    for name in metrics.boundaries_that_matter(boundaries, results["critical"]):
        h = list(boundaries).index(name)
        above = calibration.probability_above(probabilities, h)
        title = f"Above {figures.short_boundary(name, ranks)}"
        holds = calibration.reliability_above(probabilities, found.true, h, bins)
        panels.append(figures.Panel(title, "P(above)", "it was above", _bins(holds)))
        chosen = nearest(above, found.true, found.predicted, h)
        sides = {
            side: [
                figures.Doubtful(
                    np.asarray(images[i]),
                    ranks[found.true[i]],
                    ranks[found.predicted[i]],
                    float(above[i]),
                )
                for i in items
            ]
            for side, items in chosen.items()
        }
        # Photographs are small as JPEG.
        figures.nearest(folder / f"nearest_{h}.jpg", sides, name, ranks)
    figures.calibration(folder / "calibration.png", panels)


def nearest(
    above: Float[np.ndarray, " image"],
    true: Int[np.ndarray, " image"],
    predicted: Int[np.ndarray, " image"],
    h: int,
    count: int = NEAREST,
) -> dict[str, list[int]]:
    """The images nearest the boundary above rank h, "right" and "wrong" ones apart.

    Wrong are those called by a rank on the other side than their own. Nearest are those
    whose probability of lying `above` is nearest one half, and come first.
    """
    by_doubt = np.argsort(np.abs(above - 0.5), kind="stable")
    is_right = ((predicted > h) == (true > h))[by_doubt]
    return {
        "right": by_doubt[is_right][:count].tolist(),
        "wrong": by_doubt[~is_right][:count].tolist(),
    }


def _bins(found: Sequence[calibration.Bin]) -> figures.Bins:
    return figures.Bins(
        np.array([b.predicted for b in found]),
        np.array([b.observed for b in found]),
        np.array([b.interval.low for b in found]),
        np.array([b.interval.high for b in found]),
        np.array([b.images for b in found]),
    )
