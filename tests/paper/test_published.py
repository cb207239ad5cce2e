"""The paper's numbers: equal to those read from its tables, and of known counts."""

import json

import pytest

from cloc_jax.paper import published

# Test images of each rank; the paper's error rates are counts over pairs of them.
SIZES = {
    "hid": [50] * 5,
    "koa": [639, 296, 447, 223, 51],
    "idrid": [34, 5, 32, 19, 13],
    "bracs": [81, 79, 82, 83, 79, 85, 81],
}


def test_are_those_of_the_tables(shared):
    path = shared / "paper" / "tables.json"
    if not path.is_file():
        pytest.skip("the shared folder does not hold the paper's tables")
    theirs = json.loads(path.read_text())
    ours = published.TABLES
    for name, table in theirs.items():
        if name not in ("notes", "counts"):  # remarks, and the sizes of datasets
            assert ours[name] == table, name
    assert set(ours) <= set(theirs)


def test_quoted_cells_are_those_of_four_methods_on_two_datasets():
    quoted = [
        (method, dataset)
        for method in published.TABLES["comparison"]
        for dataset in published.TABLES["controllability"]
        if published.is_quoted(method, dataset)
    ]
    methods = ("orcnn", "poe", "gol", "mwr")
    assert quoted == [(m, d) for m in methods for d in ("hid", "adience")]


@pytest.mark.parametrize("name", SIZES)
def test_rates_are_counts_of_the_test_images(name):
    """Each printed rate is a whole number of images, cut or rounded to its digits."""
    sizes = SIZES[name]
    control = published.controllability(name, len(sizes))
    assert published.controllability(name, len(sizes) - 1) is None  # some left out
    for rates in (control["learned"], control["controlled"]):
        for h, rate in enumerate(rates):
            pair = sizes[h] + sizes[h + 1]
            nearest = min(range(pair + 1), key=lambda k: abs(k / pair - rate))
            assert abs(nearest / pair - rate) < 6e-4, (h, rate)
