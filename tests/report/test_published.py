"""The paper's numbers: equal to those read from its tables, and of known counts."""

import json

import pytest

from cloc_jax.report import published

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
    ours = published.tables()
    for name, table in theirs.items():
        if name not in ("notes", "counts"):  # remarks, and the sizes of datasets
            assert ours[name] == table, name
    assert set(ours) <= set(theirs)


def test_the_result_of_a_dataset_is_read_from_both_tables():
    koa = published.of_dataset("koa")
    assert (koa.accuracy, koa.mae) == (0.6673, 0.4167)
    assert koa.control.critical == (1,)
    assert koa.control.learned == (0.222, 0.17, 0.0985, 0.062)
    assert koa.control.controlled[1] == 0.09
    assert (koa.control.learned_accuracy, koa.control.controlled_accuracy) == (
        0.6673,
        0.6431,
    )
    assert published.of_dataset("bracs").control.critical == (2, 4)
    assert "misprints" in published.of_dataset("adience").control.notes[0]


def test_quoted_cells_are_those_of_four_methods_on_two_datasets():
    quoted = [
        (method, dataset)
        for method in published.tables()["comparison"]
        for dataset in published.DATASETS
        if published.is_quoted(method, dataset)
    ]
    methods = ("orcnn", "poe", "gol", "mwr")
    assert quoted == [(m, d) for m in methods for d in ("adience", "hid")]


@pytest.mark.parametrize("name", SIZES)
def test_rates_are_counts_of_the_test_images(name):
    """Each printed rate is a whole number of images, cut or rounded to its digits."""
    control = published.of_dataset(name).control
    sizes = SIZES[name]
    assert len(control.learned) == len(control.controlled) == len(sizes) - 1
    for rates in (control.learned, control.controlled):
        for h, rate in enumerate(rates):
            pair = sizes[h] + sizes[h + 1]
            nearest = min(range(pair + 1), key=lambda k: abs(k / pair - rate))
            assert abs(nearest / pair - rate) < 6e-4, (h, rate)
    for h in control.critical:
        assert control.controlled[h] < control.learned[h]  # what raising is for


def test_are_found_by_dataset_and_number_of_ranks():
    assert published.find("koa", 5).mae == 0.4167
    assert published.find("koa", 4) is None  # ranks were left out
    assert published.find("synthetic", 5) is None
    clap = published.find("clap2015", 28)
    assert (clap.accuracy, clap.mae, clap.control) == (None, 2.018, None)
    assert "classes of 3 years" in clap.notes[0]
    assert published.find("clap2015", 29) is None
