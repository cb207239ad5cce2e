"""The job `prepare`: records, lists of every split, no TensorFlow."""

import miniatures
from launching import ROOT, launch, stand_ins

from cloc_jax.cli import images
from cloc_jax.cli.command_line import Settings
from cloc_jax.training import assembly
from configs import folder, quickstart


def test_drawn_images_need_none(tmp_path, capsys):
    config = quickstart.get_config()
    config.data.prepared = str(tmp_path / "prepared")
    images.prepare(Settings(config, "", ()))
    assert "synthetic needs no preparation" in capsys.readouterr().out
    assert not (tmp_path / "prepared").exists()


def test_prepared_images_are_in_the_users_cache_by_default(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = folder.get_config()
    found = assembly.prepared_folder(config)
    assert found == tmp_path / "cache" / "cloc_jax" / "prepared"
    config.data.prepared = "here"
    monkeypatch.chdir(tmp_path)
    assert assembly.prepared_folder(config) == tmp_path / "here"


def test_from_the_command_line_without_tensorflow(tmp_path):
    miniatures.folder(tmp_path / "source")
    trace, variables = stand_ins(tmp_path / "without", "tensorflow")
    process = launch(
        "prepare",
        f"--config={ROOT / 'configs' / 'folder.py'}",
        "--config.data.root=source",
        "--config.data.prepared=prepared",
        cwd=tmp_path,
        **variables,
    )
    assert process.returncode == 0 and process.stderr == ""
    assert "preparing 24 images once, in " in process.stdout
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["prepared", "source", "without"] and not trace.exists()
