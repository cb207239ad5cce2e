"""The flags of `launch.py tables`."""

import argparse

from cloc_jax.cli.flag_values import numbers, words

# What it knows; written here so that --help loads no library. A test compares.
TABLES = (
    "comparison",
    "controllability",
    "bias",
    "ablations",
    "backbones",
    "classes",
    "time",
)
DATASETS = (
    "adience",
    "hid",
    "koa",
    "idrid",
    "bracs",
    "clap2015",
    "synthetic",
    "retinamnist",
    "folder",
)
METHODS = (
    "orcnn",
    "poe",
    "gol",
    "mwr",
    "rnc",
    "simclr",
    "supcon",
    "dino",
    "cloc",
    "ce",
    "coral",
    "corn",
    "sord",
    "clm",
)


def add(p: argparse.ArgumentParser) -> None:
    """Adds the flags of `tables`."""
    p.add_argument(
        "--run",
        default="runs/tables",
        metavar="DIR",
        help="folder of all runs (default: runs/tables)",
    )
    p.add_argument(
        "--only",
        type=words(TABLES),
        default=list(TABLES),
        metavar="TABLES",
        help=f"some of {','.join(TABLES)} (default: all)",
    )
    p.add_argument(
        "--data",
        type=words(DATASETS),
        default=[],
        metavar="DATASETS",
        help=f"some of {','.join(DATASETS)} (default: the first six, the paper's)",
    )
    p.add_argument(
        "--methods",
        type=words(METHODS),
        default=list(METHODS[:10]),
        metavar="METHODS",
        help=f"some of {','.join(METHODS)} (default: the first ten)",
    )
    p.add_argument(
        "--protocol",
        choices=("frozen", "partial", "whole"),
        default="whole",
        help="a frozen encoder; one trained from layer4 on, on kept views; or the "
        "whole network, as in the paper (default: whole)",
    )
    p.add_argument(
        "--root",
        action="append",
        default=[],
        metavar="DATASET=DIR",
        help="where a dataset lies; repeat the flag for several",
    )
    p.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="DATASET:SETTING=VALUE",
        help="a setting of one dataset, such as 'koa:data.size=(72,120)', of one "
        "method on it (koa/dino:…) or of a method (/dino:…); repeat the flag for "
        "several",
    )
    p.add_argument(
        "--margin",
        type=numbers(float, 0, "margins above 0 with commas between them"),
        default=[1.0],
        metavar="0.5,1",
        help="at which critical margins are fixed when controlled; of several, "
        "validation data choose one (default: 1)",
    )
    p.add_argument(
        "--weights",
        action="append",
        default=[],
        metavar="ENCODER=FILE",
        help="of other backbones, such as vgg16=vgg16.safetensors; downloaded by "
        "default",
    )
    p.add_argument(
        "--folds",
        default="all",
        help="of adience and hid: all, or such as 0,3 (default: all)",
    )
    p.add_argument(
        "--dry-run",
        action="store_true",
        help="only say which runs there are, how many are finished, and hours to go",
    )
    p.add_argument(
        "--from",
        dest="source",
        action="append",
        default=[],
        metavar="DIR",
        help="train nothing; make the page from the summaries in this folder; repeat "
        "the flag for those of several machines, which are merged",
    )
    p.add_argument(
        "--to",
        dest="target",
        default="",
        metavar="DIR",
        help="folder of tables.md and tables.html (default: that of --run)",
    )
    p.add_argument(
        "--summaries",
        default="",
        metavar="DIR",
        help="folder for the summaries (default: summaries in that of --run; with "
        "--from none)",
    )
