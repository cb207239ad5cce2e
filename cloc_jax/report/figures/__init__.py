"""Pictures of a run and of studies.

Figures are plain objects, never pyplot's global ones, so they can be drawn from any
thread.
"""

from cloc_jax.report.figures.contact_sheet import Picture, Row, sheet, sheet_figure
from cloc_jax.report.figures.embeddings import embedding_figure
from cloc_jax.report.figures.matrices import confusion_figure, similarity_figure
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
    "sheet_figure",
    "similarity_figure",
]
