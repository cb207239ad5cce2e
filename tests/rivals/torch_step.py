"""A training step of ResNet in PyTorch: what ours is compared with.

The network is that of `transformers`, the head and the loss those of the method `ce`,
the optimizer Adam. PyTorch and transformers are optional packages.
"""

from collections.abc import Callable
from typing import Any

import torch
from transformers import ResNetConfig, ResNetModel

DEPTHS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3)}


def training_step(
    architecture: str, images: Any, labels: Any, *, num_ranks: int, hidden: int
) -> Callable[[], None]:
    """A function that makes one step on the images [batch, height, width, channels]."""
    is_deep = architecture == "resnet50"
    widths = [64, 128, 256, 512]
    network = ResNetModel(
        ResNetConfig(
            depths=list(DEPTHS[architecture]),
            hidden_sizes=[4 * w for w in widths] if is_deep else widths,
            layer_type="bottleneck" if is_deep else "basic",
        )
    ).train()
    features = 2048 if is_deep else 512
    head = torch.nn.Sequential(
        torch.nn.Linear(features, hidden),
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
