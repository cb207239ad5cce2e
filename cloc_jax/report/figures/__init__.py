"""Pictures of a run and of studies.

Figures are plain objects, never pyplot's global ones.
"""
