"""Flags and settings: from the signatures of jobs, and from files and words."""

import os

import pytest
from launching import ROOT

from cloc_jax.cli import command_line, main
from cloc_jax.cli.command_line import Settings
from cloc_jax.cli.main import JOBS
from cloc_jax.config_files import load_config
from cloc_jax.paper import table_rows


def test_help_of_each_job_lists_its_flags_and_what_they_mean(capsys):
    assert main.main(["--help"]) == 0
    overview = capsys.readouterr().out
    for job, function in JOBS.items():
        summary = command_line.summary(function)
        assert f"    {job:10}{summary}" in overview
        with pytest.raises(SystemExit) as ended:
            main.main([job, "--help"])
        said = capsys.readouterr().out
        assert ended.value.code == 0 and f"usage: python launch.py {job}" in said
        assert summary in said
        takes_settings = command_line.settings_type(function) is Settings
        assert ("--config.train.batch_size=32" in said) == takes_settings
        for flag in command_line.parser(function)._actions:
            assert flag.help and all(text in said for text in flag.option_strings)
    flags = command_line.parser(JOBS["tables"])._actions
    (only,) = (flag for flag in flags if flag.dest == "only")
    assert only.help.startswith(f"some of {', '.join(table_rows.TABLES)};")


KOA, FOLDER = (ROOT / "configs" / name for name in ("koa.py", "folder.py"))
SEVERAL = [
    "--config.data.size=(64, 64)",
    "--config.data.order=('a', 'b')",
    f"--config={KOA}",
    "--config.seed=1",
    "--config.data.size=(32, 48)",
    f"--config={FOLDER}",
    "--config.seed=2",
    "--config.data.order=('c', 'd')",
]


@pytest.mark.parametrize(
    "words, found",
    [
        (["--config.seed=8", f"--config={KOA}"], "koa (120, 200) () 8"),
        (SEVERAL, "folder (32, 48) ('c', 'd') 2"),
    ],
)
def test_a_file_may_stand_anywhere_and_the_last_of_a_setting_counts(words, found):
    config = command_line.read_words(JOBS["train"], words)["settings"].config
    data = config.data
    assert f"{data.name} {data.size} {data.order} {config.seed}" == found


@pytest.mark.parametrize(
    "words, images",
    [
        ("--run=r -- -x.png --config=y.png", ["-x.png", "--config=y.png"]),
        ("a.png --run=r b.png -- -x.png -- c", ["a.png", "b.png", "-x.png", "--", "c"]),
        ("a.png --run=r --", ["a.png"]),
    ],
)
def test_names_behind_two_dashes_are_no_flags(words, images):
    given = command_line.read_words(JOBS["predict"], words.split())
    assert given["images"] == images and given["run"] == "r"


def options(*words):
    given = command_line.read_words(JOBS["sweep"], words)
    return given["engine"].options(given["processes"])


def test_who_trains_the_runs_and_for_how_long():
    assert options().is_in_process and options("--workers=1").is_in_process
    assert not options("--workers=2").is_in_process
    assert options("--engine=slurm", "--hours=0.5").hours == 0.5
    for engine in ("ray", "slurm"):
        queued = options(f"--engine={engine}")
        assert not queued.is_in_process and queued.hours == 24


def test_a_shipped_configuration_is_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config, name = load_config("configs/koa.py:frozen")
    assert name == "koa_frozen" and config.encoder.frozen
    (tmp_path / "configs").mkdir()
    own = "from cloc_jax.config import default_config\n\n\ndef get_config():\n"
    (tmp_path / "configs" / "koa.py").write_text(f"{own}    return default_config()\n")
    assert load_config("configs/koa.py")[0].data.name == ""
    # A bare name is always that of a shipped one.
    (tmp_path / "koa").mkdir()
    config, name = load_config("koa:frozen")
    assert name == "koa_frozen" and config.data.name == "koa"


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "has no attribute 'get_config'"),
        ("def get_config():\n    return x", "name 'x' is not defined"),
        ("raise UnicodeError('mine')", "mine"),
        ("raise SystemExit(3)", "3"),
        ("def get_config():\n    return 5", "its get_config gives no ConfigDict"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_named(tmp_path, text, message):
    file = tmp_path / "own.py"
    file.write_text(text)
    with pytest.raises(ValueError, match=f"own.py was not loaded: .*{message}"):
        load_config(str(file))


@pytest.mark.parametrize("name", ["pipe.py", "pipe.json"])
def test_a_pipe_is_no_configuration_file(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match=f"{name}: it is a folder, a named pipe"):
        load_config(str(tmp_path / name))


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--config.train.batchsize=8"], 'Did you mean "batch_size"'),
        (["--config=configs/nothing.py"], "configs/ has adience.py, bracs.py"),
        (["--config=nothing"], "configs/ has adience.py, bracs.py"),
        (["--batch_size=8"], "unrecognized arguments: --batch_size=8"),
        (["train", ""], "unrecognized arguments: an empty word."),
        (["--run=a\0b"], "holds a NUL"),
        (["--config.mesh.shape=('a','b')"], "mesh.shape is ('a', 'b'); it is two"),
        (["--config.data.critical=(None,)"], "data.critical is (None,); it names"),
        (["fly"], "unknown job 'fly'; use one of train, "),
        (["--resume", "show"], "the job comes first: python launch.py show"),
        (
            ["--config.method.cloc.weight=2", "--config.method.name=ce"],
            "method.cloc.weight is set, but method.name is ce",
        ),
        (["evaluate"], "add --run=DIR"),
        (["evaluate", "--run=nowhere"], "nowhere is not a run"),
        (["--config=configs/koa.py:whole"], "no variant 'whole'; it has none, :frozen"),
        (["--config.data.size=(32, 'a')"], "data.size is (32, 'a')"),
        (["--config.optimizer.learning_rate=nan"], "learning_rate is nan; use a"),
        (["decide", "--run=x", "--max-missed=0.05", "--remove"], "give it alone"),
        (["sweep", "--hours=0"], "--hours is 0; use more than 0"),
        (["show", f"--run={__file__}"], "is a file; give the name of a folder"),
        (["sweep", "--choose=mae"], "--choose=mae needs several settings"),
        (["--coordinator=host:1"], "needs all of --coordinator"),
        (["claims", "--run=."], "holds no study; run `launch.py control`"),
        (["weights", "--from=x", "--config.seed=1"], "unrecognized arguments: --conf"),
        (["compile", "--target=k80"], "--target is 'k80'; use a name and its devices"),
        (["bench", "--meshes=2x"], "--meshes: got 2x; give sizes such as 8,2x4,1x8"),
        (["--run=/proc/run"], "--run=/proc/run cannot be written"),
        (["--config=configs/koa.py"], "data.root is empty"),
        (["sweep", "--option=num_gpus=1"], "is for another engine"),
    ],
)
def test_mistakes_are_named_before_anything_starts(
    arguments, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    try:
        code = main.main(arguments)
    except SystemExit as ended:  # of argparse
        code = ended.code
    said = capsys.readouterr()
    assert code == 2 and said.out == ""
    assert said.err.startswith("error: ") and message in said.err
    assert "Traceback" not in said.err and not list(tmp_path.iterdir())
