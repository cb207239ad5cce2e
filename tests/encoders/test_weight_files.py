"""Every format of weights, in files that the tests write themselves."""

import importlib.util
import os
import pickle
import subprocess
import sys
import zipfile

import h5py
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from cloc_jax.encoders.weights import filling, weight_files
from cloc_jax.runtime import files

KERAS = {
    "conv1/kernel": np.arange(54, dtype=np.float32).reshape(3, 3, 3, 2),
    "conv1/bias": np.array([1, 2], np.float32),
    "bn_conv1/gamma": np.array([3, 4], np.float32),
    "bn_conv1/beta": np.array([5, 6], np.float32),
    "bn_conv1/moving_mean": np.array([7, 8], np.float32),
    "bn_conv1/moving_variance": np.array([9, 10], np.float32),
}


def same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert found[name].dtype == tensor.dtype, name
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)


# ------------------------------------------------------------------ safetensors


def test_safetensors_keeps_types_and_metadata(tmp_path):
    tensors = {
        "half": np.array([1, 2.5], np.float16),
        "single": np.ones((2, 3), np.float32),
        "brain": np.array([1, -3], ml_dtypes.bfloat16),
        "count": np.array(7),
    }
    path = tmp_path / "x.safetensors"
    safetensors.numpy.save_file(tensors, path, metadata={"format": "pt", "a": "b"})
    raw = weight_files.read(path)
    same(raw.tensors, tensors | {"brain": np.array([1, -3], np.float32)})
    assert raw.metadata == {
        "format": "safetensors",
        "a": "b",
        "source": "x.safetensors",
        "sha256": files.sha256(path),
    }


def test_a_converted_file_keeps_where_it_came_from(tmp_path):
    path = tmp_path / "x.safetensors"
    origin = {"source": "elsewhere", "sha256": "0" * 64}
    weight_files.write(path, {"a": np.ones(1)}, origin)
    assert weight_files.read(path).metadata == origin | {"format": "safetensors"}


# ------------------------------------------------------------------------ torch


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("nest", [None, "state_dict", "model"])
def test_torch_state_dicts(tmp_path, torch, is_zip, nest):
    state = {
        "module.a.weight": torch.nn.Parameter(torch.arange(6.0).reshape(2, 3)),
        "module.a.bias": torch.tensor([1.5, 2]).to(torch.bfloat16),
        "module.half": torch.ones(2, dtype=torch.float16),
        "module.count": torch.tensor(3),
    }
    saved = {nest: state, "epoch": 3} if nest else state
    path = tmp_path / "x.pth"
    torch.save(saved, path, _use_new_zipfile_serialization=is_zip)
    raw = weight_files.read(path)
    wanted = {
        "a.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
        "a.bias": np.array([1.5, 2], np.float32),
        "half": np.ones(2, np.float16),
        "count": np.array(3),
    }
    same(raw.tensors, wanted)
    assert raw.metadata["format"] == "torch"
    assert raw.metadata["sha256"] == files.sha256(path)


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


def test_without_torch_says_what_to_install(tmp_path, torch, monkeypatch):
    torch.save({"a": torch.ones(1)}, tmp_path / "x.pth")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ValueError, match="pip install torch"):
        weight_files.read(tmp_path / "x.pth")


def test_a_file_without_tensors(tmp_path, torch):
    torch.save({"epoch": 3}, tmp_path / "x.pth")
    with pytest.raises(ValueError, match="holds no tensors"):
        weight_files.read(tmp_path / "x.pth")


# ------------------------------------------------------------------------ Keras


def write_named(path, tensors, spell=lambda layer, variable: f"{layer}/{variable}:0"):
    """As Keras 1 and 2 write weights: names in attributes, one group per layer."""
    layers = {}
    for name in tensors:
        layer, variable = name.rsplit("/", 1)
        layers.setdefault(layer, []).append(variable)
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [b"input_1", *(layer.encode() for layer in layers)]
        file.create_group("input_1").attrs["weight_names"] = []
        for layer, variables in layers.items():
            group = file.create_group(layer)
            names = [spell(layer, variable) for variable in variables]
            # Long lists are cut into parts.
            group.attrs["weight_names0"] = [name.encode() for name in names[:1]]
            group.attrs["weight_names1"] = [name.encode() for name in names[1:]]
            for name, variable in zip(names, variables, strict=True):
                group[name] = tensors[f"{layer}/{variable}"]


