"""Memory that is kept: when the allocator is set up, and what that does."""

import os
import subprocess
import sys

import pytest

from cloc_jax.runtime import environment

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
    "name, value",
    [
        ("CLOC_KEEP_MEMORY", "0"),
        ("GLIBC_TUNABLES", "glibc.malloc.arena_max=4"),
        ("MALLOC_ARENA_MAX", "4"),
    ],
)
def test_what_the_user_set_up_is_left_alone(monkeypatch, name, value):
    monkeypatch.setattr("ctypes.CDLL", lambda _: pytest.fail("the allocator was set"))
    monkeypatch.setenv(name, value)
    assert not environment.keep_memory()


def test_other_systems_are_left_alone(monkeypatch):
    monkeypatch.setattr("ctypes.CDLL", lambda _: pytest.fail("the allocator was set"))
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not environment.keep_memory()
