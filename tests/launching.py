"""Running launch.py as a user does, at a size that takes seconds."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Tests compile longer than they compute; this halves what compilation takes.
QUICK = "--xla_backend_optimization_level=0"
# Fewer than 100 images to draw: the picture of the embedding is then a quick PCA.
TINY = [
    "--config.data.num_train=48",
    "--config.data.num_val=20",
    "--config.data.num_test=14",
    "--config.data.size=(24, 24)",
    "--config.encoder.widths=(2, 4, 4, 4)",
    "--config.head.hidden=8",
    "--config.train.batch_size=8",
    "--config.train.max_epochs=2",
    "--config.train.checkpoint_steps=4",
    "--config.train.eval_batch_size=14",  # one shape for every split
]


def launch(*arguments, cwd, script="launch.py", seconds=300, **environment):
    """The finished process of `python launch.py arguments`."""
    words = [str(ROOT / script), *arguments]
    return _run(words, cwd, {"XLA_FLAGS": QUICK} | environment, seconds)


def launched(*arguments, **options):
    """The process of `launch`, which must have ended well."""
    process = launch(*arguments, **options)
    assert process.returncode == 0, process.stderr
    return process


def stand_ins(place, *names):
    """A file that appears if such a library is imported, and variables for that."""
    trace = place / "imported"
    (place / "stub").mkdir(parents=True)
    for name in names:
        code = f"open({str(trace)!r}, 'w').close()\n"
        (place / "stub" / f"{name}.py").write_text(code)
    return trace, {"PYTHONPATH": os.pathsep.join([str(ROOT), str(place / "stub")])}


def run_code(code, *arguments, cwd=ROOT, **environment):
    """The finished process of `python -c code arguments`."""
    return _run(["-c", code, *arguments], cwd, environment)


def _run(words, cwd, environment, seconds=300):
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
