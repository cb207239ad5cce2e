"""A parent that outlives a process of a run and says what became of it.

When one of several processes dies, JAX's own threads abort the others with pages of
stack traces and no chance to speak. So each process works in a child, and the parent,
which does nothing else, has the last word. It imports no JAX: a process must be forked
before its threads start.
"""

import ctypes
import os
import signal
import sys

from cloc_jax.runtime import standard_streams

PR_SET_PDEATHSIG = 1  # of prctl(2)
LOST = 3  # exit code of a process that lost the others


def is_joint(coordinator: str) -> bool:
    """Whether several processes were asked to work together."""
    is_named = bool(coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS"))
    return is_named or int(os.environ.get("SLURM_NTASKS", 1)) > 1


def guard() -> None:
    """Goes on in a child; the parent passes signals on and never returns."""
    child = os.fork()
    if not child:
        os.setpgid(0, 0)  # a terminal's Ctrl-C reaches the parent, which passes it on
        if sys.platform == "linux":  # a killed parent takes its child along
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        return
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda n, _: os.kill(child, n))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code in (-signal.SIGABRT, LOST):
        print(
            "error: another process of this run has died or cannot be reached, so this "
            "one ended too. The run's folder has its last checkpoint: start all "
            "processes again with --resume.",
            file=sys.stderr,
            flush=True,
        )
        code = LOST
    os._exit(code if code >= 0 else 128 - code)


def give_up(code: int) -> None:
    """Ends the child at once, without waiting for processes that are gone."""
    standard_streams.drop_unread()
    os._exit(code)
