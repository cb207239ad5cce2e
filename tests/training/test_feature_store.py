"""The feature store: what was written comes back, what was cut short does not."""

import numpy as np
import pytest
from damage import flip

from cloc_jax.runtime.console import console
from cloc_jax.training.kept_features import FeatureStore


def rows(start, count):
    return np.arange(start * 3, (start + count) * 3, dtype=np.float32).reshape(-1, 3)


def test_rows_come_back_by_name_in_any_order(tmp_path):
    store = FeatureStore(tmp_path / "store")
    store.add(["a", "b"], rows(0, 2))
    store.add(["c"], rows(2, 1))
    found = FeatureStore(tmp_path / "store").read(["c", "a"])
    np.testing.assert_array_equal(np.asarray(found), rows(0, 3)[[2, 0]])
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


DAMAGES = {
    "array": lambda part: flip(part, -5),
    "header": lambda part: flip(part, 3),
    "cut": lambda part: part.write_bytes(part.read_bytes()[:-7]),
    "missing": lambda part: part.unlink(),
    "list": lambda part: flip(part.with_suffix(".json"), 14),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_part_is_said_and_computed_again(tmp_path, kind):
    FeatureStore(tmp_path).add(["a", "b"], rows(0, 2))
    DAMAGES[kind](next(tmp_path.glob("*.npy")))
    with console.capture() as captured:
        store = FeatureStore(tmp_path)
        assert "a" not in store and "b" not in store
        store.add(["a", "b"], rows(0, 2))
        whole = FeatureStore(tmp_path).read(["b"])
    np.testing.assert_array_equal(np.asarray(whole), rows(1, 1))
    (said,) = captured.get().splitlines()
    assert "is damaged" in said and "computed again" in said
