"""Standard output and error: always there to write to, though the reader may leave."""

import contextlib
import os
import select
import signal
import sys
from collections.abc import Iterator

UNREAD = 128 + signal.SIGPIPE  # exit code, as of a program that the signal ended


def open_missing() -> None:
    """Gives a process that was started without output somewhere to write to."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))


@contextlib.contextmanager
def reader_may_leave() -> Iterator[None]:
    """Ends the program quietly where nobody reads what it prints, as in `… | head`.

    SIGPIPE, which ends other programs then, stays ignored, as Python has it: libraries
    write to pipes and sockets of their own, which another thread may just have closed,
    and count on an error instead.
    """
    is_unread = False
    try:
        yield
    except BrokenPipeError:
        if not has_no_reader():
            raise
        is_unread = True
    finally:
        if drop_unread() or is_unread:
            sys.exit(UNREAD)


def has_no_reader() -> bool:
    """Whether output or error is a pipe that nobody reads."""
    poll = select.poll()
    for stream in (sys.stdout, sys.stderr):
        poll.register(stream.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def drop_unread() -> bool:
    """Writes out what was printed; whether that failed, so that it was dropped."""
    is_unread = False
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            is_unread = True
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
    return is_unread
