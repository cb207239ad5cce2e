"""Ordinal image classification with learned margins, in JAX."""
