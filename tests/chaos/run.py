"""Trains small runs under random faults and compares them with an undisturbed one.

    python tests/chaos/run.py --faults=100

Faults are SIGKILL, SIGTERM and SIGINT at any moment, a limit on the size of files, a
disk that is full for a while (a tmpfs, where this process may mount one), and a bit
that flips in some file of the run or of the prepared images between two starts. A start
may meet a flipped bit and a signal. After each, the same command goes on with --resume.
A run must end with the results of the undisturbed one, or stop with one sentence that
names the damaged file; with that file put back it must go on. Then the jobs that work
with a finished run meet a fault each, and have to end well without one. A different
result, a traceback, or any other way to end is a failure.

Processes are forked from one that has imported everything, which saves much time.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
import miniatures  # noqa: E402

SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT")
KINDS = (*SIGNALS, "limit", "full", "flip")
DISK = 64 * 2**20  # bytes of the tmpfs
LIMITS = (2_000, 800_000)  # bytes: from config.json to the report
FLIPS = 0.7  # share of starts before which a bit flips
TIMES = ("seconds", "files", "integrity")  # of metrics.json, not compared


class Ended(NamedTuple):
    """How a start ended."""

    code: int  # negative for a signal
    text: str  # what it printed
    was_hit: bool  # by its fault, before it ended by itself


class Failure(Exception):
    """What must not happen."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--method", default="cloc", help="ce has one stage, cloc two")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-") as place:
        chaos = Chaos(pathlib.Path(place).resolve(), arguments.seed, arguments.method)
        try:
            failures = chaos.run(arguments.faults)
        finally:
            subprocess.run(["umount", "-l", chaos.disk], stderr=subprocess.DEVNULL)
    return 1 if failures else 0


