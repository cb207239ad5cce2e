"""A few random faults; `run.py --faults=100` is the long version."""

import pytest
from launching import ROOT, launched


@pytest.mark.slow
def test_faults_change_no_result():
    words = ["--faults=6", "--method=ce", "--seed=5"]
    process = launched(*words, cwd=ROOT, script="tests/chaos/run.py", seconds=3000)
    assert "6 faults" in process.stdout and " 0 failures" in process.stdout
