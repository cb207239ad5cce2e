"""What is installed: the licence, the versions, and a wheel that works alone."""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile

import flax
import jax
import pytest
import yaml
from launching import QUICK, ROOT, TINY
from packaging.requirements import Requirement

import cloc_jax
from cloc_jax.cli import main
from cloc_jax.runtime import environment
from cloc_jax.runtime.console import console

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DEPENDENCIES = list(map(Requirement, PROJECT["dependencies"]))
CONFIGS = ROOT / "configs"
# What a wheel is made of.
SOURCES = ("cloc_jax", "configs", "pyproject.toml", "setup.py", "README.md")
# What the tests of the losses need besides the package.
TOOLS = ("beartype", "hypothesis", "pytest", "pytest-xdist")


def constraints() -> dict[str, str]:
    """The version of each package in constraints.txt, by its name in lower case."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {name.lower().replace("_", "-"): version for name, version in pairs}


def test_licence_and_citation_name_this_version_and_the_paper():
    texts = [(ROOT / name).read_text() for name in PROJECT["license-files"]]
    assert "Apache License\n" in texts[0] and "Version 2.0, January 2004" in texts[0]
    (script,) = (ROOT / "cloc_jax").rglob("*.min.js")  # all else is our own
    version = script.read_text()[:80].partition("(v")[2].partition(")")[0]
    assert version and script.name in texts[1] and f"| {version} | MIT" in texts[1]
    assert "The MIT License" in texts[2] and PROJECT["license"].endswith("AND MIT")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0" and citation["type"] == "software"
    assert citation["version"] == cloc_jax.__version__
    assert citation["license"] == PROJECT["license"].partition(" ")[0]
    readme = " ".join((ROOT / "README.md").read_text().replace("*", "").split())
    paper = citation["preferred-citation"]
    assert f"{paper['title']}, CVPR {paper['year']}" in readme


def test_constraints_have_every_version_that_is_asked_for():
    pinned, extras = constraints(), PROJECT["optional-dependencies"]
    asked = [*DEPENDENCIES, *(Requirement(one) for e in extras for one in extras[e])]
    for one in asked:
        version = pinned[one.name.lower().replace("_", "-")]
        assert one.specifier.contains(version), (str(one), version)
        assert "+" not in version and "@" not in version  # a build of one machine
    for path in ROOT.glob("requirements*.txt"):
        assert "-c constraints.txt\n-e ." in path.read_text(), path


def test_version_names_what_runs(capsys):
    assert main.main(["--version"]) == 0
    first, second, device = capsys.readouterr().out.splitlines()
    assert first == f"cloc_jax {cloc_jax.__version__}"
    assert f"jax {jax.__version__}, flax {flax.__version__}, optax" in second
    assert device.startswith("on cpu x8")


@pytest.mark.parametrize("has_launch", [True, False])
def test_commands_are_named_as_they_are_here(has_launch, tmp_path, monkeypatch, capsys):
    file = tmp_path / "launch.py"
    monkeypatch.setattr(environment, "LAUNCH", file)
    if has_launch:
        file.touch()
    program = "python launch.py" if has_launch else "cloc-jax"
    assert main.main(["--help"]) == 0
    with pytest.raises(SystemExit):
        main.main(["decide", "--help"])
    console.print("`launch.py evaluate` and my_launch.py")
    said = capsys.readouterr()
    assert f"    {program} predict --run=DIR image.png" in said.out
    assert f"usage: {program} decide" in said.out
    assert f"`{program.split()[-1]} evaluate` and my_launch.py" in said.out
    assert main.main(["evaluate", "--run=nowhere"]) == 2
    assert main.main(["--resume", "show"]) == 2
    assert f"first: {program} show" in capsys.readouterr().err


# --- installed elsewhere ---


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this checkout; its build leaves nothing here, and finds nothing."""
    place = tmp_path_factory.mktemp("wheel")
    source = place / "source"
    source.mkdir()
    for name in {*SOURCES, *PROJECT["license-files"]}:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, source / name, ignore=ignored)
        elif "/" not in name:
            shutil.copy(ROOT / name, source)
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", source, cwd=place)
    (found,) = place.glob("*.whl")
    return found


