"""A training step of ResNet-50 in PyTorch: what ours is compared with.

The network is that of `transformers`, the head and the loss those of the method `ce`,
the optimizer Adam. PyTorch and transformers are optional packages.
"""

from collections.abc import Callable
from typing import Any

import torch
from transformers import ResNetConfig, ResNetModel


def training_step(
    images: Any, labels: Any, *, num_ranks: int, hidden: int
) -> Callable[[], None]:
    """A function that makes one step on the images [batch, height, width, channels]."""
    network = ResNetModel(ResNetConfig()).train()  # of 50 layers
    head = torch.nn.Sequential(
        torch.nn.Linear(2048, hidden),
        torch.nn.ReLU(),
        torch.nn.Linear(hidden, num_ranks),
    )
    parameters = [*network.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    pixels = torch.tensor(images).permute(0, 3, 1, 2).float() / 255
    pixels = pixels.expand(-1, 3, -1, -1).contiguous()
    target = torch.tensor(labels).long()

    def step() -> None:
        optimizer.zero_grad()
        embedding = network(pixels).pooler_output.flatten(1)
        torch.nn.functional.cross_entropy(head(embedding), target).backward()
        optimizer.step()

    return step
