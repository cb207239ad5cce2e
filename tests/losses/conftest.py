"""Golden values of other methods' losses, from released code."""

import collections
import pathlib

import numpy as np
import pytest

HERE = pathlib.Path(__file__).parent.parent / "goldens"
either = pytest.fixture(params=["small", pytest.param("all", marks=pytest.mark.slow)])


@either
def baselines(request):
    """By method and case, the arrays of the cases: a few that are here, and all."""
    return read(request, "baselines")


@either
def ordinal_losses(request):
    """The same of losses of a softmax, soft labels and metrics."""
    return read(request, "ordinal_losses")


def read(request, name):
    if request.param == "small":
        path = HERE / f"{name}_small.npz"
    else:
        path = request.getfixturevalue("shared") / "golden" / f"{name}.npz"
        if not path.exists():
            pytest.skip(f"{path} is absent")
    methods = collections.defaultdict(lambda: collections.defaultdict(dict))
    with np.load(path) as file:
        for key in file.files:
            method, case, field = key.split("/")
            methods[method][case][field] = file[key]
    return methods
