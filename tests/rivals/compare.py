"""Times the loss and the training step against their rivals in PyTorch.

    python tests/rivals/compare.py --what=mmnp --batches=64,128,256,512
    python tests/rivals/compare.py --what=step --batches=32

Needs the extra `parity`. Programs are timed in turn, round by round.
"""

import argparse
import pathlib
import sys

import jax
import numpy as np
import released_loop
import torch
import torch_step

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))
from cloc_jax.bench import measurement, throughput
from cloc_jax.runtime import sharding
from cloc_jax.runtime.console import console
from configs import koa

RANKS, HIDDEN = 5, 128


def losses(batch, dim):
    """Value and gradients by our forms, and by the released way of working."""
    data = throughput.random_batch(batch, dim, "float32", RANKS)
    embeddings, labels, margins = (torch.tensor(np.asarray(x)) for x in data)
    embeddings.requires_grad = margins.requires_grad = True

    def call():
        embeddings.grad = margins.grad = None
        released_loop.mmnp_by_columns(embeddings, labels.long(), margins).backward()

    mesh = sharding.make_mesh(1)
    ours = throughput.mmnp_programs(data, ("dense", "sorted"), mesh)
    return ours | {"released": measurement.Program(call)}


def steps(batch):
    """Our step of ResNet-50 with the method `ce`, and PyTorch's."""
    config = koa.get_config()
    config.train.batch_size, config.head.hidden = batch, HIDDEN
    config.method.name, config.encoder.weights = "ce", "random"
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (batch, *config.data.size, 3), np.uint8)
    rival = torch_step.training_step(
        images, np.arange(batch) % RANKS, num_ranks=RANKS, hidden=HIDDEN
    )
    ours = throughput.first_step(config, RANKS, sharding.make_mesh(1))
    return {"step": ours, "torch": measurement.Program(rival)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--what", choices=("mmnp", "step"), default="mmnp")
    parser.add_argument("--batches", default="64,128,256")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    cells = []
    for batch in map(int, asked.batches.split(",")):
        if asked.what == "step":
            programs = steps(batch)
        else:
            programs = losses(batch, asked.dim)
        cells += measurement.measure(programs, {"batch": batch}, asked.rounds)
    console.print(f"{jax.__version__=} {torch.__version__=}")
    console.print(measurement.table(cells))


if __name__ == "__main__":
    main()
