"""The feature store: what was written comes back, what was cut short does not."""

import numpy as np
import pytest

from cloc_jax.build.feature_store import FeatureStore


def rows(start, count):
    return np.arange(start * 3, (start + count) * 3, dtype=np.float32).reshape(-1, 3)


@pytest.mark.parametrize("in_memory", [True, False])
def test_rows_come_back_by_name_in_any_order(tmp_path, in_memory):
    store = FeatureStore(tmp_path / "store")
    store.add(["a", "b"], rows(0, 2))
    store.add(["c"], rows(2, 1))
    found = FeatureStore(tmp_path / "store").read(["c", "a"], in_memory=in_memory)
    np.testing.assert_array_equal(found.all(), rows(0, 3)[[2, 0]])
    np.testing.assert_array_equal(found[1], rows(0, 1)[0])
    assert len(found) == 2 and found[0].dtype == np.float32


def test_a_part_without_its_list_does_not_count(tmp_path):
    store = FeatureStore(tmp_path)
    store.add(["a"], rows(0, 1))
    store.add(["b"], rows(1, 1))
    lists = sorted(tmp_path.glob("*.json"))
    gone = lists[0].read_text()
    lists[0].unlink()  # as if the process had been killed before it wrote it
    again = FeatureStore(tmp_path)
    assert ("a" in again) != ("b" in again)
    again.add(["a", "b"], rows(5, 2))  # written anew, the newest or the same counts
    whole = FeatureStore(tmp_path)
    assert "a" in whole and "b" in whole and gone
