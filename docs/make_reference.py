"""Writes docs/reference.md: every setting, and every job with its flags.

    python docs/make_reference.py

Settings, defaults and explanations come from cloc_jax/config.py (the comments beside
the fields), jobs from the signatures and docstrings in cloc_jax/cli. A test fails where
the page is stale.
"""

import argparse
import ast
import inspect
import io
import pathlib
import re
import sys
import tokenize
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference.md"
sys.path.insert(0, str(ROOT))

from cloc_jax import config as schema  # noqa: E402
from cloc_jax.cli import command_line  # noqa: E402
from cloc_jax.cli.command_line import PlaceSettings, Settings  # noqa: E402
from cloc_jax.cli.main import JOBS as ALL_JOBS  # noqa: E402

TOP = """\
# Reference

Written by `python docs/make_reference.py` from `cloc_jax/config.py` and the jobs in
`cloc_jax/cli`; edit those, not this page.

- [Jobs](#jobs): what `launch.py` does, with the flags of each job.
- [Settings](#settings): every field of a configuration, with its default.
"""
JOBS = """\
## Jobs

A job is the first word after `launch.py`; without one it trains. `--help` after a job
prints what its table has.
"""
SETTINGS = """\
## Settings

Set on the command line with `--config.` before the name, such as
`--config.train.batch_size=32`, or in a file of `configs/`, which states only what
differs from these defaults. "ours" marks what the paper leaves open.
"""
TAKES = {
    Settings: "Takes any setting as well.",
    PlaceSettings: "Uses the run's own settings; of others only `mesh.*`, "
    "`data.root` and `data.prepared` can be given.",
    None: "Takes no settings.",
}


class Remark(NamedTuple):
    """What the source says of an assignment."""

    before: str  # comment lines above it
    beside: str  # comment at its end

    def text(self) -> str:
        return " ".join(filter(None, self))


def main() -> None:
    PAGE.write_text(page())
    print(f"written: {PAGE}")


def page() -> str:
    """The whole page."""
    jobs = [_job(name, job) for name, job in ALL_JOBS.items()]
    return "\n".join([TOP, JOBS, *jobs, SETTINGS, *_sections()])


# --- jobs ---


def _job(name: str, job: command_line.Job) -> str:
    takes = TAKES[command_line.settings_type(job)]
    lines = [f"### {name}", "", f"{command_line.summary(job)} {takes}", ""]
    rows = [
        (_flag(action), _meaning(action))
        for action in command_line.parser(job)._actions
        if "--help" not in action.option_strings
    ]
    return "\n".join(lines + (_table(("flag", "meaning"), rows) if rows else []))


def _flag(action: argparse.Action) -> str:
    """A flag as it is written, with the word for its value."""
    if not action.option_strings:
        return f"`{action.dest} …`"
    flag = action.option_strings[0]
    if action.nargs == 0:
        return f"`{flag}`"
    choices = ",".join(map(str, action.choices or ()))
    word = action.metavar or (f"{{{choices}}}" if choices else action.dest.upper())
    return f"`{flag}={word}`"


def _meaning(action: argparse.Action) -> str:
    """The help of a flag, which tells its default."""
    return (action.help or "").replace("%%", "%")


# --- settings ---


def _sections() -> list[str]:
    """A section per group of settings, in the order of config.py."""
    remarks, groups, docs = _remarks()
    # ConfigDict sorts by name; neighbours in the source explain each other.
    order = {name: place for place, name in enumerate([*groups, *remarks])}
    sections: dict[str, list[tuple[str, str, str]]] = {"": []}

    def walk(part: Any, prefix: str) -> None:
        def place(key: str) -> int:
            return order.get(f"{prefix}{key}", order.get(f"stage.{key}", -1))

        for key in sorted(part, key=place):
            value, name = part[key], f"{prefix}{key}"
            if hasattr(value, "to_dict"):
                sections[name] = []
                walk(value, f"{name}.")
            else:
                said = remarks.get(name) or _of_optimizer(name, remarks)
                row = (f"`{name}`", f"`{_shown(value)}`", said)
                sections[prefix.removesuffix(".")].append(row)

    walk(schema.default_config(), "")
    written = []
    for name, rows in sections.items():
        intro = " ".join(filter(None, (docs.get(name, ""), groups.get(name, ""))))
        if not (rows or intro):
            continue
        lines = [f"### {name or 'the whole run'}", ""]
        lines += [intro, ""] if intro else []
        if rows:
            lines += _table(("setting", "default", "meaning"), rows)
        written.append("\n".join(lines))
    return written


def _of_optimizer(name: str, remarks: dict[str, str]) -> str:
    """What a field of a stage's own optimizer means: the same as the run's."""
    field = name.rsplit(".", 1)[1]
    return remarks.get(f"stage.{field}") or f"as `optimizer.{field}`, for this stage"


def _remarks() -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Comments by field, comments by group, and docstrings by group."""
    source = inspect.getsource(schema)
    remarks, groups, docs = {}, {}, {}
    comments = _comments(source)
    for function in ast.parse(source).body:
        if not isinstance(function, ast.FunctionDef):
            continue
        prefix = _prefix(function.name)
        if prefix:
            docs[prefix.removesuffix(".")] = ast.get_docstring(function) or ""
        for statement in function.body:
            if not isinstance(statement, ast.Assign):
                continue
            target = ast.unparse(statement.targets[-1])
            if not re.fullmatch(r"[\w.]+", target) or "." not in target:
                continue
            # Where several methods are set, as in `poe = methods.poe = …`.
            is_field = prefix == "method." and not target.startswith("methods.")
            name = prefix + (target if is_field else target.partition(".")[2])
            said = _remark(statement, comments)
            is_group = re.match(r"ConfigDict\(|_\w+\(", ast.unparse(statement.value))
            (groups if is_group else remarks)[name] = said.text()
    for group in ("stage", "method"):
        docs.pop(group, None)
    return remarks, groups, docs


def _prefix(function: str) -> str:
    """Where the fields that a function of config.py sets belong."""
    if function == "default_config":
        return ""
    if function.startswith("_set_"):
        return "method."
    return "stage." if function == "_stage" else f"method.{function[1:]}."


def _comments(source: str) -> dict[int, tuple[str, bool]]:
    """Comments by line, and whether they have the line for themselves."""
    found = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            alone = token.line.lstrip().startswith("#")
            found[token.start[0]] = (token.string.lstrip("# "), alone)
    return found


def _remark(statement: ast.stmt, comments: dict[int, tuple[str, bool]]) -> Remark:
    beside, _ = comments.get(statement.end_lineno or 0, ("", False))
    above, line = [], statement.lineno - 1
    while comments.get(line, ("", False))[1]:
        above.insert(0, comments[line][0])
        line -= 1
    return Remark(" ".join(above), beside)


# --- words ---


def _shown(value: Any) -> str:
    if isinstance(value, float) and value >= 1e-4:
        return f"{value:g}" if value % 1 else f"{value:.1f}"
    return repr(value)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    lines = [head, ("---",) * len(head), *rows]
    return [f"| {' | '.join(_cell(c) for c in line)} |" for line in lines] + [""]


def _cell(text: str) -> str:
    """Text that neither ends the cell nor is taken for HTML."""
    return re.sub(r"<(?=\w)", r"\\<", text.replace("|", r"\|"))


if __name__ == "__main__":
    main()
