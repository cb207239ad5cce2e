"""Readers that leave, and pipes that break elsewhere."""

import os
import subprocess
import sys

import pytest
from launching import ROOT, TINY, launch

from cloc_jax.runtime import environment

PLAN = ["tables", "--data=synthetic", "--methods=ce", "--only=comparison", "--dry-run"]


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "words",
    [["--help"], PLAN, [*TINY, "--run=unread"]],
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
    assert process.returncode == environment.UNREAD
    assert process.stderr == ""


def test_nobody_reads_an_error(tmp_path):
    command = f'"{sys.executable}" "{ROOT / "launch.py"}" decide --run=nowhere'
    process = subprocess.run(
        f"({command}; echo $? >code) 2>&1 | true", shell=True, cwd=tmp_path
    )
    assert process.returncode == 0
    assert int((tmp_path / "code").read_text()) in (2, environment.UNREAD)


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
