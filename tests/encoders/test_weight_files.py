"""Files of weights that the tests write themselves, and the job that converts them."""

import io
import os
import pickle
import shutil
import sys
import zipfile

import numpy as np
import pytest
import safetensors.numpy
from references import random_weights

from cloc_jax.cli import images
from cloc_jax.encoders.weights import download, filling, weight_files
from cloc_jax.runtime import files


def same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert found[name].dtype == tensor.dtype, name
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)


def test_safetensors_keeps_types_and_metadata(tmp_path):
    tensors = {
        "half": np.array([1, 2.5], np.float16),
        "single": np.ones((2, 3), np.float32),
        "count": np.array(7),
    }
    path = tmp_path / "x.bin"  # known by its content
    safetensors.numpy.save_file(tensors, path, metadata={"a": "b"})
    found, said = weight_files.read(path)
    same(found, tensors)
    assert said == {"a": "b", "source": "x.bin", "sha256": files.sha256(path)}


# ------------------------------------------------------------------------ torch


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])
def test_torch_state_dicts(tmp_path, torch, is_zip):
    state = {
        "a.weight": torch.nn.Parameter(torch.arange(6.0).reshape(2, 3)),
        "half": torch.ones(2, dtype=torch.float16),
        "count": torch.tensor(3),
        "epoch": 3,
    }
    path = tmp_path / "x.pth"
    torch.save(state, path, _use_new_zipfile_serialization=is_zip)
    tensors, said = weight_files.read(path)
    wanted = {
        "a.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
        "half": np.ones(2, np.float16),
        "count": np.array(3),
    }
    same(tensors, wanted)
    assert said["sha256"] == files.sha256(path)


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("writer", ["zip", "legacy", "pickle"])
def test_no_pickle_is_executed(tmp_path, torch, writer):
    trap = Trap(tmp_path / "sprung")
    path = tmp_path / "x.pth"
    if writer == "pickle":
        path.write_bytes(pickle.dumps({"a": trap}))
    else:
        torch.save({"a": trap}, path, _use_new_zipfile_serialization=writer == "zip")
    with pytest.raises(ValueError, match=r"x.pth was refused.*state_dict\(\)"):
        weight_files.read(path)
    assert not trap.path.exists()
    if writer == "pickle":  # the trap works, so the test could have failed
        pickle.loads(path.read_bytes())
        assert trap.path.exists()


def test_what_torch_files_are_refused_for(tmp_path, torch, monkeypatch):
    path = tmp_path / "x.pth"

    def refused(message):
        with pytest.raises(ValueError, match=message):
            weight_files.read(path)

    torch.save({"epoch": 3}, path)
    refused("holds no tensors")
    torch.save({"a": torch.eye(3).to_sparse()}, path)
    refused("of types that cannot be read")
    file = io.BytesIO()
    torch.save({"a": torch.zeros(4)}, file)
    packed = zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(path, "w", packed) as new:
        for name in old.namelist():
            is_tensor = name.endswith("data/0")
            new.writestr(name, bytes(2**24) if is_tensor else old.read(name))
    monkeypatch.setattr(files, "UNPACKED_LIMIT", 2**22)
    refused("x.pth unpacks to .* beyond the limit")
    monkeypatch.setitem(sys.modules, "torch", None)
    refused("pip install torch")


# -------------------------------------------------------------- files in general


@pytest.mark.parametrize("form", ["safetensors", "pth", "legacy.pth"])
@pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.99])
def test_truncated_files(tmp_path, form, kept):
    path = tmp_path / f"x.{form}"
    values = np.random.default_rng(0).normal(size=3000).astype(np.float32)
    if form == "safetensors":
        safetensors.numpy.save_file({"a": values}, path)
    else:
        torch = pytest.importorskip("torch")
        state = {"a": torch.from_numpy(values)}
        torch.save(state, path, _use_new_zipfile_serialization=form == "pth")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept)])
    with pytest.raises(ValueError, match="is cut short|begins with b''"):
        weight_files.read(path)


