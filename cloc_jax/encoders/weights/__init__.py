"""Pretrained weights: every file format, their names, and filling them in."""
