"""The command line: one parser per job, with only the flags that the job takes.

Settings (--config=FILE, --config.group.field=value) are not flags of these parsers;
launch.py hands them to ml_collections.
"""

import argparse
import sys
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from cloc_jax.cli import bench_flags, tables_flags
from cloc_jax.cli.flag_values import at_least, numbers
from cloc_jax.runtime.errors import printable

FULL, OF_RUN = "any setting", "where things are"


class Command(NamedTuple):
    """A job's place on the command line."""

    help: str
    add_flags: tuple[Callable[[argparse.ArgumentParser], None], ...]
    settings: str = ""  # FULL, OF_RUN (mesh.*, data.root, data.prepared), or none


class Parser(argparse.ArgumentParser):
    """A parser whose mistakes end with one sentence and a hint."""

    def error(self, message: str) -> NoReturn:
        print(
            f"error: {printable(message)}. `{self.prog} --help` shows what it takes.",
            file=sys.stderr,
        )
        sys.exit(2)


def parser(job: str) -> Parser:
    """The parser of a job's own flags."""
    command = COMMANDS[job]
    notes = {
        FULL: "Any setting of cloc_jax/config.py can be given as well: --config=FILE "
        "and --config.train.batch_size=32.",
        OF_RUN: "The run's own settings are used; only --config.mesh.*, "
        "--config.data.root and --config.data.prepared can be given.",
        "": "",
    }
    found = Parser(
        prog=f"python launch.py {job}",
        description=command.help,
        epilog=notes[command.settings],
        allow_abbrev=False,
    )
    for add in command.add_flags:
        add(found)
    return found


def _run(default: str) -> Callable[[argparse.ArgumentParser], None]:
    def add(p: argparse.ArgumentParser) -> None:
        p.add_argument("--run", default="", metavar="DIR", help=default)

    return add


_new_run = _run("folder of the results; runs/<config>, with the job's name, by default")
_of_run = _run("folder of a trained run")


def _show(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--stage",
        default="",
        metavar="NAME",
        help="draw only the views of this stage, such as pretrain",
    )


def _resume(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--resume", action="store_true", help="go on with the run, if there is one"
    )
    p.add_argument(
        "--no-report",
        action="store_true",
        help="only scores, as runs of a sweep have them: no page, no checkpoints left",
    )


def _folds(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--folds",
        default="",
        help="all, or such as 0,3: train these folds of the dataset, as a sweep",
    )


def _processes(p: argparse.ArgumentParser) -> None:
    group = p.add_argument_group("several processes")
    group.add_argument(
        "--coordinator", default="", metavar="HOST:PORT", help="of process 0"
    )
    group.add_argument(
        "--processes", type=int, default=0, metavar="N", help="that work together"
    )
    group.add_argument(
        "--process", type=int, default=-1, metavar="I", help="which one this is, from 0"
    )


def _seeds(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--seeds",
        type=at_least(1),
        default=1,
        metavar="N",
        help="runs per setting, seed after seed (default: 1)",
    )


def _boundary(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--boundary",
        action="append",
        default=[],
        metavar="'1|2'",
        help="a boundary that matters; repeat the flag for several; the run's or the "
        "dataset's critical ones by default",
    )


def _predict(p: argparse.ArgumentParser) -> None:
    p.add_argument("images", nargs="*", help="image files and folders")
    p.add_argument("--output", default="", metavar="FILE", help="the CSV to write")


def _export(p: argparse.ArgumentParser) -> None:
    p.add_argument("--to", default="", metavar="OUT", help="the folder to write")


def _decide(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--max-missed",
        type=float,
        action="append",
        default=[],
        metavar="SHARE",
        help="the largest share of the images above the boundary that may be put "
        "below; repeat the flag to give each --boundary its own, in the same order",
    )
    p.add_argument(
        "--cost",
        action="append",
        default=[],
        metavar="'1|2=5'",
        help="in place of --max-missed: what a mistake at a boundary costs, or "
        "'1|2=5:1' for missed and false alarm; repeat the flag for several, others "
        "cost 1",
    )
    p.add_argument(
        "--guarantee",
        action="store_true",
        help="hold --max-missed by conformal risk control; needs a run trained with "
        "--config.data.calibration_fraction above 0",
    )
    p.add_argument(
        "--coverage",
        type=float,
        metavar="SHARE",
        help="sets of neighbouring ranks that hold the true one for this share of "
        "images; alone or beside the others; needs a run trained with "
        "--config.data.calibration_fraction above 0",
    )
    p.add_argument("--remove", action="store_true", help="take the saved decision away")


def _sweep(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="'SETTING=A;B'",
        help="a setting and its values, such as 'method.cloc.margins=learn;0.3'; "
        "repeat the flag for several, every combination is trained",
    )
    p.add_argument(
        "--choose",
        default="",
        metavar="SCORE",
        help="rank the settings by this score of the validation data, such as accuracy "
        "or mae, say nothing of the test data, and write the best as chosen.py",
    )
    p.add_argument(
        "--per",
        default="",
        metavar="SETTING",
        help="choose for each value of a setting of --vary, such as method.name",
    )


