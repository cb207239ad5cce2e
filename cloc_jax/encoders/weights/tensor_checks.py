"""Whether tensors can be the weights of a trained network, by their values."""

import re
from collections.abc import Iterable, Mapping

import numpy as np

SHOWN = 5  # tensors that a message names
_COUNTS = re.compile(r".*\.num_batches_tracked")  # torch's; whole numbers, not used


def check_values(tensors: Mapping[str, np.ndarray]) -> None:
    """ValueError for NaN, infinity, whole numbers and variances below 0."""
    found = [
        f"{name} {problem}"
        for name, tensor in tensors.items()
        if not _COUNTS.fullmatch(name) and (problem := _problem(name, tensor))
    ]
    if found:
        raise ValueError(
            f"these are no weights that a network was trained to: {some(found)}. Get "
            "the file again, or another one."
        )


def some(problems: Iterable[str]) -> str:
    """The first problems, and how many more there are."""
    every = list(problems)
    more = f"; and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return "; ".join(every[:SHOWN]) + more


def _problem(name: str, tensor: np.ndarray) -> str:
    """What is wrong with a tensor, or ""."""
    # By kind, or by name for bfloat16 and its like, which NumPy calls void.
    if tensor.dtype.kind != "f" and "float" not in tensor.dtype.name:
        return f"has values of type {tensor.dtype}, not floating point"
    values = (
        tensor.astype(np.float32, copy=False) if tensor.dtype.kind != "f" else tensor
    )
    bad = int(tensor.size - np.count_nonzero(np.isfinite(values)))
    if bad:
        return f"has {bad} of {tensor.size} values that are NaN or infinite"
    if name.endswith("running_var") and tensor.size and values.min() < 0:
        return f"is a variance, but goes down to {values.min():.3g}"
    return ""
