"""SIGINT and SIGTERM as a request that the training loop answers at a safe point."""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator


class Interrupted(Exception):
    """Training stopped because it was asked to, with everything saved."""

    def __init__(self, number: int, message: str):
        super().__init__(message)
        self.number = number


def as_exceptions() -> None:
    """Makes Ctrl-C a KeyboardInterrupt, where `launch.py` had it end the program.

    One that comes within a callback of the garbage collector or a destructor is dropped
    by Python, which only prints it. It is sent again instead.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    before = sys.unraisablehook

    def hook(dropped):
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            # From a thread, so that the callback has returned when it arrives.
            again = (os.getpid(), signal.SIGINT)
            threading.Timer(0.01, os.kill, again).start()
        else:
            before(dropped)

    sys.unraisablehook = hook


class Requests:
    """The signal that came in, 0 while there is none."""

    number = 0


@contextlib.contextmanager
def requests() -> Iterator[Requests]:
    """Collects the first SIGINT or SIGTERM and says so; a second one ends at once.

    Python's own handlers wait until compiled code returns. A thread that the signals
    wake does not, so the answer comes at once whatever is being computed.
    """
    seen = Requests()
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    ours, woken = socket.socketpair()
    woken.setblocking(False)

    def handle(number, frame):
        seen.number = seen.number or number

    def listen():
        count = 0
        while number := ours.recv(1):
            if number[0] not in before:
                continue
            count += 1
            if count == 1:
                seen.number = seen.number or number[0]
                _say(
                    f"{signal.Signals(number[0]).name}: stopping as soon as all is "
                    "saved; once more ends it at once"
                )
            else:
                _say("ended at once; --resume goes on from the last checkpoint")
                os._exit(128 + number[0])

    for number in before:
        signal.signal(number, handle)
    waked_before = signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        signal.set_wakeup_fd(waked_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        woken.close()
        thread.join()
        ours.close()


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # nobody may be listening
        print(text, file=sys.stderr, flush=True)
