"""cloc_jax: ordinal image classification with learned margins.

    python launch.py                                    quick start on drawn knees
    python launch.py --config=configs/koa.py --config.data.root=DIR
    python launch.py --config=configs/folder.py --config.data.root=DIR
    python launch.py … --run=DIR                        where the results go
    python launch.py … --resume                         go on after an interruption
    python launch.py predict --run=DIR image.png …      grade images
    python launch.py JOB --help                         what a job takes

Any setting of cloc_jax/config.py can be overridden: --config.train.batch_size=32
"""

import signal

if __name__ == "__main__":
    # Until libraries are loaded, Ctrl-C ends the program at once: an exception amid
    # their imports can get lost in a callback, or crash them.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

# ruff: noqa: E402
import pathlib
import re
import sys
import traceback

from absl import flags
from ml_collections import ConfigDict, config_flags

from cloc_jax.cli import command_line, saved_configuration
from cloc_jax.cli.request import Request
from cloc_jax.cli.runners import RUNNERS
from cloc_jax.runtime import environment, errors, processes
from cloc_jax.runtime.errors import printable

HERE = pathlib.Path(__file__).resolve().parent
PLACES = ("--config.mesh.", "--config.data.root=", "--config.data.prepared=")
CONFIG = config_flags.DEFINE_config_file("config", None, "The experiment.")


def main(words: list[str]) -> int:
    """Runs the job that the words ask for and returns the exit code."""
    job, words = (
        (words[0], words[1:]) if words[:1] and words[0][0] != "-" else ("", words)
    )
    if not job and {"--help", "-h"} & set(words):
        print(overview())
        return 0
    job = job or "train"
    try:
        if job not in RUNNERS:
            raise ValueError(
                f"unknown job {job!r}; use one of {', '.join(RUNNERS)}, or none to "
                "train."
            )
        settings, own = split_words(words, job)
        if job == "train" and (late := [w for w in own if w in RUNNERS]):
            raise ValueError(f"the job comes first: python launch.py {late[0]} …")
        arguments = command_line.parser(job).parse_intermixed_args(own)
        config = read_settings(settings, command_line.COMMANDS[job].settings, job)
        file = config_flags.get_config_filename(flags.FLAGS["config"])
        file, _, variant = file.partition(":")
        name = "_".join(filter(None, (pathlib.Path(file).stem, variant)))
        return RUNNERS[job](Request(arguments, config, name, settings, schema))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 128 + signal.SIGINT
    except SystemExit:  # nobody reads the output
        if not _has_peers():
            raise
        code = environment.UNREAD
    except Exception as error:
        problem = _sentence(error)
        if isinstance(error, BrokenPipeError) and environment.has_no_reader():
            code = environment.UNREAD
        elif problem:
            print(f"error: {printable(problem)}", file=sys.stderr)
            code = 2
        else:
            traceback.print_exc()
            code = processes.LOST if _has_peers() else 1
    if _has_peers():
        # The usual way out would wait for processes that wait for this one.
        processes.give_up(code)
    return code


def schema() -> ConfigDict:
    """Every setting with its default."""
    from cloc_jax.config import default_config

    return default_config()


def overview() -> str:
    """What `launch.py --help` prints."""
    lines = [f"    {name:10}{c.help}" for name, c in command_line.COMMANDS.items()]
    return "\n".join([(__doc__ or "").rstrip(), "", "Jobs:", "", *lines])


def split_words(words: list[str], job: str) -> tuple[list[str], list[str]]:
    """The words that are settings, in the form --config.field=value, and the others."""
    settings, others = [], []
    waiting = [re.sub(r"^-config\b", "--config", word) for word in words]
    while waiting:
        word = waiting.pop(0)
        if not re.match(r"--config(\.|=|$)", word):
            others.append(word)
            continue
        is_open = "=" not in word and waiting and not waiting[0].startswith("-")
        if is_open and (job != "predict" or word == "--config"):
            word = f"{word}={waiting.pop(0)}"
        settings.append(word)
    return settings, others


def read_settings(words: list[str], allowed: str, job: str) -> ConfigDict:
    """The configuration; every mistake ends with one sentence and a hint."""
    refused = [w for w in words if not allowed or not w.startswith(PLACES)]
    if refused and allowed != command_line.FULL:
        may = "mesh.*, data.root and data.prepared" if allowed else "none"
        raise ValueError(
            f"{job} uses no settings of its own, but got {' '.join(refused)}; it takes "
            f"{may}."
        )
    # The last of a setting counts, as for other flags: tuples would be appended.
    last = {word.partition("=")[0]: word for word in words}
    words = [word for word in words if last[word.partition("=")[0]] is word]
    # The file has to come before what overrides it, wherever it was written.
    files = [w for w in words if w.startswith("--config=")]
    files = files or [f"--config={HERE / 'configs' / 'quickstart.py'}"]
    if files[0].endswith(".json"):
        files = [files[0].replace("=", f"={saved_configuration.__file__}:", 1)]
    words = [*files, *(w for w in words if not w.startswith("--config="))]
    given = sys.argv
    sys.argv = [given[0], *words]  # ml_collections looks there for the order
    try:
        flags.FLAGS([given[0], *words])
        CONFIG.value.to_dict()  # a file that could not be loaded says so only now
        if CONFIG.value.data.get("crop") == (None,):
            CONFIG.value.data.crop = None  # how ml_collections reads a tuple's "None"
        return CONFIG.value
    except flags.IllegalFlagValueError as error:
        problem, hint = f"{error}.", "cloc_jax/config.py shows the type of every field."
    except flags.Error as error:
        problem, hint = str(error), "python launch.py --help shows how it is used."
    except (AttributeError, KeyError) as error:
        # ml_collections quotes the field and its own suggestion in one string.
        text = str(error).replace("\\n", ". ").replace("\\", "").replace("'", "")
        problem = f"the configuration has no field {text}"
        hint = "cloc_jax/config.py lists them all."
    except (OSError, ImportError, SyntaxError) as error:
        names = sorted(p.name for p in (HERE / "configs").glob("[a-z]*.py"))
        why = str(error).strip().splitlines()[-1].strip()
        problem = f"the configuration file was not loaded: {why}."
        hint = f"configs/ has {', '.join(names)}."
    finally:
        sys.argv = given
    raise ValueError(f"{problem} {hint}")


def _has_peers() -> bool:
    return "jax" in sys.modules and sys.modules["jax"].process_count() > 1


def _sentence(error: BaseException) -> str:
    """What to tell the user of an error; "" where only a traceback can."""
    is_of_system = isinstance(error, OSError) and error.errno is not None
    if _is_ours(error) and not is_of_system:
        return str(error)
    return errors.sentence(error)


def _is_ours(error: BaseException) -> bool:
    """Whether this project raised it, so that its message is meant for the user."""
    if not isinstance(error, ValueError | OSError | ArithmeticError):
        return False
    frames = traceback.extract_tb(error.__traceback__)
    raised_in = pathlib.Path(frames[-1].filename).resolve()
    return raised_in == HERE / "launch.py" or (HERE / "cloc_jax") in raised_in.parents


if __name__ == "__main__":
    environment.open_missing_streams()
    with environment.reader_may_leave():
        sys.exit(main(sys.argv[1:]))
