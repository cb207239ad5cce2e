"""The job `prepare`: records, lists of every split, no TensorFlow."""

import importlib
import os

import miniatures
from launching import ROOT, launch

from cloc_jax.cli import images
from cloc_jax.cli.command_line import Settings
from cloc_jax.training import assembly


def config_of(name, root, prepared):
    config = importlib.import_module(f"configs.{name}").get_config()
    config.data.root = str(root)
    config.data.prepared = str(prepared)
    config.data.size = (16, 16)
    return config


def run(config, capsys):
    images.prepare(Settings(config, "", ()))
    return capsys.readouterr().out


def test_folds_are_prepared_together(tmp_path, capsys):
    root = miniatures.hid(tmp_path / "source")
    config = config_of("hid", root, tmp_path / "prepared")
    out = run(config, capsys)
    assert "preparing 281 images once" in out
    assert "test  2" in out
    assert config.data.fold == 0


def test_images_that_came_are_prepared(tmp_path, capsys):
    root = miniatures.folder(tmp_path / "source")
    config = config_of("folder", root, tmp_path / "prepared")
    run(config, capsys)
    miniatures.picture(root / "0" / "new.png")
    assert "preparing 25 images once" in run(config, capsys)
    assert "preparing" not in run(config, capsys)


def test_drawn_images_need_none(tmp_path, capsys):
    config = importlib.import_module("configs.quickstart").get_config()
    config.data.prepared = str(tmp_path / "prepared")
    assert "synthetic needs no preparation" in run(config, capsys)
    assert not (tmp_path / "prepared").exists()


def test_prepared_images_are_in_the_users_cache_by_default(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = importlib.import_module("configs.folder").get_config()
    folder = assembly.prepared_folder(config)
    assert folder == tmp_path / "cache" / "cloc_jax" / "prepared"
    config.data.prepared = "here"
    monkeypatch.chdir(tmp_path)
    assert assembly.prepared_folder(config) == tmp_path / "here"


def test_from_the_command_line_without_tensorflow(tmp_path):
    miniatures.folder(tmp_path / "source")
    stub = tmp_path / "stub" / "tensorflow"
    stub.mkdir(parents=True)
    trace = tmp_path / "tensorflow-was-imported"
    (stub / "__init__.py").write_text(f"open({str(trace)!r}, 'w').close()\n")
    process = launch(
        "prepare",
        f"--config={ROOT / 'configs' / 'folder.py'}",
        "--config.data.root=source",
        "--config.data.prepared=prepared",
        cwd=tmp_path,
        PYTHONPATH=os.pathsep.join([str(ROOT), str(stub.parent)]),
    )
    assert process.returncode == 0 and process.stderr == ""
    assert "preparing 24 images once, in " in process.stdout
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["prepared", "source", "stub"]
