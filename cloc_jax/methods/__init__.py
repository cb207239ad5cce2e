"""Methods: ways to learn ranks from images, one module per family."""

from cloc_jax.methods.interface import (
    ENCODER,
    HEAD,
    KEPT_TRIPLETS,
    Context,
    HeadOptions,
    Labelled,
    Limits,
    Method,
    Prediction,
    Readout,
    Stage,
    Stop,
    Support,
    Task,
    Verdict,
    View,
    freeze,
    group_of,
)
from cloc_jax.methods.registry import METHODS, build
