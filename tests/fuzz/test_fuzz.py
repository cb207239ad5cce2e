"""A few hundred damaged inputs of every kind; tests/fuzz/run.py reads more."""

import importlib.util
import pathlib
import sys

import pytest
from launching import ROOT, launched

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
import targets  # noqa: E402

# By its path: other folders have a run.py too.
spec = importlib.util.spec_from_file_location("fuzz_run", HERE / "run.py")
run = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run)


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@pytest.mark.parametrize(
    "kind, count",
    [
        ("image", 60),
        ("table", 60),
        ("run", 30),
        ("shape", 30),
        pytest.param("labels", 100, marks=pytest.mark.slow),
        pytest.param("page", 10, marks=pytest.mark.slow),
    ],
)
def test_damaged_inputs_are_read_or_refused_in_a_sentence(kind, count, tmp_path):
    target = targets.KINDS[kind](tmp_path)
    found = [run.read_one(target, kind, number, seed=7) for number in range(count)]
    bad = [outcome for outcome in found if outcome.what not in run.GOOD]
    assert not bad, bad[0]
    if kind not in ("labels", "page"):
        assert any(outcome.what != "read" for outcome in found)  # damage is seen


@pytest.mark.slow
def test_the_command(tmp_path):
    words = ["--kinds=weights", "--inputs=40", "--seed=3"]  # none is read above
    place = {"XDG_CACHE_HOME": str(tmp_path), "XLA_FLAGS": ""}
    process = launched(*words, cwd=ROOT, script="tests/fuzz/run.py", **place)
    assert " inputs, 0 to be mended" in process.stdout