class Chaos:
    """Runs in one place, and what became of them."""

    def __init__(self, place: pathlib.Path, seed: int, method: str = "cloc"):
        self.place, self.rng, self.method = place, random.Random(seed), method
        self.counts: collections.Counter[str] = collections.Counter()
        self.seconds = 0.0  # that a whole start takes
        self.disk = place / "disk"
        self.disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", self.disk]
        self.full = ["limit"]
        if subprocess.run(mount, stderr=subprocess.DEVNULL).returncode:
            print("no disk can be mounted here, so none is full", flush=True)
        else:
            self.full.append("full")
        miniatures.folder(place / "images", (16, 16, 16))
        os.environ |= {"XDG_CACHE_HOME": str(place / "cache"), "XLA_FLAGS": ""}
        import_everything()
        self.undisturbed = self.result_of(self.disk / "undisturbed")

    def run(self, faults: int) -> int:
        """Trains until so many faults have hit; returns the number of failures."""
        failures = number = 0
        while sum(self.counts[kind] for kind in KINDS) < faults:
            number += 1
            try:
                self.disturb(self.disk / f"run-{number}", faults)
            except Failure as failure:
                failures += 1
                print(f"FAILURE in run {number}: {failure}", flush=True)
            else:
                shutil.rmtree(self.disk / f"run-{number}")
            print(f"  so far: {dict(self.counts)}", flush=True)
        counts = ", ".join(f"{name} {n}" for name, n in sorted(self.counts.items()))
        print(f"{faults} faults in {number} runs, {failures} failures: {counts}")
        return failures

    def result_of(self, run: pathlib.Path):
        """What an undisturbed start leaves."""
        ended = self.train(run)
        if ended.code:
            raise Failure(f"an undisturbed run ended with {ended.code}: {ended.text}")
        return results(run)

    def disturb(self, run: pathlib.Path, faults: int) -> None:
        """Trains a run to its end, with a fault in each start but the last."""
        flipped: tuple[pathlib.Path, bytes] | None = None
        while True:
            is_last = sum(self.counts[kind] for kind in KINDS) >= faults
            if flipped and not is_damaged(*flipped):
                flipped = None  # it was removed or written anew meanwhile
            if not is_last and not flipped and self.rng.random() < FLIPS:
                flipped = self.flip(run)
                self.counts["flip"] += flipped is not None
            # With a full disk besides, nobody could tell what a sentence is about.
            kinds = (*SIGNALS, "") if flipped else (*SIGNALS, *self.full, "")
            kind = "" if is_last else self.rng.choice(kinds)
            ended = self.train(run, kind)
            try:
                self.check(ended, kind, flipped)
            except Failure:
                if flipped:  # the runs after this one have nothing to do with it
                    put_back(*flipped)
                raise
            if ended.code == 2 and kind not in self.full and flipped:
                put_back(*flipped)
                self.counts["stopped by a sentence, then went on"] += 1
                flipped = None
            if ended.code == 0:
                break
        if flipped:
            put_back(*flipped)
        self.disturb_jobs(run)
        found = results(run)
        if found != self.undisturbed:
            raise Failure(f"another result: {found}, not {self.undisturbed}")
        self.counts["runs equal to the undisturbed one"] += 1

    def disturb_jobs(self, run: pathlib.Path) -> None:
        """Lets a fault hit each job that works with a finished run; then none."""
        jobs = {
            "evaluate": [],
            "decide": ["--boundary=0|1", "--max-missed=0.1"],
            "report": [],
            "predict": [str(self.place / "images" / "0")],
            "export": [],
        }
        for job, more in jobs.items():
            for kind in (self.rng.choice((*SIGNALS, *self.full)), ""):
                words = [job, f"--run={run}", *more]
                if job == "export":
                    words.append(f"--to={run}-exported-{kind or 'whole'}")
                ended = self.start(words, kind)
                self.check(ended, kind, None)
            shutil.rmtree(f"{run}-exported-whole", ignore_errors=True)
            self.counts[f"{job} went on"] += 1

    def check(self, ended: Ended, kind: str, flipped) -> None:
        """Failure where a start ended in a way that it may not."""
        after = f"{kind or 'no fault'}, flipped {flipped[0] if flipped else 'nothing'}"
        if "Traceback" in ended.text:
            raise Failure(f"a traceback after {after}: {ended.text}")
        if ended.code == 0:
            return
        if kind in SIGNALS:
            number = getattr(signal, kind)
            if ended.was_hit and ended.code in (-number, 128 + number):
                return
        lines = [x for x in ended.text.splitlines() if x.startswith("error: ")]
        if ended.code != 2 or len(lines) != 1:
            raise Failure(f"after {after}: {ended.code}, {ended.text}")
        if kind in self.full and ("--resume" in lines[0] or "prepared" in lines[0]):
            self.counts["one sentence about the disk"] += 1
            return
        if flipped is None or not names(lines[0], flipped[0]):
            raise Failure(f"after {after}: {ended.text}")

    def flip(self, run: pathlib.Path) -> tuple[pathlib.Path, bytes] | None:
        """Flips a bit in a file of the run or of the prepared images."""
        where = run if self.rng.random() < 0.85 else self.place / "prepared"
        files = [
            p for p in sorted(where.rglob("*")) if p.is_file() and p.stat().st_size
        ]
        if not files:
            return None
        path = self.rng.choice(files)
        before = path.read_bytes()
        place, bit = self.rng.randrange(len(before)), self.rng.randrange(8)
        after = bytearray(before)
        after[place] ^= 1 << bit
        path.write_bytes(after)
        print(f"  flipped bit {bit} of byte {place} of {path}", flush=True)
        return path, before

    def train(self, run: pathlib.Path, kind: str = "") -> Ended:
        """Starts training, new or again, and lets a fault hit it."""
        is_new = not (run / "config.json").exists()
        started = time.monotonic()
        resume = [] if is_new else ["--resume"]
        ended = self.start([*self.words(), f"--run={run}", *resume], kind)
        if is_new and ended.code == 0:  # machines are busy at times
            self.seconds = time.monotonic() - started
        return ended

    def start(self, words: list[str], kind: str) -> Ended:
        """Starts a command and lets a fault hit it."""
        room = self.rng.randint(*LIMITS)
        limit = room if kind == "limit" else 0
        filler = self.disk / "filler"
        if kind == "full":
            with filler.open("wb") as file:
                free = shutil.disk_usage(self.disk).free
                os.posix_fallocate(file.fileno(), 0, max(1, free - room))
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(read)
            run_launch(words, write, limit)
        os.close(write)
        said: list[bytes] = []
        reader = threading.Thread(target=lambda: said.extend(iter_pipe(read)))
        reader.start()
        was_hit = False
        if kind in SIGNALS:
            was_hit = not ends_within(child, self.rng.uniform(0.02, 1) * self.seconds)
            if was_hit:
                os.kill(child, getattr(signal, kind))
        code = wait(child)
        reader.join()
        filler.unlink(missing_ok=True)
        text = b"".join(said).decode(errors="replace")
        was_hit = was_hit or (kind in self.full and code == 2)
        if was_hit:
            self.counts[kind] += 1
        hit = "hit" if was_hit else ""
        print(f"{kind or 'none':8} {hit:4} exit {code}: {words[0]}", flush=True)
        return Ended(code, text, was_hit)

    def words(self) -> list[str]:
        return [
            f"--config={ROOT / 'configs' / 'folder.py'}",
            f"--config.data.root={self.place / 'images'}",
            f"--config.data.prepared={self.place / 'prepared'}",
            "--config.data.channels=1",
            f"--config.method.name={self.method}",
            "--config.data.size=(24, 24)",
            "--config.encoder.widths=(2, 4, 4, 4)",
            "--config.head.hidden=8",
            "--config.train.batch_size=8",
            "--config.train.max_epochs=2",
            "--config.train.checkpoint_steps=2",
            "--config.train.eval_batch_size=12",
            "--config.mesh.devices=1",
        ]


