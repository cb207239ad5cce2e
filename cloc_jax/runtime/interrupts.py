"""SIGINT and SIGTERM as a request that the training loop answers at a safe point."""

import contextlib
import signal
from collections.abc import Iterator


class Interrupted(Exception):
    """Training stopped because it was asked to, with everything saved."""

    def __init__(self, number: int, message: str):
        super().__init__(message)
        self.number = number


class Requests:
    """The signal that came in, 0 while there is none."""

    number = 0


@contextlib.contextmanager
def requests() -> Iterator[Requests]:
    """Collects the first SIGINT or SIGTERM; a second one acts at once, as usual."""
    seen = Requests()
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}

    def restore():
        for number, handler in before.items():
            signal.signal(number, handler)

    def handle(number, frame):
        seen.number = number
        restore()

    for number in before:
        signal.signal(number, handle)
    try:
        yield seen
    finally:
        restore()