def _engine(p: argparse.ArgumentParser) -> None:
    group = p.add_argument_group("several runs at a time, here or on other machines")
    group.add_argument(
        "--engine",
        choices=("local", "slurm", "ray"),
        default="local",
        help="who trains the runs: this machine, SLURM's job arrays, or a Ray cluster "
        "(default: local)",
    )
    group.add_argument(
        "--workers",
        type=at_least(0),
        default=0,
        metavar="N",
        help="tasks at a time; local: processes that share the cores or GPUs (default: "
        "this process alone); slurm, ray: any number by default",
    )
    group.add_argument(
        "--hours",
        type=float,
        default=None,
        metavar="H",
        help="with workers: time limit of a task, which then goes on from its "
        "checkpoint (default: 24 with slurm and ray, none with local)",
    )
    group.add_argument(
        "--retries",
        type=at_least(0),
        default=2,
        metavar="N",
        help="with workers: how often to retry a task that died or took too long "
        "(default: 2)",
    )
    group.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="of slurm: a parameter of submitit's, such as slurm_partition=gpu, "
        "gpus_per_node=1, cpus_per_task=8, mem_gb=32; of ray: address=HOST:PORT, "
        "num_cpus=4, num_gpus=1; repeat the flag for several",
    )


def _control(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--values",
        type=numbers(float, 0, "numbers with commas between them, such as 0.1,0.3"),
        default=[],
        metavar="0.1,0.3",
        help="the margins to set there",
    )
    p.add_argument(
        "--kind",
        choices=("fixed", "floor"),
        default="fixed",
        help="at the values, or learned above (default: fixed)",
    )


def _draws(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--draws",
        type=at_least(1),
        default=20,
        metavar="N",
        help="permutations of the labels, as a null (default: 20)",
    )


def _claims(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--run", default="runs", metavar="DIR", help="folder above the studies"
    )
    p.add_argument(
        "--to",
        default="claims.md",
        metavar="FILE",
        help="the page; studies and summaries in its folder count, too",
    )


def _weights(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--from",
        dest="source",
        default="",
        help="a file, a folder, an archive or a name on the hub",
    )
    p.add_argument(
        "--to", dest="target", default="", help="the safetensors file to write"
    )
    p.add_argument("--architecture", help="they must be of, such as resnet50")
    p.add_argument(
        "--preprocessing", help="how pixels were scaled, if the file does not tell"
    )


COMMANDS = {
    "train": Command(
        "Train a run and evaluate it; what launch.py does without a job.",
        (_new_run, _resume, _folds, _processes),
        FULL,
    ),
    "check": Command(
        "Look for what is wrong with the images and their grades.", (_new_run,), FULL
    ),
    "show": Command("Draw what would be trained on.", (_new_run, _show), FULL),
    "prepare": Command("Only prepare the images.", (), FULL),
    "evaluate": Command(
        "Make the results of a trained run again.", (_of_run, _processes), OF_RUN
    ),
    "report": Command(
        "Draw a run's page again from its files, without inference.", (_of_run,)
    ),
    "predict": Command("Grade images.", (_of_run, _predict, _processes), OF_RUN),
    "decide": Command(
        "Choose how a run decides at boundaries that matter, and keep it.",
        (_of_run, _boundary, _decide),
    ),
    "export": Command(
        "Write a run's model into a folder that others can use.",
        (_of_run, _export),
        OF_RUN,
    ),
    "sweep": Command(
        "Train many settings and seeds, with one summary.",
        (_new_run, _sweep, _seeds, _folds, _processes, _engine),
        FULL,
    ),
    "control": Command(
        "What raising a margin buys and costs.",
        (_new_run, _boundary, _control, _seeds, _processes, _engine),
        FULL,
    ),
    "margins": Command(
        "What learned margins mean, against a null.",
        (_new_run, _seeds, _draws, _processes, _engine),
        FULL,
    ),
    "gaps": Command(
        "Whether thresholds of CLM and margins of CLOC follow the true gaps of ranks.",
        (_new_run, _seeds, _draws, _processes, _engine),
        FULL,
    ),
    "collapse": Command(
        "Margins with and without the paper's precautions.",
        (_new_run, _seeds, _processes, _engine),
        FULL,
    ),
    "tables": Command(
        "The paper's tables beside runs here: train what is missing, write the page.",
        (tables_flags.add, _seeds, _processes, _engine),
        FULL,
    ),
    "claims": Command("One page of all studies, with verdicts.", (_claims,)),
    "probe": Command(
        "A linear baseline on a frozen encoder's features.", (_new_run,), FULL
    ),
    "bench": Command(
        "Time the loss, the training step or the data.",
        (_new_run, bench_flags.add_bench),
        FULL,
    ),
    "compile": Command(
        "Compile a run for hardware that need not be here: memory, communication.",
        (_new_run, bench_flags.add_compile),
        FULL,
    ),
    "weights": Command("Convert ImageNet weights to safetensors.", (_weights,)),
}
