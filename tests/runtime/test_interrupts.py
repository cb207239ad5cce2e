"""Signals are answered at once, whatever is being computed."""

import signal
import subprocess
import sys

import pytest

# The main thread is in compiled code, where no handler of Python's can run.
BLOCKED = """
import ctypes
from cloc_jax.runtime import interrupts
with interrupts.requests() as requests:
    print("ready", flush=True)
    libc = ctypes.CDLL(None)
    for _ in range(3):
        left = 3
        while left > 0:
            left = libc.sleep(left)
        if requests.number:
            raise SystemExit(10 + requests.number)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_the_first_is_acknowledged_and_the_second_ends(name):
    process = subprocess.Popen(
        [sys.executable, "-c", BLOCKED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(getattr(signal, name))
    said = process.stderr.readline()  # while the main thread is still busy
    assert said.startswith(f"{name}: stopping as soon as all is saved")
    process.send_signal(getattr(signal, name))
    assert process.wait(timeout=60) == 128 + getattr(signal, name)
    assert "--resume" in process.stderr.read()
