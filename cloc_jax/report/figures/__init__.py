"""Pictures of a run and of studies.

Figures are plain objects, never pyplot's global ones.
"""

from cloc_jax.report.figures.contact_sheet import Picture, Row, sheet
from cloc_jax.report.figures.runs import (
    confusion_figure,
    embedding_figure,
    similarity_figure,
)
from cloc_jax.report.figures.studies import collapse, control, margin_study
from cloc_jax.report.figures.style import save

__all__ = [
    "Picture",
    "Row",
    "collapse",
    "confusion_figure",
    "control",
    "embedding_figure",
    "margin_study",
    "save",
    "sheet",
    "similarity_figure",
]
