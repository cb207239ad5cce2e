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

import launch
from cloc_jax.scoring import inference
from cloc_jax.training import loop

NUMBER, STAGE, PLACE = os.environ["CLOC_KILL"].split()
stage_of_now = ""


def die():
    os.kill(os.getpid(), getattr(signal, NUMBER))


class KilledStage(loop.StageRun):
    def __init__(self, run, record):
        super().__init__(run, record)
        global stage_of_now
        stage_of_now = self.stage.name
        step_fn = self.step_fn

        def step(carry, batch):
            if stage_of_now == STAGE and str(self.step) == PLACE:
                die()
            return step_fn(carry, batch)

        self.step_fn = step

    def _hand_over(self):
        record = super()._hand_over()
        if (self.stage.name, PLACE) == (STAGE, "handed_over"):
            die()
        return record


def killed_over(*arguments, original=inference.over, **options):
    if (stage_of_now, PLACE) == (STAGE, "evaluate"):
        die()
    return original(*arguments, **options)


loop.StageRun = KilledStage
inference.over = killed_over
sys.exit(launch.main(sys.argv[1:]))
