"""Signals are answered at once, whatever is being computed."""

import pathlib
import signal
import subprocess
import sys

import pytest

# The main thread is in compiled code, where no handler of Python's can run.
BLOCKED = """
import ctypes
from cloc_jax.runtime import errors
with errors.stop_requests() as requests:
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


# A callback of the garbage collector, as JAX has one, is what the signal interrupts.
COLLECTING = """
import gc, os, signal, time
from cloc_jax.runtime import errors
signal.signal(signal.SIGINT, signal.SIG_DFL)
errors.raise_interrupts()
def callback(phase, info):
    if phase == "start":
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
gc.callbacks.append(callback)
try:
    gc.collect()
    gc.callbacks.clear()
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_within_a_callback_is_not_lost():
    process = subprocess.run(
        [sys.executable, "-c", COLLECTING], capture_output=True, text=True, timeout=50
    )
    assert process.stdout == "interrupted\n"
    assert process.stderr == ""


def test_ctrl_c_amid_the_imports_ends_the_program_at_once(tmp_path):
    launch = pathlib.Path(__file__).parents[2] / "launch.py"
    code = f"""
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it behind &
class Interrupt:  # when the first module of this project is looked for
    def find_spec(self, name, *_):
        if name.startswith("cloc_jax"):
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
sys.argv = ["launch.py"]
runpy.run_path({str(launch)!r}, run_name="__main__")
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert process.returncode == -signal.SIGINT
    assert process.stderr == "" and not list(tmp_path.iterdir())
