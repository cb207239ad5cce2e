"""What studies, tables and sweeps leave is checked when it is read again."""

import pytest
from launching import launch
from ml_collections import ConfigDict

from cloc_jax.paper.tables import summaries, table_job
from cloc_jax.runtime import files
from cloc_jax.sweeps.engines import driver, task_files
from cloc_jax.sweeps.run_plan import Plan


def half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def other_digit(path):
    """A change that leaves valid JSON: only a checksum tells."""
    text = path.read_text()
    at = next(i for i, c in enumerate(text) if c.isdigit() and text[i - 1] == " ")
    path.write_text(f"{text[:at]}{(int(text[at]) + 1) % 10}{text[at + 1 :]}")


def assert_named(ended, path):
    """The command ended with one sentence that names the file."""
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    said = [x for x in ended.stderr.splitlines() if x.startswith("error: ")]
    assert len(said) == 1 and f"{path} is damaged" in said[0], ended.stderr


@pytest.mark.parametrize("damage", [half, other_digit])
def test_a_page_of_tables_from_a_damaged_summary(tmp_path, damage):
    path = tmp_path / "summaries" / "koa-frozen.json"
    path.parent.mkdir()
    files.write_sealed(path, {"version": summaries.VERSION, "dataset": "koa"})
    damage(path)
    words = ["tables", f"--from={path.parent}", f"--run={tmp_path}"]
    assert_named(launch(*words, cwd=tmp_path), path)


@pytest.mark.parametrize("damage", [half, other_digit])
def test_lists_of_runs_and_tasks(tmp_path, damage):
    driver.begin(tmp_path, [{"name": "a", "setting": "a", "seed": 1}])
    path = tmp_path / driver.LISTED
    damage(path)
    with pytest.raises(files.Damaged, match="sweep.json is damaged"):
        table_job.make_summaries(tmp_path)
    one = Plan("a", "a", {}, ConfigDict({"seed": 1}))
    task = task_files.write(task_files.Task("a", (one,)), tmp_path)
    damage(task)
    for read in (task_files.read, task_files.environment_of):
        with pytest.raises(files.Damaged, match="Start the command again"):
            read(task)
