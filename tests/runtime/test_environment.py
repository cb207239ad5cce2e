"""Memory that is kept, and readers of the output that leave."""

import os
import subprocess
import sys

import pytest
from launching import ROOT, TINY, launch

from cloc_jax.runtime import environment, errors

# Minor page faults of ten blocks of 64 MiB that are written and freed, one by one.
FAULTS = """
import resource
from cloc_jax.runtime import environment

environment.keep_memory()
for _ in range(2):
    bytes(bytearray(2**26))
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    bytearray(b"1") * 2**26
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(**variables: str) -> int:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", FAULTS],
        env=clean | {"PYTHONPATH": os.pathsep.join(sys.path)} | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc is asked for")
def test_freed_blocks_are_used_again_without_asking_the_kernel():
    kept, not_kept = faults(), faults(CLOC_KEEP_MEMORY="0")
    # 64 MiB are 16,384 pages, or 32 where the kernel hands out huge ones.
    assert kept < not_kept / 4


@pytest.mark.parametrize(
    "platform, name, value",
    [
        ("linux", "CLOC_KEEP_MEMORY", "0"),
        ("linux", "MALLOC_ARENA_MAX", "4"),
        ("darwin", "HOME", "/"),
    ],
)
def test_other_allocators_are_left_alone(monkeypatch, platform, name, value):
    monkeypatch.setattr("ctypes.CDLL", lambda _: pytest.fail("the allocator was set"))
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv(name, value)
    assert not environment.keep_memory()


PLAN = ["tables", "--data=synthetic", "--methods=ce", "--only=comparison", "--dry-run"]


@pytest.mark.parametrize(
    "words, unbuffered",
    [
        (["--help"], ""),
        (PLAN, "1"),
        pytest.param([*TINY, "--run=unread"], "", marks=pytest.mark.slow),
    ],
    ids=["print", "console", "training"],
)
def test_nobody_reads_the_output(words, unbuffered, tmp_path):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, str(ROOT / "launch.py"), *words]
    process = subprocess.run(
        command,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
    )
    os.close(write)
    assert process.returncode == errors.UNREAD
    assert process.stderr == ""


def test_nobody_reads_an_error(tmp_path):
    command = f'"{sys.executable}" "{ROOT / "launch.py"}" decide --run=nowhere'
    process = subprocess.run(
        f"({command}; echo $? >code) 2>&1 | true", shell=True, cwd=tmp_path
    )
    assert process.returncode == 0
    assert int((tmp_path / "code").read_text()) in (2, errors.UNREAD)


def test_a_socket_that_another_thread_closed_does_not_end_the_program(tmp_path):
    # As asyncio does while an event loop of a checkpoint is closed.
    config = tmp_path / "config.py"
    config.write_text(
        "import socket\n"
        "from configs import quickstart\n"
        "def get_config():\n"
        "    ours, theirs = socket.socketpair()\n"
        "    theirs.close()\n"
        "    try:\n"
        "        ours.send(b'x')\n"
        "    except BrokenPipeError:\n"
        "        print('went on')\n"
        "    return quickstart.get_config()\n"
    )
    words = ["--config=config.py", "--config.train.batch_size=3"]
    process = launch(*words, cwd=tmp_path)
    assert "went on" in process.stdout
    assert process.returncode == 2 and "train.batch_size" in process.stderr
