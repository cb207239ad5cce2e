"""What goes wrong outside the program: errors of the system as sentences, text that is
safe to show, readers of the output that leave, and requests to stop.
"""

import contextlib
import errno
import os
import pathlib
import re
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator

GO_ON = "An interrupted run goes on with --resume, a sweep with the same command."
# What can be done, by kind of error; the sentence has the file and the system's words.
ADVICE = {
    errno.ENOSPC: f"Make room on that disk; what was written before is whole. {GO_ON}",
    errno.EDQUOT: "The quota there is used up: make room; what was written before is "
    f"whole. {GO_ON}",
    errno.EFBIG: "Files may not grow further there (ulimit -f, or the file system); "
    f"raise the limit. {GO_ON}",
    errno.EACCES: "Change its permissions, or give another place.",
    errno.EPERM: "Change its permissions, or give another place.",
    errno.EROFS: "Give a place that can be written to.",
    errno.ENOENT: "Check the name, and whether it was removed meanwhile.",
    errno.ENOTDIR: "A part of the path is a file; give another path.",
    errno.EISDIR: "It is a folder; name a file.",
    errno.EIO: "The disk or the network behind it fails; copy what is there to another "
    "place.",
    errno.EMFILE: "Too many files are open; raise the limit (ulimit -n).",
    errno.ENOMEM: "There is not enough memory; use smaller batches or images.",
}
UNREAD = 128 + signal.SIGPIPE  # exit code, as of a program that the signal ended
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_NO_MEMORY = "RESOURCE_EXHAUSTED: Out of memory"  # as XLA says it of a device
# Recognized by the system's words alone, which some libraries quote without a number.
_BY_WORDS = (*NO_ROOM, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO)

# --- sentences ---


def sentence(error: BaseException) -> str:
    """What happened and what to do, where the system is behind an error; else "".

    Libraries in C++ wrap the system's errors in their own, which have its words.
    """
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    of_system = [c for c in causes if isinstance(c, OSError) and c.errno is not None]
    # The first that names a file, since some do not.
    for known in sorted(of_system, key=lambda c: c.filename is None):
        return _sentence(known.errno or 0, known.filename, known.filename2)
    if any(isinstance(c, MemoryError) or _NO_MEMORY in str(c) for c in causes):
        return _sentence(errno.ENOMEM)
    numbers = (_number(str(cause)) for cause in causes)
    return next((_sentence(number) for number in numbers if number), "")


def _sentence(number: int, *names: str | bytes | int | None) -> str:
    paths = [os.fsdecode(n) for n in names if isinstance(n, str | bytes) and n]
    words = os.strerror(number)
    where = f"{' -> '.join(paths)}: {words}" if paths else words
    return f"{where}. {ADVICE.get(number, '')}".rstrip()


def _number(text: str) -> int:
    """The system's error that a message of a library is about, or 0."""
    match = re.search(r"(?:OS error |errno[= ]+)(\d+)", text)
    if match:
        return int(match[1])
    return next((n for n in _BY_WORDS if os.strerror(n).lower() in text.lower()), 0)


@contextlib.contextmanager
def naming(path: str | os.PathLike) -> Iterator[None]:
    """Lets errors of the system name a path, which those of writing do not.

    A library's error that is about the system becomes an OSError.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            error.filename = error.filename or os.fspath(path)
            raise
        number = _number(str(error))
        if not number:
            raise
        raise OSError(number, os.strerror(number), os.fspath(path)) from error


def check_writable(path: pathlib.Path, flag: str) -> None:
    """OSError where nothing could be written at a path, which need not exist yet."""
    place = next(p for p in (path, *path.absolute().parents) if p.exists())
    is_file = place == path and not place.is_dir()
    try:
        with tempfile.TemporaryFile(dir=place.parent if is_file else place):
            pass
    except OSError as error:
        error.filename = os.fspath(place)
        raise OSError(f"{flag}={path} cannot be written: {sentence(error)}") from None


def printable(text: str) -> str:
    r"""The text with what is not safe to show written as \x1b or \u202e.

    Names of files can hold anything but a slash: escape sequences that a terminal would
    obey, marks that show a name in another order, bytes that are not UTF-8. Files carry
    names unchanged (`errors="surrogateescape"`); people see them through this.
    """
    if text.isprintable():
        return text
    shown = (c if c.isprintable() or c in "\t\n" else ascii(c)[1:-1] for c in text)
    return "".join(shown).replace(r"\udc", r"\x")  # bytes that are not UTF-8


# --- output ---


@contextlib.contextmanager
def reader_may_leave() -> Iterator[None]:
    """Ends the program quietly where nobody reads what it prints, as in `… | head`.

    SIGPIPE, which ends other programs then, stays ignored, as Python has it: libraries
    write to pipes and sockets that a thread may have closed, and count on an error.
    """
    is_unread = False
    try:
        yield
    except BrokenPipeError:
        is_unread = True
    finally:
        if drop_unread() or is_unread:
            sys.exit(UNREAD)


def drop_unread() -> bool:
    """Writes out what was printed; whether that failed, so that it was dropped."""
    is_unread = False
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None: it was closed
        try:
            stream.flush()
        except BrokenPipeError:
            is_unread = True
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
    return is_unread


# --- interrupts ---


class Interrupted(Exception):
    """Training stopped because it was asked to, with everything saved."""

    def __init__(self, number: int, message: str):
        super().__init__(message)
        self.number = number


def raise_interrupts() -> None:
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


class StopRequest:
    """The signal that asks training to stop, 0 while there is none."""

    number = 0


@contextlib.contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Collects the first SIGINT or SIGTERM and says so; a second one ends at once.

    Python's own handlers wait until compiled code returns. A thread that the signals
    wake does not, so the answer comes at once whatever is being computed.
    """
    request = StopRequest()
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    ours, woken = socket.socketpair()
    woken.setblocking(False)

    def listen():
        while number := ours.recv(1):
            if number[0] not in before:
                continue
            if request.number:
                _say("ended at once; --resume goes on from the last checkpoint")
                os._exit(128 + number[0])
            request.number = number[0]
            _say(
                f"{signal.Signals(number[0]).name}: stopping as soon as all is saved; "
                "once more ends it at once"
            )

    for number in before:
        signal.signal(number, lambda *_: None)
    waked_before = signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield request
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
