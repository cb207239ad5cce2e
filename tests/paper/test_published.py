"""The paper's numbers: equal to those read from its tables."""

import json

import pytest

from cloc_jax.paper import published


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