def write_numbered(path, layers, *, named):
    """As save_weights writes: layers are (kind and count, name, arrays)."""
    with h5py.File(path, "w") as file:
        file.create_group("vars").attrs["name"] = "model"
        file.create_group("layers/activation/vars").attrs["name"] = "relu"
        file["optimizer/vars/0"] = np.array(5)
        for kind, name, arrays in layers:
            group = file.create_group(f"layers/{kind}/vars")
            if named:
                group.attrs["name"] = name
            for number, array in enumerate(arrays):
                group[str(number)] = array


def test_keras_h5(tmp_path):
    path = tmp_path / "x.h5"
    write_named(path, KERAS)
    raw = weight_files.read(path)
    same(raw.tensors, KERAS)
    assert raw.metadata["format"] == "keras h5"


def test_keras_h5_of_a_whole_model_and_of_layers_with_slashes(tmp_path):
    tensors = {"conv1/conv/kernel": np.ones((1, 1, 3, 2), np.float32)}
    write_named(tmp_path / "weights.h5", tensors)
    with (
        h5py.File(tmp_path / "weights.h5") as weights,
        h5py.File(tmp_path / "x.h5", "w") as whole,
    ):
        weights.copy(weights, whole, "model_weights")
    same(weight_files.read(tmp_path / "x.h5").tensors, tensors)


def test_keras_3_names_its_layers(tmp_path):
    arrays = list(KERAS.values())
    layers = [
        ("conv2d_4", "conv1", arrays[:2]),
        ("batch_normalization", "bn_conv1", arrays[2:]),
    ]
    path = tmp_path / "x.weights.h5"
    write_numbered(path, layers, named=True)
    raw = weight_files.read(path)
    same(raw.tensors, KERAS)
    assert raw.metadata["format"] == "keras weights.h5"


def test_keras_bfloat16(tmp_path):
    value = np.array([[1, -2.5]], ml_dtypes.bfloat16)
    with h5py.File(tmp_path / "x.weights.h5", "w") as file:
        group = file.create_group("layers/dense/vars")
        group.attrs["name"] = "fc"
        group.create_dataset("0", data=value.view("V2")).attrs["dtype"] = "bfloat16"
    raw = weight_files.read(tmp_path / "x.weights.h5")
    same(raw.tensors, {"fc/kernel": value.astype(np.float32)})


def test_keras_files_that_cannot_be_read(tmp_path):
    path = tmp_path / "x.weights.h5"

    def fails(message, layers, named):
        write_numbered(path, layers, named=named)
        with pytest.raises(ValueError, match=message):
            weight_files.read(path)

    one = np.ones(1, np.float32)
    fails("does not name its layers", [("conv2d", "a", [one])], False)
    fails("of kind embedding", [("embedding", "a", [one])], True)
    fails(
        "3 variables in layers/batch_normalization",
        [("batch_normalization", "a", [one] * 3)],
        True,
    )
    twice = [("conv2d", "a", [one]), ("conv2d_1", "a", [one])]
    fails("two layers with one name", twice, True)
    fails("has no weights", [], True)


def test_hdf5_does_not_read_other_files(tmp_path):
    write_named(tmp_path / "other.h5", {"a/kernel": np.ones(1, np.float32)})
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.attrs["layer_names"] = [b"a"]
        file.create_group("a").attrs["weight_names"] = [b"a/kernel:0"]
        file["a/a/kernel:0"] = h5py.ExternalLink("other.h5", "/a/a/kernel:0")
    with pytest.raises(ValueError, match="points at another file"):
        weight_files.read(tmp_path / "x.h5")


