"""Checkpoints and models: damage is noticed, and the one before serves."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from damage import biggest, flip

from cloc_jax.runtime import checkpoint
from cloc_jax.runtime.files import SEAL, Damaged

LIKE = {"a": jnp.zeros((40, 3)), "key": jax.random.key(0)}


def state(value):
    return {"a": jnp.full((40, 3), value, jnp.float32), "key": jax.random.key(value)}


def cut(path):
    path.write_bytes(path.read_bytes()[:-3])


DAMAGES = {
    "flipped bit": lambda folder: flip(biggest(folder)),
    "truncated": lambda folder: cut(biggest(folder)),
    "missing array": lambda folder: biggest(folder).unlink(),
    "metadata": lambda folder: flip(folder / "_CHECKPOINT_METADATA", 5),
    "list of checksums": lambda folder: cut(folder / SEAL),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Three checkpoints were written, two are kept."""
    folder = tmp_path_factory.mktemp("run") / "checkpoints"
    written = checkpoint.Checkpoints(folder)
    for number in (1, 2, 3):
        assert written.save(state(number), {"step": number}) == number
    written.close()
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "checkpoints")


def test_the_newest_comes_back(folder):
    found = checkpoint.Checkpoints(folder)
    assert found.latest() == 3 and found.record() == {"step": 3}
    np.testing.assert_array_equal(found.arrays(LIKE)["a"], state(3)["a"])
    found.close()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_newest_one_is_named_and_the_one_before_serves(folder, damage):
    DAMAGES[damage](folder / "3")
    with pytest.raises(Damaged, match="Move it away, and --resume goes on") as caught:
        checkpoint.Checkpoints(folder)
    assert str(folder / "3") in str(caught.value) and "\n" not in str(caught.value)
    shutil.rmtree(folder / "3")
    goes_on_from_two(folder)


def test_what_a_killed_process_was_writing_is_removed(folder):
    (folder / "3" / SEAL).unlink()
    goes_on_from_two(folder)


def goes_on_from_two(folder):
    found = checkpoint.Checkpoints(folder)
    assert found.latest() == 2 and found.record() == {"step": 2}
    restored = found.arrays(LIKE)
    np.testing.assert_array_equal(restored["a"], state(2)["a"])
    assert jax.random.key_data(restored["key"])[1] == 2
    assert found.save(state(9), {"step": 9}) == 3
    found.close()


def test_no_flipped_bit_of_a_model_is_used(tmp_path):
    folder = tmp_path / "model"
    checkpoint.save_model(folder, state(5))
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    found = checkpoint.load_model(folder, LIKE, here)
    np.testing.assert_array_equal(found["a"], state(5)["a"])
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        whole = path.read_bytes()
        for place in {0, len(whole) // 2, len(whole) - 1}:
            flip(path, place)
            try:
                found = checkpoint.load_model(folder, LIKE, here)
            except Damaged as error:
                assert str(folder) in str(error)
            else:  # white space in the list of checksums
                assert path.name == SEAL
                np.testing.assert_array_equal(found["a"], state(5)["a"])
            path.write_bytes(whole)


def test_a_checkpoint_of_another_run_is_named(folder):
    with pytest.raises(Damaged, match="3/checksums.json is damaged: it is of another"):
        checkpoint.Checkpoints(folder, "mine")


def test_a_full_disk_is_said_before_anything_is_written(tmp_path, monkeypatch):
    full = shutil._ntuple_diskusage(10**6, 10**6, 4000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with pytest.raises(OSError, match="No space left") as caught:
        checkpoint.save_model(tmp_path / "stages" / "fit", state(5))
    assert caught.value.filename == str(tmp_path / "stages" / "fit")
    assert not list(tmp_path.iterdir())
