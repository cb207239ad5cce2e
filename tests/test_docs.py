"""The pages for people: every command in them parses, and what they name exists."""

import ast
import re
import runpy
import shlex

import pytest
from ml_collections.config_flags import config_path

from cloc_jax.cli import command_line
from cloc_jax.cli.main import JOBS
from cloc_jax.config import default_config
from cloc_jax.config_files import CONFIGS
from cloc_jax.runtime.run_folder import flatten

ROOT = CONFIGS.parent
PATTERNS = ("*.md", "docs/**/*.md", "data/*/README.md", "configs/[a-z]*.py")
PAGES = sorted(
    str(path.relative_to(ROOT))
    for pattern in PATTERNS
    for path in ROOT.glob(pattern)
    if path.name != "CHANGELOG.md"  # it names what is no more
)
BLOCK = re.compile(r"(?:^ {4}.*\n)+|^```(?:.*\n)+?```", re.MULTILINE)
GROUPS = "data|augment|encoder|head|log|method|optimizer|mesh|train"
# In words between backticks, and in the flags of any code.
NAMED = r"`|--config\.|--vary='?|--set='?[\w/]*:"
# Not names of tables, such as train.csv.
FIELD = re.compile(rf"(?:{NAMED})(?:--config\.)?((?:{GROUPS})\.(?!csv)[a-z][\w.]*)")
FILE = re.compile(r"(?<![\w/.>])\w+/[\w./]*\.(?:py|md|png)\b")


def read(page: str) -> str:
    text = (ROOT / page).read_text()
    return text if page.endswith(".md") else ast.get_docstring(ast.parse(text)) or ""


def commands(text: str) -> list[list[str]]:
    """The words after launch.py, in code blocks and inline code."""
    blocks = [re.sub(r"\\\n\s*", "", block) for block in BLOCK.findall(text)]
    inline = re.findall(r"`([^`]+)`", BLOCK.sub("", text))
    code = "\n".join([*blocks, *(" ".join(c.split()) for c in inline)])
    return [shlex.split(c, comments=True) for c in re.findall(r"launch\.py (.*)", code)]


@pytest.mark.parametrize("page", PAGES)
def test_commands_parse(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    for words in commands(read(page)):
        # "…" stands for what the reader fills in.
        words = [w for w in words if not re.match(r"…$|--config=(…|RUN)|--help$", w)]
        has_job = bool(words) and not words[0].startswith("-")
        job = words.pop(0) if has_job else "train"
        given = command_line.read_words(JOBS[job], words)
        for varied in given.get("vary", []):
            config_path.get_value(varied.partition("=")[0], given["settings"].config)


@pytest.mark.parametrize("page", PAGES)
def test_settings_and_files_exist(page):
    text, schema = read(page), default_config()
    for name in FIELD.findall(text):
        config_path.get_value(name, schema)
    places = (ROOT, ROOT / "cloc_jax", (ROOT / page).parent)
    for file in FILE.findall(text):
        assert any((place / file).exists() for place in places), file


def test_the_reference_is_as_the_code_is():
    page = runpy.run_path(str(ROOT / "docs" / "make_reference.py"))["page"]
    stale = "docs/reference.md is stale; run python docs/make_reference.py"
    assert (ROOT / "docs" / "reference.md").read_text() == page(), stale


def test_the_reference_has_every_setting_and_every_flag():
    text = (ROOT / "docs" / "reference.md").read_text()

    rows = dict(re.findall(r"^\| `([\w.]+)` \| `.*?` \| (.*) \|$", text, re.M))
    assert rows.keys() == flatten(default_config().to_dict()).keys()
    assert all(rows.values()), "a setting without a meaning"
    assert rows["train.patience"] == "epochs without improvement that end such a stage"
    for name, job in JOBS.items():
        section = text.split(f"### {name}\n")[1].split("\n##")[0]
        for action in command_line.parser(job)._actions:
            for flag in set(action.option_strings) - {"-h", "--help"}:
                assert f"`{flag}" in section, (name, flag)
