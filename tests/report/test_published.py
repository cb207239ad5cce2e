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
    tables = json.loads(path.read_text())
    first, second = tables["comparison"]["cloc"], tables["controllability"]
    for name, ours in published.DATASETS.items():
        assert ours.accuracy == first["accuracy"][name]
        assert ours.mae == first["mae"][name]
        theirs = second[name]
        assert [f"C{h + 1}-C{h + 2}" for h in ours.control.critical] == (
            theirs["critical"]
        )
        assert list(ours.control.learned) == theirs["learned"]
        assert list(ours.control.controlled) == theirs["controlled"]
        assert ours.control.learned_accuracy == theirs["accuracy"]["learned"]
        assert ours.control.controlled_accuracy == theirs["accuracy"]["controlled"]
    bins = {row["classes"]: row["mae"] for row in tables["clap2015_bins"]}
    assert bins == published.CLAP2015


@pytest.mark.parametrize("name", SIZES)
def test_rates_are_counts_of_the_test_images(name):
    """Each printed rate is a whole number of images, cut or rounded to its digits."""
    control = published.DATASETS[name].control
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
