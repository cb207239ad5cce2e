"""Estimators for scikit-learn: ordered classes from feature vectors and from images."""

from cloc_jax.sklearn.features import OrdinalClassifier
from cloc_jax.sklearn.image_files import ImageOrdinalClassifier

__all__ = ["ImageOrdinalClassifier", "OrdinalClassifier"]
