"""Loading weights from wherever they are, and the job that converts them."""

import functools
import shutil

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from launching import launch, launched
from references import random_weights

from cloc_jax.encoders.weights import download, filling
from cloc_jax.runtime import files


@functools.cache
def weights_of_resnet18():
    classifier = {"fc.weight": np.zeros((1000, 512)), "fc.bias": np.zeros(1000)}
    tensors = random_weights("resnet18").tensors | classifier
    return {name: tensor.astype(np.float16) for name, tensor in tensors.items()}


def resnet18():
    """Tensors of torchvision's ResNet-18."""
    return dict(weights_of_resnet18())


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "net.safetensors"
    safetensors.numpy.save_file(resnet18(), path)
    return path


def test_load_a_file(file):
    loaded = filling.load(str(file), architecture="resnet18")
    assert loaded.tensors.keys() == resnet18().keys()
    assert loaded.metadata["architecture"] == "resnet18"
    assert loaded.metadata["source"] == "net.safetensors"
    assert loaded.metadata["sha256"] == files.sha256(file)
    with pytest.raises(ValueError, match="net.safetensors: .*resnet18.*resnet50"):
        filling.load(str(file), architecture="resnet50")


def test_load_a_name(file, tmp_path, monkeypatch):
    asked = []

    def fetch(name, *, cache):
        asked.append((name, cache))
        return file

    monkeypatch.setattr(download, "fetch", fetch)
    monkeypatch.chdir(tmp_path)
    loaded = filling.load("timm/resnet18.tv_in1k", cache=tmp_path)
    assert loaded.metadata["source"] == "Hugging Face hub, timm/resnet18.tv_in1k"
    assert asked == [("timm/resnet18.tv_in1k", tmp_path)]
    # What is here, or is meant to be, is not asked for.
    (tmp_path / "timm").mkdir()
    shutil.copy(file, tmp_path / "timm" / "resnet18.tv_in1k")
    here = filling.load("timm/resnet18.tv_in1k", cache=tmp_path)
    assert here.metadata["source"] == "resnet18.tv_in1k"
    for source in ("timm/other", "owner/net.safetensors", "owner/net.PTH", "net", "."):
        with pytest.raises((ValueError, OSError), match="no |is a folder"):
            filling.load(source, cache=tmp_path)
    with pytest.raises(ValueError, match="no weights were given.*timm/"):
        filling.load("", cache=tmp_path)
    assert len(asked) == 1


def test_convert_says_what_it_wrote(file, tmp_path, capsys):
    target = tmp_path / "new.safetensors"
    filling.convert(str(file), str(target))
    printed = dict(
        line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()
    )
    assert printed == {
        "file": str(target),
        "architecture": "resnet18",
        "stride": "3x3",
        "preprocessing": "imagenet_rgb",
        "bn_eps": "1e-5",
        "source": "net.safetensors",
        "licence": "unknown",
        "sha256": files.sha256(file),
        "tensors": "102, 11.7M numbers",
    }
    again = filling.load(str(target))
    assert again.metadata["sha256"] == files.sha256(file)  # of the first file
    for name, tensor in resnet18().items():
        assert again.tensors[name].dtype == np.float16
        np.testing.assert_array_equal(again.tensors[name], tensor)
    filling.convert(str(file), str(target))  # the same once more does no harm


def test_preprocessing_can_be_said(file, tmp_path):
    target = tmp_path / "new.safetensors"
    filling.convert(str(file), str(target), preprocessing="caffe_bgr")
    assert filling.load(str(target)).metadata["preprocessing"] == "caffe_bgr"
    with pytest.raises(ValueError, match="sepia"):
        filling.convert(
            str(file), str(tmp_path / "b.safetensors"), preprocessing="sepia"
        )


def test_the_job(file, tmp_path):
    process = launched(
        "weights", f"--from={file}", "--to=new.safetensors", cwd=tmp_path
    )
    assert "architecture   resnet18" in process.stdout
    assert process.stderr == ""
    assert filling.load(str(tmp_path / "new.safetensors")).tensors


def test_misuse_of_the_job(file, tmp_path):
    arguments = ["--from=net.safetensors", "--config.seed=1"]
    process = launch("weights", *arguments, cwd=tmp_path)
    assert process.returncode == 2
    assert process.stderr.startswith("error: weights uses no settings")
    assert len(process.stderr.splitlines()) == 1
    for source, target, message in (
        ("none.pth", "a.safetensors", "there is no none.pth. Weights can"),
        ("", "a.safetensors", "weights needs --from="),
        (str(file), "", "weights needs --from="),
        (str(file), "a.pth", "ends in .safetensors"),
    ):
        with pytest.raises((ValueError, OSError), match=message):
            filling.convert(source, target)
    assert [p.name for p in tmp_path.iterdir()] == ["net.safetensors"]


def spoiled(name, change):
    tensors = resnet18()
    tensors[name] = change(tensors[name].copy())
    return tensors


def with_value(value):
    def change(tensor):
        tensor.flat[5] = value
        return tensor

    return change


@pytest.mark.parametrize(
    "name, change, message",
    [
        ("conv1.weight", with_value(np.nan), "conv1.weight has 1 of 9408 values .*NaN"),
        ("layer4.1.bn2.bias", with_value(np.inf), "layer4.1.bn2.bias has 1 of 512"),
        ("bn1.running_var", with_value(-0.5), "bn1.running_var is a variance.* -0.5"),
        ("conv1.weight", lambda t: t.astype(np.int32), "conv1.weight .*type int32"),
        ("bn1.weight", lambda t: t > 0, "bn1.weight .*type bool"),
        ("conv1.weight", lambda t: t[:32], r"conv1.weight is \(32, 3, 7, 7\), not"),
        ("bn1.bias", lambda t: t[:, None], r"bn1.bias is \(64, 1\), not \(64,\)"),
    ],
)
def test_what_no_network_was_trained_to_is_refused(name, change, message, tmp_path):
    source, target = tmp_path / "bad.safetensors", tmp_path / "new.safetensors"
    safetensors.numpy.save_file(spoiled(name, change), source)
    with pytest.raises(ValueError, match=f"bad.safetensors: these are no.*{message}"):
        filling.convert(str(source), str(target))
    assert not target.exists()
