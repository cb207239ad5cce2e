"""The flags of `launch.py bench` and `launch.py compile`."""

import argparse

from cloc_jax.cli.flag_values import at_least, numbers, shapes

COUNTS = numbers(int, 1, "whole numbers above 0 with commas between them")


def add_bench(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--what",
        choices=("loss", "step", "scaling", "data"),
        default="loss",
        help="what to time (default: loss)",
    )
    p.add_argument(
        "--batches",
        type=COUNTS,
        default=[64, 128, 256, 512, 1024],
        help="batch sizes",
    )
    p.add_argument("--devices", type=COUNTS, default=[1], help="device counts")
    p.add_argument(
        "--meshes",
        type=shapes,
        default=[],
        metavar="8,2x4",
        help="of --what=scaling: device counts, or copies x parts of the parameters "
        "(default: 1, 2, 4, … devices)",
    )
    p.add_argument(
        "--rounds",
        type=at_least(1),
        default=15,
        help="timed calls of each program",
    )
    p.add_argument(
        "--steps",
        action="store_true",
        help="with --what=data: time the training step that reads them, too",
    )
    loss = p.add_argument_group("of the loss")
    loss.add_argument(
        "--loss",
        choices=("mmnp", "rnc"),
        default="mmnp",
        help="CLOC's, or Rank-N-Contrast with two views per image (default: mmnp)",
    )
    loss.add_argument("--dims", type=COUNTS, default=[128], help="embedding widths")
    loss.add_argument(
        "--dtypes", default="float32", help="some of float32,bfloat16,float16"
    )
    loss.add_argument(
        "--algorithms",
        default="",
        help="forms of the loss, some of dense,sorted,blockwise,pallas (default: the "
        "first two)",
    )
    loss.add_argument("--ranks", type=at_least(2), default=5, help="of the labels")


def add_compile(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--target",
        default="cpu:8",
        metavar="NAME:N",
        help="h100:8, h100:4x8 (hosts x devices), a100, b200, v5e:2x4, v5p, v6e or "
        "cpu:8 (default: cpu:8)",
    )
    p.add_argument(
        "--batches",
        type=COUNTS,
        default=[],
        help="batch sizes, to find the largest that fits (default: train.batch_size)",
    )
    p.add_argument(
        "--scaling",
        type=COUNTS,
        default=[],
        metavar="1,8,64",
        help="numbers of devices, in place of the target's own",
    )
    p.add_argument(
        "--programs",
        default="step,evaluation,loss",
        help="some of step,evaluation,loss (default: all)",
    )
    p.add_argument(
        "--ranks",
        type=at_least(2),
        default=0,
        help="of the dataset, where only its files tell",
    )
    p.add_argument(
        "--memory",
        type=float,
        metavar="BYTES",
        help="per device, in place of what the maker publishes",
    )
