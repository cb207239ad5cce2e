"""The program: `python launch.py`, `python -m cloc_jax`, or the script `cloc-jax`."""

import signal

# Until libraries are loaded, Ctrl-C ends the program at once: an exception amid their
# imports can get lost in a callback, or crash them.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from cloc_jax.cli.main import start  # noqa: E402

if __name__ == "__main__":
    start()
