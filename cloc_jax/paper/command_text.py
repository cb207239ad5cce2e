"""The command that is running, to be written beside its results."""

import re
import sys


def command() -> str:
    """The command line that is running: the job first, without where it writes, and
    with folders of this machine shortened."""
    words = [re.sub(r"=/.*/", "=…/", w) for w in sys.argv[1:] if "--run=" not in w]
    words.sort(key=lambda word: word.startswith("-"))
    quoted = [f'"{w}"' if re.search("[|>()'; ]", w) else w for w in words]
    return " ".join(["python launch.py", *quoted])
