"""launch.py, with a signal sent to itself at a chosen place.

The environment variable CLOC_KILL holds "<signal> <stage> <step>".
"""

import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from cloc_jax.cli import main
from cloc_jax.training import run

NUMBER, STAGE, STEP = os.environ["CLOC_KILL"].split()
stage_of_now = ""


class KilledRun(run.RunCallbacks):
    def begin_stage(self, at):
        global stage_of_now
        stage_of_now = at.stage.name
        super().begin_stage(at)

    def after_steps(self, at, began):
        if stage_of_now == STAGE and str(at.step) == STEP:
            os.kill(os.getpid(), getattr(signal, NUMBER))
        super().after_steps(at, began)


run.RunCallbacks = KilledRun
sys.exit(main.main(sys.argv[1:]))
