"""cloc_jax: ordinal image classification with learned margins.

    python launch.py                                    quick start on drawn knees
    python launch.py --config=configs/koa.py --config.data.root=DIR
    python launch.py --config=configs/folder.py --config.data.root=DIR
    python launch.py show --config=…                    a picture of what is trained on
    python launch.py … --run=DIR                        where the results go
    python launch.py … --resume                         go on after an interruption
    python launch.py prepare --config=…                 only prepare the images
    python launch.py evaluate --run=DIR                 make the results again
    python launch.py predict --run=DIR image.png …      grade images
    python launch.py decide --run=DIR --boundary="1|2" --max-missed=0.05   from then on
                                                        miss at most 5% at a boundary
    python launch.py decide --run=DIR --cost="1|2=5"    or say what a mistake costs
    python launch.py sweep --seeds=5 --vary='method.weight=0.5;1'   many runs, one table
    python launch.py control --boundary='1|2' --values=0.1,0.3,0.6 --seeds=5
                                            what raising a margin buys and costs
    python launch.py margins --seeds=10                 what learned margins mean
    python launch.py collapse --seeds=3                 margins without precautions
    python launch.py claims --run=runs --to=docs/claims.md   a page of all studies
    python launch.py probe --config=configs/koa_frozen.py …   a linear baseline
    python launch.py bench --what=loss|step|scaling     time the loss or the step
    python launch.py bench --what=data                  time reading and augmenting
    python launch.py weights --from=FILE --to=FILE      convert ImageNet weights

Any setting of configs/base.py can be overridden: --config.train.batch_size=32
"""

import os
import pathlib
import re
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NamedTuple

from absl import app, flags, logging
from ml_collections import ConfigDict, config_flags

from cloc_jax.runtime import process_guard
from cloc_jax.runtime.run_folder import RunFolder

HERE = pathlib.Path(__file__).resolve().parent
ROOT = "--config.data.root="
PREPARED = "--config.data.prepared="
FLAGS = flags.FLAGS
config_flags.DEFINE_config_file(
    "config",
    None,
    "The experiment; configs/quickstart.py by default. configs/base.py explains every "
    "field.",
)
flags.DEFINE_string(
    "run", "", "Folder of the run; when training, runs/<config> by default."
)
flags.DEFINE_bool("resume", False, "Go on with an interrupted run.")
flags.DEFINE_string(
    "coordinator", "", "HOST:PORT of process 0, for a run of several processes."
)
flags.DEFINE_integer("processes", 0, "How many processes train together.")
flags.DEFINE_integer("process", -1, "Which of them this one is, from 0.")
flags.DEFINE_enum(
    "what", "loss", ["loss", "step", "scaling", "data"], "bench: what to time."
)
flags.DEFINE_list("batches", ["64", "128", "256", "512", "1024"], "bench: batch sizes.")
flags.DEFINE_list("dims", ["128"], "bench: embedding widths, for the loss.")
flags.DEFINE_list("dtypes", ["float32"], "bench: types of embeddings, for the loss.")
flags.DEFINE_list(
    "algorithms",
    ["dense", "sorted", "released"],
    "bench: forms of the loss; released needs PyTorch.",
)
flags.DEFINE_list("devices", ["1"], "bench: device counts, for the loss and the step.")
flags.DEFINE_integer("ranks", 5, "bench: ranks of the labels, for the loss.")
flags.DEFINE_integer(
    "rounds", 15, "bench: timed calls of each program; data: epochs read as well."
)
flags.DEFINE_bool(
    "calibrate", False, "bench: record which form of the loss is faster here."
)
flags.DEFINE_string("output", "", "predict: the CSV file to write.")
flags.DEFINE_multi_string(
    "boundary",
    [],
    "control, decide: a boundary that matters, as '1|2'; repeat the flag for several. "
    "The run's critical ones by default.",
)
flags.DEFINE_float(
    "max-missed",
    None,
    "decide: the largest share of the images above the boundary that may be put below.",
)
flags.DEFINE_multi_string(
    "cost",
    [],
    "decide: in place of --max-missed, what a mistake at a boundary costs, as '1|2=5', "
    "or '1|2=5:1' for missed and false alarm; repeat the flag for several. Others "
    "cost 1.",
)
flags.DEFINE_bool(
    "guarantee",
    False,
    "decide: hold --max-missed by conformal risk control; needs a run trained with "
    "--config.data.calibration_fraction above 0.",
)
flags.DEFINE_bool("remove", False, "decide: take the saved decision away.")
flags.DEFINE_multi_string(
    "vary",
    [],
    "sweep: a setting and its values, as 'method.margins=learn;0.3;0.6'; repeat the "
    "flag for several settings, every combination is trained.",
)
flags.DEFINE_integer(
    "seeds", 1, "sweep and studies: runs of each setting, seed after seed."
)
flags.DEFINE_list("values", [], "control: the margins to set there.")
flags.DEFINE_enum(
    "kind", "fixed", ["fixed", "floor"], "control: at the values, or learned above."
)
flags.DEFINE_integer("draws", 20, "margins: permutations of the labels, as a null.")
flags.DEFINE_string(
    "folds", "", "all, or such as 0,3: train these folds of the dataset, as a sweep."
)
flags.DEFINE_string(
    "from", "", "weights: a file, a folder, an archive or a name on the hub."
)
flags.DEFINE_string(
    "to", "", "weights: the safetensors file to write; claims: the page."
)
flags.DEFINE_string(
    "architecture", None, "weights: the network they must be of, such as resnet50."
)
flags.DEFINE_string(
    "preprocessing", None, "weights: how pixels were scaled, if the file does not tell."
)