def test_unknown_formats_and_missing_files(tmp_path):
    path = tmp_path / "x.pth"
    path.write_bytes(b"<!DOCTYPE html><html>")
    with pytest.raises(ValueError, match=r"begins with b'.*safetensors and PyTorch"):
        weight_files.read(path)
    with pytest.raises(
        FileNotFoundError, match="no .*none.pth.*encoder.weights=random"
    ):
        weight_files.read(tmp_path / "none.pth")


def test_what_is_written_is_read_and_not_written_over(tmp_path):
    tensors = {
        "turned": np.arange(6, dtype=np.float16).reshape(2, 3).T,  # not as it lies
        "count": np.array(3),
    }
    said = {"source": "elsewhere", "sha256": "0" * 64}
    path = tmp_path / "new" / "x.safetensors"
    weight_files.write(path, tensors, said)
    found, metadata = weight_files.read(path)
    same(found, tensors)
    assert metadata == said
    with pytest.raises(FileExistsError, match="x.safetensors exists; give another"):
        weight_files.write(path, {"a": np.ones(1)}, said)
    assert [p.name for p in path.parent.iterdir()] == ["x.safetensors"]


# ---------------------------------------------------------- loading and converting


@pytest.fixture(scope="module")
def resnet18():
    """Tensors of torchvision's ResNet-18."""
    classifier = {"fc.weight": np.zeros((1000, 512)), "fc.bias": np.zeros(1000)}
    tensors = random_weights("resnet18").tensors | classifier
    return {name: tensor.astype(np.float16) for name, tensor in tensors.items()}


@pytest.fixture
def file(tmp_path, resnet18):
    path = tmp_path / "net.safetensors"
    safetensors.numpy.save_file(resnet18, path)
    return path


def test_load_a_name(file, tmp_path, monkeypatch):
    asked = []

    def fetch(name, *, cache):
        asked.append(name)
        return file

    monkeypatch.setattr(download, "fetch", fetch)
    monkeypatch.chdir(tmp_path)
    loaded = filling.load("timm/resnet18.tv_in1k")
    assert loaded.metadata["source"] == "Hugging Face hub, timm/resnet18.tv_in1k"
    with pytest.raises(ValueError, match="tv_in1k: .*resnet18.*resnet50"):
        filling.load("timm/resnet18.tv_in1k", architecture="resnet50")
    asked.clear()
    # What is here, or is meant to be, is not asked for.
    (tmp_path / "timm").mkdir()
    shutil.copy(file, tmp_path / "timm" / "resnet18.tv_in1k")
    here = filling.load("timm/resnet18.tv_in1k")
    assert here.metadata["source"] == "resnet18.tv_in1k"
    for source in ("timm/other", "owner/net.safetensors", "owner/net.PTH", "net", "."):
        with pytest.raises((ValueError, OSError), match="no |a folder"):
            filling.load(source)
    assert asked == []


def test_convert_says_what_it_wrote(file, resnet18, tmp_path, capsys):
    target = tmp_path / "new.safetensors"
    assert images.weights(str(file), str(target), preprocessing="caffe_bgr") == 0
    printed = dict(
        line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()
    )
    assert printed == {
        "file": str(target),
        "architecture": "resnet18",
        "stride": "3x3",
        "preprocessing": "caffe_bgr",
        "bn_eps": "1e-5",
        "source": "net.safetensors",
        "licence": "unknown",
        "sha256": files.sha256(file),
        "tensors": "102, 11.7M numbers",
    }
    again = filling.load(str(target))
    assert again.metadata["sha256"] == files.sha256(file)  # of the first file
    assert again.metadata["preprocessing"] == "caffe_bgr"
    same(again.tensors, resnet18)


def test_misuse_of_the_job(file, tmp_path):
    for source, target, message in (
        ("none.pth", "a.safetensors", "there is no file none.pth. Weights can"),
        ("", "a.safetensors", "weights needs --from="),
        (str(file), "a.pth", "ends in .safetensors"),
    ):
        with pytest.raises((ValueError, OSError), match=message):
            filling.convert(source, target)
    assert [p.name for p in tmp_path.iterdir()] == ["net.safetensors"]
