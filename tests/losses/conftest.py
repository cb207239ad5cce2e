"""Golden values of other methods' losses, from their authors' released code."""

import collections
import pathlib

import numpy as np
import pytest

SMALL = pathlib.Path(__file__).parent.parent / "goldens" / "baselines_small.npz"


@pytest.fixture(params=["small", pytest.param("all", marks=pytest.mark.slow)])
def baselines(request):
    """By method and case, the arrays of the cases: a few that are here, and all."""
    if request.param == "small":
        path = SMALL
    else:
        path = request.getfixturevalue("shared") / "golden" / "baselines.npz"
        if not path.exists():
            pytest.skip(f"{path} is absent")
    methods = collections.defaultdict(lambda: collections.defaultdict(dict))
    with np.load(path) as file:
        for key in file.files:
            method, case, field = key.split("/")
            methods[method][case][field] = file[key]
    return methods
