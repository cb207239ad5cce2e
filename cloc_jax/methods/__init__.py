"""Methods: ways to learn ranks from images, one module per family."""

from cloc_jax.methods.heads import HeadOptions
from cloc_jax.methods.interface import (
    ENCODER,
    HEAD,
    Context,
    Labelled,
    Method,
    Prediction,
    Readout,
    Stage,
    Support,
    View,
    freeze,
    group_of,
)
from cloc_jax.methods.registry import METHODS, build, takes
from cloc_jax.methods.stop_rules import Limits, Stop, Verdict
