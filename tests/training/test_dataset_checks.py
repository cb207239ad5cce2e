"""Settings of data that cannot work are refused at once, by `prepare` as well."""

import pathlib

import miniatures
import pytest

from cloc_jax.cli import prepare
from cloc_jax.training import dataset, memory_estimate
from configs import folder as folder_config
from configs import quickstart


@pytest.mark.parametrize(
    "size", [(32, "a"), (32.5, 32), (32,), (8, 32), (True, 32), (), (32, None)]
)
def test_size(size):
    config = quickstart.get_config()
    config.data.size = size
    with pytest.raises(ValueError, match="data.size is .* whole numbers"):
        dataset.load(config)


def test_memory_is_estimated_before_anything_starts(monkeypatch):
    monkeypatch.setattr(memory_estimate, "memory_bytes", lambda: 24 * 2**30)
    config = quickstart.get_config()
    config.data.size = (20000, 20000)
    config.train.eval_batch_size = 256
    # 256 images of 400 MB, six bytes per value: 572.2 GiB.
    with pytest.raises(ValueError, match=r"at least 572\.2 GiB .* has 24\.0 GiB"):
        dataset.build_dataset(config)
    config.data.size = (224, 224)
    memory_estimate.check(config)


def test_limits_of_memory_are_known(monkeypatch, tmp_path):
    have = memory_estimate.memory_bytes()
    assert 2**28 < have < 2**50
    (tmp_path / "memory.max").write_text("1000000\n")
    monkeypatch.setattr(memory_estimate, "CGROUP", tmp_path / "memory.max")
    assert memory_estimate.memory_bytes() == 1000000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_estimate.memory_bytes() == have
    monkeypatch.setattr(memory_estimate, "CGROUP", pathlib.Path("/nowhere"))
    assert memory_estimate.memory_bytes() >= have


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"augment.random_crop": 2.0}, "augment.random_crop"),
        ({"augment.rotate_degrees": -1.0}, "augment.rotate_degrees"),
        ({"seed": -1}, "seed is -1"),
        ({"data.permute": -1}, "data.permute is -1"),
        ({"data.critical": ("7|8",)}, "data.critical names 7|8"),
        ({"data.crop": (1000, 1000)}, "data.crop is 1000x1000"),
        ({"data.size": (20000, 20000)}, "GiB"),
        ({"data.max_file_mib": 0}, "data.max_file_mib is 0"),
    ],
)
def test_prepare_refuses_what_training_refuses(changes, message, tmp_path):
    root = miniatures.folder(tmp_path / "images", (12, 12))
    config = folder_config.get_config()
    config.data.root, config.data.prepared = str(root), str(tmp_path / "prepared")
    config.data.size = (16, 16)
    config.update_from_flattened_dict(changes)
    for job in (dataset.build_dataset, prepare.prepare):
        if "data.critical" in changes and job is dataset.build_dataset:
            continue  # training looks at it a step later
        with pytest.raises(ValueError, match=message):
            job(config)
