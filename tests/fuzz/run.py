"""Damaged inputs by the thousand: no traceback, no hang, bounded memory.

Files and JSON of another shape, labels and padding of losses, names in the report.

    python tests/fuzz/run.py --inputs=10000

Every input is an intact file with a few changes (see mutations.py), chosen by the seed
and its number alone, so that each can be tried again: --only=weights:1234. Inputs of a
kind are read in a process of their own with a limit of memory; where one takes too long
or kills the process, the last line names it. Ends with 1 if anything is to be mended.
"""

import argparse
import collections
import concurrent.futures
import faulthandler
import math
import multiprocessing
import pathlib
import random
import resource
import sys
import tempfile
import time
import traceback
from typing import NamedTuple

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parent.parent / "cloc_jax"
SECONDS = 20  # for one input
MEMORY = 2 << 30  # bytes beyond those that libraries take
# Kinds of inputs, and how many of each in proportion.
WEIGHTS = {
    **{"image": 5, "table": 4, "weights": 4, "run": 3},
    **{"shape": 3, "labels": 2, "page": 0.2},
}
GOOD = ("read", "refused", "ValueError", "OSError")


class Outcome(NamedTuple):
    """What became of one input."""

    kind: str
    number: int
    what: str  # one of GOOD, or what has to be mended
    text: str = ""  # the message or the traceback


def read_one(target, kind: str, number: int, seed: int) -> Outcome:
    """Reads one input, in this process."""
    import targets

    rng = random.Random(f"{seed} {kind} {number}")
    try:
        what, text = target.read(rng), ""
    except targets.OURS as error:
        what = "OSError" if isinstance(error, OSError) else "ValueError"
        text = str(error)
        raised_in = traceback.extract_tb(error.__traceback__)[-1].filename
        if PACKAGE not in pathlib.Path(raised_in).resolve().parents:
            what, text = f"traceback: {type(error).__name__}", traceback.format_exc()
        elif len(text.strip()) < 10:
            what = "no sentence"
    except BaseException as error:
        what, text = f"traceback: {type(error).__name__}", traceback.format_exc()
    return Outcome(kind, number, what, text)


def fuzz(kind: str, numbers: range, seed: int) -> tuple[list[Outcome], int]:
    """Outcomes of inputs of a kind, and by how many MiB memory grew at most."""
    import targets

    outcomes, peaks = [], []
    with tempfile.TemporaryDirectory() as place:
        target = targets.KINDS[kind](pathlib.Path(place))
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for number in numbers:
            print(f"\r--only={kind}:{number} ", end="", file=sys.stderr, flush=True)
            faulthandler.dump_traceback_later(SECONDS, exit=True)
            outcomes.append(read_one(target, kind, number, seed))
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    faulthandler.cancel_dump_traceback_later()
    return outcomes, (peaks[-1] - peaks[0]) // 1024


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--inputs", type=int, default=10000, help="of all kinds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(WEIGHTS))
    parser.add_argument("--only", default="", metavar="KIND:NUMBER")
    asked = parser.parse_args(words)
    kinds = asked.kinds.split(",")
    unit = asked.inputs / sum(WEIGHTS[kind] for kind in kinds)
    parts = [(kind, range(math.ceil(unit * WEIGHTS[kind]))) for kind in kinds]
    if asked.only:
        kind, number = asked.only.split(":")
        parts = [(kind, range(int(number), int(number) + 1))]
    bad: list[Outcome] = []
    total = 0
    context = multiprocessing.get_context("spawn")
    for kind, numbers in parts:
        started = time.monotonic()
        with concurrent.futures.ProcessPoolExecutor(1, context) as own:
            outcomes, grown = own.submit(fuzz, kind, numbers, asked.seed).result()
        counts = collections.Counter(outcome.what for outcome in outcomes)
        shown = ", ".join(f"{what} {count}" for what, count in counts.most_common())
        seconds = time.monotonic() - started
        print(
            f"{kind:8} {len(outcomes)} inputs in {seconds:.0f} s: {shown}; memory grew "
            f"by {grown} MiB at most",
            flush=True,
        )
        bad += [outcome for outcome in outcomes if outcome.what not in GOOD]
        total += len(outcomes)
        if asked.only:
            print(outcomes[0].text)
    one_of_each = {outcome.what: outcome for outcome in reversed(bad)}
    for outcome in one_of_each.values():
        print(f"\n--only={outcome.kind}:{outcome.number}  {outcome.what}")
        print(outcome.text[-3000:])
    print(f"{total} inputs, {len(bad)} to be mended")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent.parent)]
    sys.exit(main(sys.argv[1:]))
