"""Pictures of a run and of benchmarks, one family a file.

Every picture has a function that builds the Figure and one that saves it as a PNG.
Figures are plain objects, never pyplot's global ones, so they can be drawn from any
thread.
"""

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
from cloc_jax.figures.sheet import Picture, Row, sheet, sheet_figure

__all__ = [
    "Picture",
    "Row",
    "collapse",
    "collapse_figure",
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
    "series",
    "sheet",
    "sheet_figure",
]
