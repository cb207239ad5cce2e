"""Who may import whom, so that every module can be read without the ones above it."""

import ast
import pathlib
import shutil
import subprocess
import sys

import pytest
from launching import run_code

import cloc_jax

PACKAGE = pathlib.Path(cloc_jax.__file__).parent
# Rooms from the ground up; a room imports from lower levels only.
LEVELS = (
    {"runtime"},
    {"config"},
    {"config_files"},
    {"losses", "encoders"},
    {"methods", "data"},
    {"scoring"},
    {"training"},
    {"report"},
    {"sweeps", "bench", "api"},
    {"paper"},
    {"cli"},
    {"sklearn"},
)
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
# These take plain arguments, and no configuration.
PLAIN = {"runtime", "losses", "encoders", "methods", "data", "scoring"}


def imports(path):
    """Names that a file imports anywhere, with modules in full."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            here = path.relative_to(PACKAGE.parent).parts
            above = (*(here[: -node.level] if node.level else ()), node.module or "")
            source = ".".join(filter(None, above))
            yield from (f"{source}.{alias.name}" for alias in node.names)


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_arrows(path):
    parts = path.relative_to(PACKAGE).parts
    ours = {n.split(".")[1] for n in imports(path) if n.startswith("cloc_jax.")}
    room = parts[0].removesuffix(".py")
    if room in ("__init__", "__main__"):
        # The interface of Python is imported late, and so is the command line.
        assert ours == {"__init__": {"api", "scoring"}, "__main__": {"cli"}}[room]
        return
    assert room in LEVEL, "every module has a room"
    above = {other for other in ours - {room} if LEVEL[other] >= LEVEL[room]}
    assert not above, f"{room} imports {sorted(above)}"
    if room in PLAIN:
        assert not any("ml_collections" in name for name in imports(path)), (
            "lower rooms take plain arguments"
        )


def test_no_module_imports_one_that_imports_it():
    names = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path
        for path in FILES
        if path.name != "__init__.py"
    }
    waiting = {
        name: {known for n in imports(path) for known in (n, n.rpartition(".")[0])}
        & (names.keys() - {name})
        for name, path in names.items()
    }
    while free := [name for name, needs in waiting.items() if not needs]:
        for name in free:
            del waiting[name]
        for needs in waiting.values():
            needs.difference_update(free)
    assert not waiting, f"modules in or above a circle: {sorted(waiting)}"


def test_the_loss_can_be_copied_out(tmp_path):
    shutil.copytree(PACKAGE / "losses", tmp_path / "mine")
    code = "import sys; sys.modules['cloc_jax'] = None; from mine import mmnp"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    for path in (PACKAGE / "losses").rglob("*.py"):
        own = "cloc_jax.losses."  # by relative imports
        foreign = {n.split(".")[0] for n in imports(path) if not n.startswith(own)}
        assert foreign <= {"jax", "jaxtyping", "numpy", "optax", "typing"} | {
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
import cloc_jax
from cloc_jax.cli import main
assert "jax" not in sys.modules and "numpy" not in sys.modules
assert not hasattr(cloc_jax, "nothing")
from cloc_jax.cli import decide
from cloc_jax.paper import claims
assert not {"jax", "cv2", "sklearn", "scipy"} & set(sys.modules)
from cloc_jax.losses import mmnp
assert not {"flax", "huggingface_hub"} & set(sys.modules)
from cloc_jax.cli import predict
from cloc_jax.training import run
heavy = {"matplotlib", "sklearn", "scipy.stats", "umap", "numba", "torch", "tensorflow"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
    process = run_code(code)
    assert process.returncode == 0, process.stderr
