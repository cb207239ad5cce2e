"""Errors as sentences, names that are safe to show, and signals answered at once."""

import errno
import io
import os
import pathlib
import signal
import subprocess
import sys

import pytest
from launching import ROOT, run_code
from rich.table import Table

from cloc_jax.runtime import errors
from cloc_jax.runtime.console import SafeConsole
from cloc_jax.runtime.errors import printable


@pytest.mark.parametrize("number", [*errors.ADVICE, errno.ECONNRESET])
def test_a_sentence_has_the_file_and_the_systems_words(number):
    said = errors.sentence(OSError(number, os.strerror(number), "/data/x.png"))
    assert said.startswith(f"/data/x.png: {os.strerror(number)}.")
    assert "\n" not in said and errors.ADVICE.get(number, "") in said


def test_what_libraries_wrap_is_found():
    text = "INTERNAL: Error writing: [OS error 28: ENOSPC No space left on device]"
    assert errors.sentence(RuntimeError(text)).startswith("No space left on device")
    try:
        try:
            raise PermissionError(errno.EACCES, "no", "/data")
        except PermissionError as cause:
            raise RuntimeError("a library gave up") from cause
    except RuntimeError as error:
        assert errors.sentence(error).startswith("/data: Permission denied.")
    assert errors.sentence(ValueError("shapes differ")) == ""


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 B")],
)
def test_too_little_memory_is_a_sentence(error):
    assert "use smaller batches" in errors.sentence(error)


def test_an_error_that_names_a_file_goes_before_one_that_does_not():
    try:
        try:
            raise OSError(errno.ENOSPC, "full", "/run/checkpoints/3")
        except OSError:
            raise OSError(errno.ENOSPC, "full")  # noqa: B904
    except OSError as error:
        assert errors.sentence(error).startswith("/run/checkpoints/3: ")


def test_writing_names_its_file_and_its_kind():
    with pytest.raises(OSError) as caught, errors.naming("/run/history.jsonl"):
        raise OSError(errno.ENOSPC, "full")
    assert caught.value.filename == "/run/history.jsonl"
    with pytest.raises(OSError) as caught, errors.naming(pathlib.Path("/run/7")):
        raise ValueError("Error writing [OS error 28: No space left on device]")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "/run/7")
    with pytest.raises(ValueError, match="shapes"), errors.naming("/run/7"):
        raise ValueError("shapes differ")


def test_places_that_cannot_be_written_are_found_first(tmp_path):
    errors.check_writable(tmp_path / "not" / "yet" / "there", "--run")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match="--run=.*Not a directory.*another path"):
        errors.check_writable(tmp_path / "file" / "run", "--run")
    with pytest.raises(OSError, match="--output=/proc/run/x.csv cannot be written"):
        errors.check_writable(pathlib.Path("/proc/run/x.csv"), "--output")


@pytest.mark.parametrize(
    "text, shown",
    [
        ("Grad 3, größer", "Grad 3, größer"),
        ("two\nlines\tand more", "two\nlines\tand more"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("a\rb\x08c\x7f\x9b", r"a\rb\x08c\x7f\x9b"),
        (os.fsdecode(b"caf\xe9.png"), r"caf\xe9.png"),
        ("abc\u202egnp.exe", r"abc\u202egnp.exe"),
        ("\ud800", r"\ud800"),
    ],
)
def test_shown(text, shown):
    assert printable(text) == shown
    assert printable(shown) == shown  # nothing is escaped twice


def test_console_obeys_nothing_in_text():
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    console = SafeConsole(file=out, markup=False, highlight=False, width=200)
    name = "\x1b[2J" + os.fsdecode(b"\xff.png")
    console.print(f"skipped {name}")
    table = Table(name, title=name)
    table.add_row(name)
    console.print(table)
    out.flush()
    written = out.buffer.getvalue()
    assert written.count(rb"\x1b[2J\xff.png") == 4 and b"\x1b" not in written


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
    process = run_code(COLLECTING)
    assert process.stdout == "interrupted\n"
    assert process.stderr == ""


def test_ctrl_c_amid_the_imports_ends_the_program_at_once(tmp_path):
    code = f"""
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it behind &
class Interrupt:  # when the command line is looked for, before its libraries
    def find_spec(self, name, *_):
        if name.startswith("cloc_jax.cli"):
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
sys.argv = ["launch.py"]
runpy.run_path({str(ROOT / "launch.py")!r}, run_name="__main__")
"""
    process = run_code(code, cwd=tmp_path)
    assert process.returncode == -signal.SIGINT
    assert process.stderr == "" and not list(tmp_path.iterdir())
