"""Who may import whom, so that every module can be read without the ones above it."""

import ast
import pathlib
import shutil
import subprocess
import sys

import pytest

import cloc_jax

PACKAGE = pathlib.Path(cloc_jax.__file__).parent
JOBS = {
    "assemble",
    "train",
    "prepare",
    "show",
    "together",
    "sweep",
    "studies",
    "probe",
    "evaluate",
    "predict",
    "decide",
    "bench",
    "bench_data",
    "weights",
}
# Room -> rooms it may import from. A room is a module or a package of cloc_jax.
ARROWS = {
    "losses": set(),
    "margins": set(),
    "encoders": set(),
    "metrics": set(),
    "predictions": set(),
    "intervals": {"metrics"},
    "calibration": {"intervals"},
    "decisions": {"metrics", "predictions", "intervals", "calibration"},
    "order": set(),
    "published": set(),
    "optimizer": set(),
    "checkpoint": set(),
    "run_folder": set(),
    "interrupts": set(),
    "progress": set(),
    "model_state": set(),
    "sharding": set(),
    "processes": set(),
    "supervision": set(),
    "environment": set(),
    "light_imports": set(),
    "stopwatch": set(),
    "released_loop": set(),
    "torch_step": set(),
    "figures": {"metrics", "light_imports"},
    "pictures": {"figures", "calibration", "order", "predictions", "data"},
    "report": {"metrics", "published", "decisions"},
    "data": set(),
    "methods": {"losses", "margins", "encoders", "sharding"},
    "inference": {"methods", "data", "model_state", "sharding"},
    "derived": {"inference", "data", "model_state", "sharding", "progress"},
    "training_step": {"methods", "data", "model_state", "optimizer", "sharding"},
}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_arrows(path):
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    ours = {n.split(".")[1] for n in imports(path) if n.startswith("cloc_jax.")}
    ours.discard(room)
    if room in JOBS:
        return  # a job may see everything below it
    if room == "__init__":
        assert not ours
        return
    assert ours <= ARROWS[room], f"{room} imports {sorted(ours - ARROWS[room])}"
    assert not any("ml_collections" in name for name in imports(path)), (
        "only jobs see a ConfigDict; everything below takes plain arguments"
    )


def test_the_loss_can_be_copied_out(tmp_path):
    shutil.copytree(PACKAGE / "losses", tmp_path / "mine")
    code = "import sys; sys.modules['cloc_jax'] = None; from mine import mmnp"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    for path in (PACKAGE / "losses").glob("*.py"):
        foreign = {name.split(".")[0] for name in imports(path)}
        assert foreign <= {"jax", "jaxtyping", "optax", "typing"} | {
            "collections",
            "functools",
            "math",
        }


def test_nobody_imports_tensorflow():
    for path in FILES:
        assert not any(n.split(".")[0] == "tensorflow" for n in imports(path)), path


def test_jobs_start_light():
    """Libraries that take seconds wait until something draws or scores."""
    code = """
import sys
import launch
assert "jax" not in sys.modules and "numpy" not in sys.modules
from cloc_jax import decide
assert not {"jax", "cv2", "sklearn", "scipy"} & set(sys.modules)
from cloc_jax import light_imports, predict, train
assert light_imports.import_without("tensorboardX", "torch").SummaryWriter
heavy = {"matplotlib", "sklearn", "scipy.stats", "umap", "numba", "torch", "tensorflow"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, check=True)
