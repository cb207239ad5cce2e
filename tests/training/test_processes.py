"""Runs of two real processes on this machine."""

import json
import os
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest
from launching import QUICK, ROOT, TINY, launch, launched
from tiny_runs import arrays

# SGD, since Adam makes full steps of the rounding noise in tiny gradients.
COMMAND = [
    *TINY,
    "--config.optimizer.name=sgd",
    "--config.optimizer.learning_rate=0.01",
    "--config.train.log_steps=2",
]


def together(*arguments, cwd, kills=("", ""), caches=None):
    """Two processes that train together, each with its place to die, or none.

    `caches` are their folders for what is kept, by default that of the tests.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for index, kill in enumerate(kills):
        script = "tests/killed_launch.py" if kill else "launch.py"
        flags = [f"--coordinator=127.0.0.1:{port}", "--processes=2"]
        started.append(
            subprocess.Popen(
                [sys.executable, str(ROOT / script), *arguments, *flags]
                + [f"--process={index}"],
                cwd=cwd,
                env=os.environ
                | {"PYTHONPATH": str(ROOT), "XLA_FLAGS": QUICK, "CLOC_KILL": kill}
                | ({"XDG_CACHE_HOME": str(caches[index])} if caches else {}),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    outputs = [process.communicate(timeout=300) for process in started]
    return [p.returncode for p in started], outputs


@pytest.mark.slow
def test_start_on_one_lose_one_of_two_and_end_on_two(tmp_path):
    launched(*COMMAND, "--run=alone", cwd=tmp_path)

    first = launch(
        *COMMAND,
        "--run=joint",
        cwd=tmp_path,
        script="tests/killed_launch.py",
        CLOC_KILL="SIGTERM joint 3",
    )
    assert first.returncode == 128 + signal.SIGTERM, first.stderr

    command = [*COMMAND, "--run=joint", "--resume"]
    codes, outputs = together(*command, cwd=tmp_path, kills=("", "SIGKILL refine 3"))
    assert codes[0] not in (0, 2), outputs  # it does not wait for one that is gone

    codes, outputs = together(*command, cwd=tmp_path)
    assert codes == [0, 0], outputs
    assert "report" in outputs[0][0] and "report" not in outputs[1][0]

    assert_alike(tmp_path / "alone", tmp_path / "joint")


def assert_alike(alone, joint):
    for stage in ("joint", "refine"):
        one, two = arrays(alone, stage), arrays(joint, stage)
        assert list(one) == list(two)
        for name in one:
            np.testing.assert_allclose(one[name], two[name], rtol=1e-5, atol=1e-5)
    rows = [
        [json.loads(line) for line in (run / "history.jsonl").open()]
        for run in (alone, joint)
    ]
    assert len(rows[0]) == len(rows[1])
    for a, b in zip(*rows, strict=True):
        assert a["train"]["loss"] == pytest.approx(b["train"]["loss"], rel=1e-4)


def kept(cache):
    """Bytes by store and name."""
    found = {}
    for listed in cache.glob("cloc_jax/features/*/*.json"):
        rows = np.load(listed.with_suffix(".npy"))
        names = json.loads(listed.read_text())["names"]
        for name, row in zip(names, rows, strict=True):
            found[listed.parent.name, name] = row.tobytes()
    return found


@pytest.mark.slow
def test_two_processes_keep_the_features_that_one_keeps(tmp_path):
    settings = ["encoder.trainable_from=layer4", "encoder.views=2"]
    command = [*COMMAND, *(f"--config.{setting}" for setting in settings)]
    first, second, third, fourth = (tmp_path / f"cache{i}" for i in range(4))
    launched(*command, "--run=alone", cwd=tmp_path, XDG_CACHE_HOME=str(first))
    expected = kept(first)
    assert len(expected) == 2 * 48 + 20 + 14
    for run, caches in ("one", (second, second)), ("two", (third, fourth)):
        codes, outputs = together(*command, f"--run={run}", cwd=tmp_path, caches=caches)
        assert codes == [0, 0], outputs
        assert_alike(tmp_path / "alone", tmp_path / run)
        assert all(kept(cache) == expected for cache in caches)
