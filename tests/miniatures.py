"""A miniature of every official layout, with the odd cases of the real ones."""

import pathlib
import struct
import zlib

import numpy as np
from PIL import Image

from cloc_jax.data import images
from cloc_jax.data.layouts import official

ADIENCE_HEADER = (
    "user_id\toriginal_image\tface_id\tage\tgender\tx\ty\tdx\tdy\ttilt_ang\t"
    "fiducial_yaw_angle\tfiducial_score"
)
AGES = list(official.AGES)


def picture(path: pathlib.Path, number: int = 0, size=(12, 10), mode="RGB") -> None:
    """A small image with its own noise; `number` makes it unlike the others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(number)
    shape = size if mode == "L" else (*size, len(mode))
    Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)).save(path)


def read(path: pathlib.Path, *, channels: int, **limits) -> np.ndarray:
    """The pixels of an image file."""
    data = images.read_bytes(path)
    return images.NetworkInput((1, 1), channels, **limits).decode(data, str(path))


def write(path: pathlib.Path, text: str, **options) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, **options)


def koa(root: pathlib.Path) -> pathlib.Path:
    """Root to give; patients have two knees, and auto_test is there too."""
    root = root / "KneeXrayData" / "ClsKLData" / "kneeKL224"
    number = 9000000
    for split, count in (("train", 6), ("val", 2), ("test", 2), ("auto_test", 1)):
        for grade in range(5):
            for _ in range(count):
                number += 1
                for side in "LR":
                    name = f"{number}{side}.png"
                    picture(root / split / str(grade) / name, number, mode="L")
    return root


def bracs(root: pathlib.Path) -> pathlib.Path:
    root = root / "BRACS_RoI" / "latest_version"
    slide = 260
    names = ("0_N", "1_PB", "2_UDH", "3_FEA", "4_ADH", "5_DCIS", "6_IC")
    for split, count in (("train", 3), ("val", 1), ("test", 1)):
        for name in names:
            for _ in range(count):
                slide += 1
                for region in (1, 2):
                    file = f"BRACS_{slide}_{name[2:]}_{region}.png"
                    size = (40 + slide % 30, 90) if region == 1 else (12, 10)
                    picture(root / split / name / file, slide * 2 + region, size)
    write(root / "train" / "0_N" / "wget-log", "not an image")
    return root


def hid(root: pathlib.Path, each: int = 56) -> pathlib.Path:
    """With a file that is no image and one that is only called so."""
    root = root / "HistoricalColor-ECCV2012" / "data" / "imgs" / "decade_database"
    for decade in range(1930, 1980, 10):
        for i in range(each):
            name = f"{(i * 7919) % 1000:03d}_by someone.jpg"
            picture(root / f"{decade}s" / name, decade + i)
    write(root / "1930s" / "Thumbs.db", "x")
    write(root / "1950s" / "zz_damaged.jpg", "<html>photo unavailable</html>")
    return root


def idrid(root: pathlib.Path) -> pathlib.Path:
    """Blank columns and rows, blanks around values, names that restart."""
    root = root / "B. Disease Grading"
    images, labels = root / "1. Original Images", root / "2. Groundtruths"
    sets = (
        ("a. Training Set", "a. IDRiD_Disease Grading_Training Labels.csv", 20),
        ("b. Testing Set", "b. IDRiD_Disease Grading_Testing Labels.csv", 10),
    )
    for offset, (folder, table, count) in enumerate(sets):
        lines = ["Image name,Retinopathy grade,Risk of macular edema ,,,,"]
        for i in range(1, count + 1):
            picture(images / folder / f"IDRiD_{i:03d}.jpg", 100 * offset + i, (40, 60))
            lines.append(f"IDRiD_{i:03d} , {i % 5},0,,,,")
        lines += [",,,,,,", ""]
        write(labels / table, "\r\n".join(lines))
    write(images / "a. Training Set" / "desktop.ini", "x")
    return root


def adience(root: pathlib.Path) -> pathlib.Path:
    """Five folds of three users each; odd ages, a face that is named twice."""
    root = root / "AdienceBenchmark"
    face = 0
    odd = ["35", "(38, 42)", "None", "(8, 23)", ""]
    for fold in range(5):
        rows = []
        for user in range(3):
            user_id = f"{10000000 + 10 * fold + user}@N0{user}"
            for i, age in enumerate([*AGES, odd[fold]]):
                face += 1
                image = f"{1000 + face}_{fold}{user}_o.jpg"
                row = f"{user_id}\t{image}\t{face}\t{age}\tm\t0\t0\t9\t9\t0\t0\t1"
                rows.append(row)
                name = f"landmark_aligned_face.{face}.{image}"
                picture(root / "aligned" / user_id / name, face, (30, 30))
                other = root / "aligned" / user_id / f"coarse_tilt_aligned_face.{image}"
                if not i:
                    picture(other, face)
        rows.append(rows[0])  # named twice
        text = "\n".join([ADIENCE_HEADER, *rows, ""])
        write(root / f"fold_{fold}_data.txt", text)
    return root


def clap2015(root: pathlib.Path) -> pathlib.Path:
    root = root / "clap"
    ages = {"train": [3, 4, 5, 8, 8, 9, 20, 21, 40, 41], "val": [3, 9], "test": [5, 40]}
    number = 0
    for split, some in ages.items():
        lines = []
        for age in some:
            number += 1
            name = f"image_{number}.jpg"
            picture(root / split / name, number, (50, 40))
            lines.append(f"{name};{age};{1 + age / 10}\n")
        write(root / f"{split}.csv", "".join(lines))
    return root


def retinamnist(root: pathlib.Path) -> pathlib.Path:
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    arrays = {}
    for split, count in (("train", 20), ("val", 5), ("test", 10)):
        arrays[f"{split}_images"] = rng.integers(0, 256, (count, 28, 28, 3), np.uint8)
        arrays[f"{split}_labels"] = np.arange(count, dtype=np.uint8)[:, None] % 5
    np.savez(root / "retinamnist.npz", **arrays)
    return root / "retinamnist.npz"


def folder(root: pathlib.Path, counts=(9, 8, 7)) -> pathlib.Path:
    for rank, count in enumerate(counts):
        for i in range(count):
            picture(root / str(rank) / f"{i:02d}.png", 100 * rank + i)
    return root


MINIATURES = {
    "koa": koa,
    "idrid": idrid,
    "adience": adience,
    "hid": hid,
    "bracs": bracs,
    "clap2015": clap2015,
    "retinamnist": retinamnist,
    "folder": folder,
}


def bomb() -> bytes:
    """A PNG of a few bytes that promises 400 million pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", 20000, 20000, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(1000)))
        + chunk(b"IEND", b"")
    )
