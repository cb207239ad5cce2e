"""Running launch.py as a user does, at a size that takes seconds."""

import os
import pathlib
import resource
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Fewer than 100 images to draw: the picture of the embedding is then a quick PCA.
TINY = [
    "--config.data.num_train=48",
    "--config.data.num_val=20",
    "--config.data.num_test=14",
    "--config.data.size=(24, 24)",
    "--config.encoder.widths=(2, 4, 4, 4)",
    "--config.head.hidden=8",
    "--config.train.batch_size=8",
    "--config.train.max_epochs=2",
    "--config.train.checkpoint_steps=4",
    "--config.train.eval_batch_size=14",  # one shape for every split
]


def launch(*arguments, cwd, script="launch.py", file_bytes=0, **environment):
    """The finished process of `python launch.py arguments`.

    With `file_bytes`, files cannot grow beyond: a disk that is full.
    """

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

    return subprocess.run(
        [sys.executable, str(ROOT / script), *map(str, arguments)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT), "XLA_FLAGS": ""} | environment,
        capture_output=True,
        text=True,
        timeout=300,
        preexec_fn=limit if file_bytes else None,
    )
