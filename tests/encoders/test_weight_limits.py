"""Files of weights that would fill memory or never end, and tensors without a like."""

import io
import zipfile

import h5py
import numpy as np
import pytest

from cloc_jax.encoders.weights import weight_files
from cloc_jax.runtime import files

MIB = 2**20


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A limit that small files reach."""
    monkeypatch.setenv(files.UNPACKED_LIMIT, str(4 / 1024))


def refused(path):
    with pytest.raises(ValueError, match=rf"{path.name} unpacks to .*or more, beyond"):
        weight_files.read(path)


@pytest.mark.parametrize("side", [2000, 10**6])  # 15 MiB, and 4 TB
def test_hdf5_that_was_never_written(tmp_path, side):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [b"conv1"]
        group = file.create_group("conv1")
        group.attrs["weight_names"] = [b"conv1/kernel:0"]
        chunks = (1000, 1000)
        group.create_dataset("conv1/kernel:0", (side, side), "f4", chunks=chunks)
    refused(path)


def test_torch_archives(tmp_path):
    torch = pytest.importorskip("torch")
    file = io.BytesIO()
    torch.save({"a": torch.zeros(4)}, file)
    path = tmp_path / "x.pth"
    packed = zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(path, "w", packed) as new:
        for name in old.namelist():
            is_tensor = name.endswith("data/0")
            new.writestr(name, bytes(16 * MIB) if is_tensor else old.read(name))
    refused(path)
    one = torch.zeros(1).expand(10**6, 10**6)  # a number, shown 10**12 times
    torch.save({"a": one}, path)
    refused(path)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda torch: torch.eye(3).to_sparse(), id="sparse"),
        pytest.param(lambda torch: torch.empty(3, device="meta"), id="meta"),
        pytest.param(lambda torch: torch.tensor([1 + 2j]).conj(), id="conjugate"),
        pytest.param(lambda torch: torch.ones(3, dtype=torch.float8_e4m3fn), id="f8"),
    ],
)
def test_torch_tensors_that_numpy_does_not_have(tmp_path, make):
    torch = pytest.importorskip("torch")
    path = tmp_path / "x.pth"
    torch.save({"a": make(torch)}, path)
    with pytest.raises(ValueError, match=r"a tensor that cannot be read, a \("):
        weight_files.read(path)


@pytest.mark.parametrize("given", ["0", "-1", "much", "nan", "inf"])
def test_a_limit_that_is_none(monkeypatch, given):
    monkeypatch.setenv(files.UNPACKED_LIMIT, given)
    with pytest.raises(ValueError, match="give a number of GiB above 0"):
        files.unpacked_limit()


def test_arrays_of_images(tmp_path):
    from cloc_jax.data.layouts import official

    path = tmp_path / "retinamnist.npz"

    def write(labels):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for split in official.SPLITS:
                for kind in ("images", "labels"):
                    archive.writestr(f"{split}_{kind}.npy", labels)

    file = io.BytesIO()
    np.save(file, np.zeros(16 * MIB, np.uint8))
    write(file.getvalue())
    with pytest.raises(ValueError, match=r"retinamnist.npz unpacks to .* beyond"):
        official.scan_retinamnist(path)
    # An array that says it has more than there is.
    file = io.BytesIO()
    header = {"descr": "|u1", "fortran_order": False, "shape": (10**15,)}
    np.lib.format.write_array_header_1_0(file, header)
    write(file.getvalue() + bytes(10))
    with pytest.raises(ValueError, match="is not RetinaMNIST as MedMNIST ships it"):
        official.scan_retinamnist(path)
