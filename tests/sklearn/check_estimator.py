"""scikit-learn's own checks of an estimator; prints one line per check.

A process of its own: SciPy reads SCIPY_ARRAY_API when it is imported, and without it a
check would be skipped.
"""

import os

os.environ["SCIPY_ARRAY_API"] = "1"

from sklearn.utils.estimator_checks import check_estimator

from cloc_jax.sklearn import OrdinalClassifier


def report(**found):
    why = found["exception"] if found["status"] == "failed" else ""
    print(found["status"], found["check_name"], why, flush=True)


# Batches are drawn at random, of rows: not the same ones where rows are repeated.
EXPECTED = {"check_sample_weight_equivalence_on_dense_data": "random batches"}

if __name__ == "__main__":
    check_estimator(
        OrdinalClassifier(),
        on_fail=None,
        on_skip=None,
        callback=report,
        expected_failed_checks=EXPECTED,
    )
