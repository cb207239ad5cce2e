"""Pictures of a run and of benchmarks, one family a file.

Every picture has a function that builds the Figure and one that saves it as a PNG.
Figures are plain objects, never pyplot's global ones, so they can be drawn from any
thread.
"""

from cloc_jax.report.figures.calibration import (
    Bins,
    Panel,
    calibration,
    calibration_figure,
)
from cloc_jax.report.figures.confusion import confusion, confusion_figure
from cloc_jax.report.figures.contact_sheet import Picture, Row, sheet, sheet_figure
from cloc_jax.report.figures.control_curve import control, control_figure
from cloc_jax.report.figures.embeddings import embedding, embedding_figure
from cloc_jax.report.figures.margin_study import (
    collapse,
    collapse_figure,
    margin_study,
    margin_study_figure,
)
from cloc_jax.report.figures.nearest import Doubtful, nearest, nearest_figure
from cloc_jax.report.figures.similarity import similarity, similarity_figure
from cloc_jax.report.figures.style import short_boundary
from cloc_jax.report.figures.training_curves import (
    curves,
    curves_figure,
    readout,
    readout_figure,
)

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
    "margin_study",
    "margin_study_figure",
    "readout",
    "readout_figure",
    "nearest",
    "nearest_figure",
    "sheet",
    "sheet_figure",
    "short_boundary",
    "similarity",
    "similarity_figure",
]