def import_everything() -> None:
    """Imports what a start would import; nothing runs before the fork."""
    import tensorboardX  # noqa: F401
    import tensorflow_datasets  # noqa: F401
    from scipy import optimize, special, stats  # noqa: F401
    from sklearn import isotonic  # noqa: F401

    from cloc_jax.cli import main  # noqa: F401
    from cloc_jax.report import evaluation  # noqa: F401
    from cloc_jax.training import run  # noqa: F401


def run_launch(words: list[str], write: int, limit: int) -> None:
    """What a child does; it never returns."""
    code = 1
    try:
        os.dup2(write, 1)
        os.dup2(write, 2)
        if limit:
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        from cloc_jax.cli import main

        sys.argv = ["launch.py", *words]
        code = main.main(words)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def put_back(path: pathlib.Path, content: bytes) -> None:
    """Restores a file that a bit was flipped in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def is_damaged(path: pathlib.Path, content: bytes) -> bool:
    """Whether a file still differs from what it was in nothing but a bit."""
    if not path.is_file() or path.stat().st_size != len(content):
        return False
    pairs = zip(path.read_bytes(), content, strict=True)
    return sum((a ^ b).bit_count() for a, b in pairs) == 1


def iter_pipe(read: int):
    while data := os.read(read, 65536):
        yield data
    os.close(read)


def ends_within(child: int, seconds: float) -> bool:
    """Whether a process ends by itself within some seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return True
        time.sleep(0.01)
    return False


def wait(child: int, seconds: float = 900) -> int:
    if not ends_within(child, seconds):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise Failure(f"a start did not end within {seconds} s")
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def names(sentence: str, path: pathlib.Path) -> bool:
    """Whether a sentence names a file, or the folder of arrays that it belongs to."""
    places = [path, *path.parents]
    known = [p for p in places if p.name not in ("checkpoints", "stages")]
    return any(f"{p} " in sentence or f"{p}:" in sentence for p in known[:5])


def results(run: pathlib.Path) -> dict:
    """What must be the same: the scores apart from times, and every prediction."""
    scores = json.loads((run / "metrics.json").read_text())
    scores = {k: v for k, v in scores.items() if k not in TIMES}
    for stage in scores["stages"]:
        del stage["seconds"]
    return {"metrics": scores, "predictions": (run / "predictions.csv").read_text()}


if __name__ == "__main__":
    sys.exit(main())
