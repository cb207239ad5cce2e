"""A call that ends after some time, whatever it waits for."""

import queue
import threading
from collections.abc import Callable
from typing import Any


def within(seconds: float, function: Callable[..., Any], *args: Any, **kwargs: Any):
    """What the function returns or raises; TimeoutError where it takes longer.

    For calls into libraries whose own limits are on single reads: a server that sends a
    byte now and then would hold them forever. What was called goes on in a thread that
    ends with the process, and its result is dropped.
    """
    results: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()

    def work() -> None:
        try:
            results.put((True, function(*args, **kwargs)))
        except BaseException as error:
            results.put((False, error))

    threading.Thread(target=work, daemon=True).start()
    try:
        is_done, found = results.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"it took more than {seconds:g} s") from None
    if is_done:
        return found
    raise found
