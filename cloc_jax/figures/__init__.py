"""Pictures of a run and of benchmarks, one family a file.

Every picture has a function that builds the Figure and one that saves it as a PNG.
Figures are plain objects, never pyplot's global ones, so they can be drawn from any
thread.
"""

from cloc_jax.figures.calibration import Bins, Panel, calibration, calibration_figure
from cloc_jax.figures.confusion import confusion, confusion_figure
from cloc_jax.figures.control import control, control_figure
from cloc_jax.figures.courses import curves, curves_figure, margins, margins_figure
from cloc_jax.figures.embeddings import embedding, embedding_figure
from cloc_jax.figures.growth import exponent, growth, growth_figure, series
from cloc_jax.figures.margin_study import (
    collapse,
    collapse_figure,
    margin_study,
    margin_study_figure,
)
from cloc_jax.figures.nearest import Doubtful, nearest, nearest_figure
from cloc_jax.figures.sheet import Picture, Row, sheet, sheet_figure
from cloc_jax.figures.similarity import similarity, similarity_figure
from cloc_jax.figures.style import short_boundary

__all__ = [
    "Bins",
    "Doubtful",
    "Panel",
    "Picture",
    "Row",
    "collapse",
    "collapse_figure",
    "calibration",
    "calibration_figure",
    "confusion",
    "confusion_figure",
    "control",
    "control_figure",
    "curves",
    "curves_figure",
    "embedding",
    "embedding_figure",
    "exponent",
    "growth",
    "growth_figure",
    "margin_study",
    "margin_study_figure",
    "margins",
    "margins_figure",
    "nearest",
    "nearest_figure",
    "series",
    "sheet",
    "sheet_figure",
    "short_boundary",
    "similarity",
    "similarity_figure",
]
