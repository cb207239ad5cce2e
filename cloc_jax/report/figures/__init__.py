"""Pictures of a run and of studies.

Every picture has a function that builds the Figure and one that saves it as a PNG.
Figures are plain objects, never pyplot's global ones, so they can be drawn from any
thread.
"""

from cloc_jax.report.figures.contact_sheet import Picture, Row, sheet, sheet_figure
from cloc_jax.report.figures.embeddings import embedding, embedding_figure
from cloc_jax.report.figures.matrices import (
    confusion,
    confusion_figure,
    similarity,
    similarity_figure,
)
from cloc_jax.report.figures.studies import (
    collapse,
    collapse_figure,
    control,
    control_figure,
    margin_study,
    margin_study_figure,
)

__all__ = [
    "Picture",
    "Row",
    "collapse",
    "collapse_figure",
    "confusion",
    "confusion_figure",
    "control",
    "control_figure",
    "embedding",
    "embedding_figure",
    "margin_study",
    "margin_study_figure",
    "sheet",
    "sheet_figure",
    "similarity",
    "similarity_figure",
]