def parse_flags(argv: list[str]) -> list[str]:
    """Reads the command line; every mistake ends with one sentence and a hint."""
    argv = [re.sub(r"^-config\b", "--config", a) for a in argv]
    if "--config" in argv[:-1]:
        at = argv.index("--config")
        argv[at : at + 2] = [f"--config={argv[at + 1]}"]
    # The file has to come before what overrides it, wherever it was written.
    files = [a for a in argv[1:] if a.startswith("--config=")]
    files = files or [f"--config={HERE / 'configs' / 'quickstart.py'}"]
    argv = [argv[0], *files, *(a for a in argv[1:] if a not in files)]
    sys.argv[:] = argv  # ml_collections looks there for the order
    try:
        rest = FLAGS(argv)
        FLAGS.config.to_dict()  # a file that could not be loaded says so only now
        if FLAGS.config.data.get("crop") == (None,):
            FLAGS.config.data.crop = None  # how ml_collections reads a tuple's "None"
        return rest
    except flags.IllegalFlagValueError as error:
        problem, hint = f"{error}.", "configs/base.py shows the type of every field."
    except flags.Error as error:
        problem, hint = str(error), "python launch.py --help shows how it is used."
    except (AttributeError, KeyError) as error:
        # ml_collections quotes the field and its own suggestion in one string.
        text = str(error).replace("\\n", ". ").replace("\\", "").replace("'", "")
        problem = f"the configuration has no field {text}"
        hint = "configs/base.py lists them all."
    except (OSError, ImportError, SyntaxError) as error:
        names = sorted(p.name for p in (HERE / "configs").glob("[a-z]*.py"))
        problem = f"the configuration file was not loaded: {_one_line(error)}."
        hint = f"configs/ has {', '.join(names)}."
    print(f"error: {problem} {hint}", file=sys.stderr)
    sys.exit(2)


def _one_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[-1].strip()


def main(argv: list[str]) -> int:
    job, rest = (argv[1], argv[2:]) if argv[1:] else ("train", [])
    try:
        return run_job(job, rest)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 128 + signal.SIGINT
    except Exception as error:
        if _is_ours(error):
            print(f"error: {error}", file=sys.stderr)
            code = 2
        else:
            traceback.print_exc()
            code = process_guard.LOST if _has_peers() else 1
    if _has_peers():
        # The usual way out would wait for processes that wait for this one.
        process_guard.give_up(code)
    return code