KERAS_SCRIPT = """
import h5py, keras
from keras.src.legacy.saving import legacy_h5_format

for name in ("ResNet50", "DenseNet121"):  # VGG16 has half a gigabyte
    options = {"input_shape": (32, 32, 3), "weights": None}
    model = getattr(keras.applications, name)(**options)
    model.save_weights(name + ".weights.h5")
    model.save(name + ".h5")
    with h5py.File(name + "-legacy.h5", "w") as file:
        legacy_h5_format.save_weights_to_hdf5_group(file, model)
"""


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("keras"), reason="needs Keras")
def test_files_that_keras_wrote(tmp_path):
    subprocess.run(
        [sys.executable, "-c", KERAS_SCRIPT],
        cwd=tmp_path,
        env=os.environ | {"KERAS_BACKEND": "jax", "XLA_FLAGS": ""},
        check=True,
    )
    for name in ("ResNet50", "DenseNet121"):
        new = weight_files.read(tmp_path / f"{name}.weights.h5")
        assert filling.canonical(*new).metadata["architecture"] == name.lower()
        for other in (f"{name}.h5", f"{name}-legacy.h5"):
            same(weight_files.read(tmp_path / other).tensors, new.tensors)


# -------------------------------------------------------------- files in general


def test_a_missing_file_says_how_to_get_weights(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        weight_files.read(tmp_path / "none.safetensors")
    for way in (
        "none.safetensors",
        ".pth",
        "timm/resnet50.tv_in1k",
        "encoder.weights=random",
    ):
        assert way in str(caught.value)


@pytest.mark.parametrize("form", ["safetensors", "pth", "legacy.pth", "h5"])
@pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.99])
def test_truncated_files(tmp_path, form, kept):
    path = tmp_path / f"x.{form}"
    values = np.random.default_rng(0).normal(size=3000).astype(np.float32)
    if form == "safetensors":
        safetensors.numpy.save_file({"a": values}, path)
    elif form.endswith("pth"):
        torch = pytest.importorskip("torch")
        state = {"a": torch.from_numpy(values)}
        torch.save(state, path, _use_new_zipfile_serialization=form == "pth")
    else:
        write_named(path, {"a/kernel": values})
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept)])
    message = "is cut short or damaged" if kept else "is empty; get it again"
    with pytest.raises(ValueError, match=message):
        weight_files.read(path)


@pytest.mark.parametrize("name", ["x.bin", "x.h5", "x"])
@pytest.mark.parametrize("content", [b"<!DOCTYPE html><html>", b"version https://git"])
def test_unknown_formats(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=r"begins with b'.*safetensors, PyTorch"):
        weight_files.read(tmp_path / name)


def test_a_format_is_known_by_its_content(tmp_path):
    tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3)}
    safetensors.numpy.save_file(tensors, tmp_path / "x.bin")
    same(weight_files.read(tmp_path / "x.bin").tensors, tensors)


def test_a_whole_keras_model_says_what_to_save(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.keras", "w") as archive:
        archive.writestr("model.weights.h5", b"")
    with pytest.raises(ValueError, match="save_weights"):
        weight_files.read(tmp_path / "x.keras")


# ---------------------------------------------------------------------- writing


def weights(**tensors):
    return filling.Weights(tensors, {"architecture": "x", "licence": "y"})


def test_what_is_written_is_read(tmp_path):
    given = weights(
        turned=np.arange(6, dtype=np.float16).reshape(2, 3).T,  # not as it lies
        count=np.array(3),
    )
    path = tmp_path / "new" / "x.safetensors"
    weight_files.write(path, *given)
    raw = weight_files.read(path)
    same(raw.tensors, given.tensors)
    assert raw.metadata["licence"] == "y"
    assert [p.name for p in path.parent.iterdir()] == ["x.safetensors"]


def test_nothing_is_written_over(tmp_path):
    path = tmp_path / "x.safetensors"
    weight_files.write(path, *weights(a=np.ones(2, np.float32)))
    before = path.read_bytes(), path.stat().st_mtime_ns
    weight_files.write(path, *weights(a=np.ones(2, np.float32)))
    for other in (
        weights(a=np.zeros(2, np.float32)),
        weights(a=np.ones(2, np.float16)),
        weights(b=np.ones(2, np.float32)),
        filling.Weights({"a": np.ones(2, np.float32)}, {"architecture": "z"}),
    ):
        with pytest.raises(FileExistsError, match="exists and holds something else"):
            weight_files.write(path, *other)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    path.write_text("no weights at all")
    with pytest.raises(FileExistsError):
        weight_files.write(path, *weights(a=np.ones(2, np.float32)))


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(ValueError, match="cannot be written .No space left"):
        weight_files.write(tmp_path / "x.safetensors", *weights(a=np.ones(1)))
    assert list(tmp_path.iterdir()) == []
