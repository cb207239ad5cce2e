"""Memory that the process keeps instead of returning it to the system after use.

XLA allocates the temporaries of a step on a CPU anew in every step. By default glibc
takes such blocks from the kernel and returns them at once, so that a large part of a
step is the kernel clearing fresh pages. With the settings below, freed blocks stay with
the process and are used again; its memory then stays as large as it ever was.
"""

import ctypes
import os
import sys

SWITCH = "CLOC_KEEP_MEMORY"  # the environment variable; 0 leaves the allocator alone

# Numbers of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8


def keep_memory() -> bool:
    """Makes glibc keep freed memory; whether it does now.

    Has to be called before libraries start threads, each of which may get an arena of
    its own. Nothing happens on other C libraries, where the user set the allocator up
    by GLIBC_TUNABLES or MALLOC_…_, or with CLOC_KEEP_MEMORY=0.
    """
    by_user = "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "") or any(
        name.startswith("MALLOC_") for name in os.environ
    )
    if by_user or os.environ.get(SWITCH) == "0" or sys.platform != "linux":
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, -1), (_M_ARENA_MAX, 1))
    return all([library.mallopt(which, value) for which, value in settings])