def _is_joint() -> bool:
    """Whether several processes were asked to train together."""
    is_named = bool(FLAGS.coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS"))
    return is_named or int(os.environ.get("SLURM_NTASKS", 1)) > 1


def _has_peers() -> bool:
    return "jax" in sys.modules and sys.modules["jax"].process_count() > 1


class Job(NamedTuple):
    """What the first word of the command line asks for."""

    run: Callable[[list[str]], int]  # the words after it -> exit code
    takes_words: bool = False  # not only flags
    of_a_run: bool = False  # it uses a trained run and its settings


def run_job(name: str, words: list[str]) -> int:
    """Runs one job and returns the exit code."""
    if name not in JOBS:
        raise ValueError(
            f"unknown job {name!r}; use one of {', '.join(JOBS)}, or none to train."
        )
    job = JOBS[name]
    if words and not job.takes_words:
        raise ValueError(
            f"{name} takes flags only, but got {' '.join(words)!r}; settings are "
            "written --config.data.root=DIR."
        )
    if job.of_a_run:
        if not FLAGS.run:
            raise ValueError(f"{name} needs a trained run: add --run=DIR.")
        allowed = ("--config.mesh.", ROOT, PREPARED)
        refused = [a for a in given_settings() if not a.startswith(allowed)]
        if refused:
            raise ValueError(
                f"{name} uses the run's own settings, but got {' '.join(refused)}; "
                "only mesh.*, data.root and data.prepared can be given."
            )
        # A folder that is no run is said to be none before libraries load.
        RunFolder(FLAGS.run).read_config()
    return job.run(words)


# Every job imports late what it needs, so that --help and mistakes answer at once.


def run_train(words: list[str]) -> int:
    if FLAGS.folds:
        return run_sweep(words)
    folder = RunFolder(FLAGS.run or default_run())
    if FLAGS.resume:
        folder.read_config()
    start()
    from cloc_jax.runtime import interrupts
    from cloc_jax.training import loop

    try:
        loop.train(FLAGS.config, folder, resume=FLAGS.resume)
    except interrupts.Interrupted as stop:
        print(stop, file=sys.stderr)
        return 128 + stop.number
    return evaluate_run(folder)


def run_prepare(words: list[str]) -> int:
    set_up_libraries()
    from cloc_jax.jobs import prepare

    prepare.prepare(FLAGS.config)
    return 0


def run_show(words: list[str]) -> int:
    set_up_libraries()
    from cloc_jax.jobs import show

    show.show(FLAGS.config, place_of("show"))
    return 0


def run_evaluate(words: list[str]) -> int:
    start()
    return evaluate_run(RunFolder(FLAGS.run))


def evaluate_run(folder: RunFolder) -> int:
    from cloc_jax.jobs import evaluate

    evaluate.evaluate(saved_config(folder.read_config()), folder)
    return 0


def run_predict(words: list[str]) -> int:
    start()
    from cloc_jax.jobs import predict

    folder = RunFolder(FLAGS.run)
    config = saved_config(folder.read_config())
    failed = predict.predict(config, folder, words, FLAGS.output)
    return 1 if failed else 0


def run_decide(words: list[str]) -> int:
    from cloc_jax.jobs import decide

    folder = RunFolder(FLAGS.run)
    asked = {
        "boundaries": FLAGS.boundary,
        "max_missed": FLAGS["max-missed"].value,
        "costs": FLAGS.cost,
        "guarantee": FLAGS.guarantee,
    }
    if not FLAGS.remove:
        decide.decide(folder, **asked)
        return 0
    if any(given not in (None, False, []) for given in asked.values()):
        raise ValueError(
            "--remove takes the saved decision away; give it alone, with --run only."
        )
    decide.remove(folder)
    return 0


def run_sweep(words: list[str]) -> int:
    def run(place: pathlib.Path) -> None:
        from cloc_jax.studies import sweep

        options = {"vary": FLAGS.vary, "seeds": FLAGS.seeds, "folds": FLAGS.folds}
        sweep.sweep(FLAGS.config, place, **options)

    return run_many("sweep", run)


def run_control(words: list[str]) -> int:
    values = numbers("values", float, "numbers", ", such as 0.1,0.3,0.6")

    def run(place: pathlib.Path) -> None:
        from cloc_jax.studies import control

        control.control(
            FLAGS.config,
            place,
            boundaries=FLAGS.boundary or FLAGS.config.data.critical,
            values=values,
            seeds=FLAGS.seeds,
            kind=FLAGS.kind,
        )

    return run_many("control", run)


def run_margins(words: list[str]) -> int:
    def run(place: pathlib.Path) -> None:
        from cloc_jax.studies import learned_margins

        options = {"seeds": FLAGS.seeds, "draws": FLAGS.draws}
        learned_margins.study_margins(FLAGS.config, place, **options)

    return run_many("margins", run)


def run_collapse(words: list[str]) -> int:
    def run(place: pathlib.Path) -> None:
        from cloc_jax.studies import collapse

        collapse.collapse(FLAGS.config, place, seeds=FLAGS.seeds)

    return run_many("collapse", run)


def run_many(name: str, run: Callable[[pathlib.Path], None]) -> int:
    """A job of many runs, in a folder of its own."""
    start()
    from cloc_jax.runtime import interrupts

    place = place_of(name)
    try:
        run(place)
    except interrupts.Interrupted as stop:
        print(
            f"stopped; the {name} in {place} goes on with the same command.",
            file=sys.stderr,
        )
        return 128 + stop.number
    return 0


def run_claims(words: list[str]) -> int:
    from cloc_jax.studies import claims

    target = pathlib.Path(FLAGS.to or "claims.md")
    count = claims.write_claims(pathlib.Path(FLAGS.run or "runs"), target)
    print(f"{count} studies, written to {target}")
    return 0


def run_probe(words: list[str]) -> int:
    start()
    from cloc_jax.studies import probe

    probe.probe(FLAGS.config, place_of("probe"))
    return 0


def run_bench(words: list[str]) -> int:
    sizes = {name: numbers(name, int) for name in ("batches", "dims", "devices")}
    sizes |= {"rounds": [FLAGS.rounds], "ranks": [FLAGS.ranks - 1]}
    wrong = [name for name, given in sizes.items() if min(given, default=0) < 1]
    if wrong:
        raise ValueError(
            f"--{wrong[0]} is {FLAGS[wrong[0]].value}; give at least "
            f"{2 if wrong[0] == 'ranks' else 1}."
        )
    types = ("float32", "bfloat16", "float16")
    if not FLAGS.dtypes or not set(FLAGS.dtypes) <= set(types):
        raise ValueError(
            f"--dtypes is {','.join(FLAGS.dtypes)}; use some of {', '.join(types)}."
        )
    set_up_libraries()
    from cloc_jax.bench import bench

    dims, ranks = sizes["dims"], FLAGS.ranks
    if FLAGS.calibrate:
        bench.calibrate(ranks=ranks, dim=dims[0], rounds=FLAGS.rounds)
        return 0
    place = pathlib.Path(FLAGS.run or "runs/bench")
    if FLAGS.what == "data":
        from cloc_jax.bench import data_pipeline

        data_pipeline.bench_data(FLAGS.config, place, rounds=FLAGS.rounds)
        return 0
    bench.bench(
        FLAGS.what,
        FLAGS.config,
        place,
        batches=sizes["batches"],
        dims=dims,
        dtypes=FLAGS.dtypes,
        algorithms=FLAGS.algorithms,
        devices=sizes["devices"],
        ranks=ranks,
        rounds=FLAGS.rounds,
    )
    return 0


def run_weights(words: list[str]) -> int:
    if given_settings():
        raise ValueError(
            f"weights has no settings, but got {' '.join(given_settings())}; it takes "
            "--from, --to, --architecture and --preprocessing."
        )
    set_up_libraries()
    from cloc_jax.encoders.weights import loading

    loading.convert(
        FLAGS["from"].value or "",
        FLAGS.to,
        architecture=FLAGS.architecture,
        preprocessing=FLAGS.preprocessing,
    )
    return 0


JOBS = {
    "train": Job(run_train),
    "prepare": Job(run_prepare),
    "show": Job(run_show),
    "evaluate": Job(run_evaluate, of_a_run=True),
    "predict": Job(run_predict, takes_words=True, of_a_run=True),
    "decide": Job(run_decide, of_a_run=True),
    "sweep": Job(run_sweep),
    "control": Job(run_control),
    "margins": Job(run_margins),
    "collapse": Job(run_collapse),
    "claims": Job(run_claims),
    "probe": Job(run_probe),
    "bench": Job(run_bench),
    "weights": Job(run_weights),
}


def numbers(
    flag: str, kind: Callable, wanted: str = "whole numbers", example: str = ""
) -> list:
    """The numbers of a flag that lists them."""
    given: list[str] = FLAGS[flag].value or []
    try:
        return [kind(value) for value in given]
    except ValueError:
        raise ValueError(
            f"--{flag} is {','.join(given)}; give {wanted} with commas between "
            f"them{example}."
        ) from None


def given_settings() -> list[str]:
    """What the command line overrides of the configuration."""
    return [a for a in sys.argv if a.startswith("--config.")]


def place_of(job: str) -> pathlib.Path:
    """The folder of a job that is not one run."""
    return pathlib.Path(FLAGS.run or f"{default_run()}-{job}")


def default_run() -> str:
    """runs/<name of the config file>, below the current folder."""
    return str(pathlib.Path("runs") / pathlib.Path(config_file()).stem)


def config_file() -> str:
    return config_flags.get_config_filename(FLAGS["config"])


def saved_config(values: dict) -> ConfigDict:
    """The configuration a run was started with, as the schema types it."""
    from configs import base

    config = base.get_config()

    def fill(part: ConfigDict, saved: dict) -> None:
        for key, value in saved.items():
            if isinstance(value, dict):
                fill(part[key], value)
            else:
                part[key] = tuple(value) if isinstance(value, list) else value

    fill(config, values)
    # Where the images and how many devices there are may differ from place to place.
    config.mesh = FLAGS.config.mesh if FLAGS.is_parsed() else base.get_config().mesh
    if any(a.startswith(ROOT) for a in sys.argv):
        config.data.root = FLAGS.config.data.root
    if any(a.startswith(PREPARED) for a in sys.argv):
        config.data.prepared = FLAGS.config.data.prepared
    return config


def start() -> None:
    """Gets ready for a job that several processes may share."""
    if _is_joint():
        process_guard.supervise()
    set_up_libraries()
    from cloc_jax.runtime import console, processes

    processes.connect(FLAGS.coordinator, FLAGS.processes, FLAGS.process)
    console.console.quiet = not processes.is_first()


def set_up_libraries() -> None:
    """Keeps compiled programs between runs and libraries' talk off the screen."""
    import cv2
    import jax

    from cloc_jax.runtime import environment

    logging.set_verbosity(logging.WARNING)
    asked = os.environ.get("XLA_FLAGS", "") + os.environ.get("JAX_NUM_CPU_DEVICES", "")
    is_asked = bool(re.search(r"device_count|^\d+$", asked))
    if (os.cpu_count() or 1) > 1 and not _is_joint() and not is_asked:
        # XLA leaves a core idle in many operations; two devices share a batch better,
        # and every batch is even. GPUs are used all the same where there are some.
        jax.config.update("jax_num_cpu_devices", 2)
    # XLA ends the process where one CPU device waits 60 s for another, which happens on
    # a machine with too much to do. Versions that lack a flag end as well.
    if jax.__version_info__ < (0, 12):
        patience = "--xla_cpu_collective_call_terminate_timeout_seconds=3600"
        quiet = "--xla_cpu_collective_call_warn_stuck_timeout_seconds=600"
        given = os.environ.get("XLA_FLAGS", "")  # the last one counts: the user's
        os.environ["XLA_FLAGS"] = f"{patience} {quiet} {given}"
    cv2.setNumThreads(0)  # the pipeline's threads are enough
    cache = environment.cache_folder()
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def _is_ours(error: BaseException) -> bool:
    """Whether this project raised it, so that its message is meant for the user."""
    if not isinstance(error, ValueError | OSError | ArithmeticError):
        return False
    frames = traceback.extract_tb(error.__traceback__)
    raised_in = pathlib.Path(frames[-1].filename).resolve()
    return raised_in == HERE / "launch.py" or (HERE / "cloc_jax") in raised_in.parents


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `launch.py … | head` ends quietly
    app.run(main, flags_parser=parse_flags)