def run(*words, cwd, xla_flags=QUICK):
    """What a command printed, which knows nothing of this checkout."""
    ours = ("PYTHONPATH", "XLA_FLAGS", "PYTEST_XDIST_WORKER")
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    process = subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env=kept | ({"XLA_FLAGS": xla_flags} if xla_flags else {}),
        capture_output=True,
        text=True,
    )
    said = process.stdout + process.stderr
    assert process.returncode == 0, f"{words}\n{said[-6000:]}"
    return said


@pytest.mark.slow
def test_a_wheel_works_alone(wheel, tmp_path):
    folder = tmp_path / "environment"
    venv.create(folder, with_pip=True)
    (library,) = folder.glob("lib/*/site-packages")
    # Dependencies are those of the tests; only the package is installed.
    (library / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    place = tmp_path / "elsewhere"
    place.mkdir()
    python, program = folder / "bin" / "python", folder / "bin" / "cloc-jax"
    run(python, "-m", "pip", "install", "-q", "--no-deps", wheel, cwd=place)

    names = {pathlib.PurePath(n) for n in zipfile.ZipFile(wheel).namelist()}
    inside = {str(n) for n in names if n.parts[0] == "cloc_jax"}
    assert {n.parts[0] for n in names if str(n) not in inside} == {
        f"cloc_jax-{cloc_jax.__version__}.dist-info"
    }
    wanted = [p for p in (ROOT / "cloc_jax").rglob("*") if "__pycache__" not in p.parts]
    wanted += [ROOT / "cloc_jax" / p.relative_to(ROOT) for p in CONFIGS.glob("*.py")]
    assert inside == {str(p.relative_to(ROOT)) for p in wanted if not p.is_dir()}

    where = run(python, "-c", "import cloc_jax; print(cloc_jax.__file__)", cwd=place)
    assert where.startswith(str(library))
    assert run(program, "--version", cwd=place).startswith("cloc_jax ")
    said = run(program, "train", "--config=quickstart", *TINY, "--run=run", cwd=place)
    assert "report  run/report.html" in said
    run(python, "-m", "cloc_jax", "predict", "--run=run", "run/examples", cwd=place)
    rows = (place / "run" / "predicted.csv").read_text().splitlines()
    assert len(rows) == 1 + len(list((place / "run" / "examples").iterdir()))
    (place / "run" / "report.html").unlink()
    run(program, "report", "--run=run", cwd=place)
    assert "cloc-jax decide --run=run" in (place / "run" / "report.html").read_text()
    run(program, "export", "--run=run", "--to=model", cwd=place)
    code = "import cloc_jax; print(cloc_jax.load('model')('run/examples/grade-0.png'))"
    assert "predicted=" in run(python, "-c", code, cwd=place)
    said = run(program, "train", "--config=koa", "--help", cwd=place)
    assert "usage: cloc-jax train" in said


@pytest.mark.oldest
def test_the_oldest_versions_train(wheel, tmp_path):
    venv.create(tmp_path / "environment", with_pip=True)
    python, pinned = tmp_path / "environment" / "bin" / "python", constraints()
    oldest = tmp_path / "oldest.txt"
    lines = [str(one).replace(">=", "==") for one in DEPENDENCIES]
    oldest.write_text("\n".join(lines))
    tools = [f"{name}=={pinned[name]}" for name in TOOLS]
    words = ("-m", "pip", "install", "-q", "-c", oldest, wheel, *tools)
    run(python, *words, cwd=tmp_path)

    run(python, "-m", "cloc_jax", *TINY, "--run=run", cwd=tmp_path)
    for job in ("predict run/examples", "report", "export --to=model"):
        name, *more = job.split()
        run(python, "-m", "cloc_jax", name, "--run=run", *more, cwd=tmp_path)
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", ROOT / "tests" / "losses")
    words += ("-k", "not memory_is_square")  # the compiler of then needs more
    run(python, *words, cwd=ROOT, xla_flags="")
