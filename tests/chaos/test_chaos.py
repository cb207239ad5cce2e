"""A few random faults; `run.py --faults=100` is the long version."""

import subprocess
import sys

import pytest
from launching import ROOT


@pytest.mark.slow
def test_faults_change_no_result():
    process = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "chaos" / "run.py")]
        + ["--faults=6", "--method=ce", "--seed=5"],
        capture_output=True,
        text=True,
        timeout=3000,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert "6 faults" in process.stdout and " 0 failures" in process.stdout
