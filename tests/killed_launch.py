"""launch.py, with a signal sent to itself at a chosen place.

The environment variable CLOC_KILL holds "<signal> <stage> <place>", where the place is
a step of the stage, "evaluate" (within its evaluation) or "handed_over" (its model is
written, and nothing of the next stage).
"""

import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from cloc_jax.cli import main
from cloc_jax.scoring import inference
from cloc_jax.training import run

NUMBER, STAGE, PLACE = os.environ["CLOC_KILL"].split()
stage_of_now = ""


def die():
    os.kill(os.getpid(), getattr(signal, NUMBER))


class KilledRun(run.RunCallbacks):
    def begin_stage(self, at):
        global stage_of_now
        stage_of_now = at.stage.name
        super().begin_stage(at)

    def after_steps(self, at, began):
        if stage_of_now == STAGE and str(at.step) == PLACE:
            die()
        super().after_steps(at, began)

    def after_stage(self, at, state, support):
        super().after_stage(at, state, support)
        if (at.stage.name, PLACE) == (STAGE, "handed_over"):
            die()


def killed_over(*arguments, original=inference.over, **options):
    if (stage_of_now, PLACE) == (STAGE, "evaluate"):
        die()
    return original(*arguments, **options)


run.RunCallbacks = KilledRun
inference.over = killed_over
sys.exit(main.main(sys.argv[1:]))
