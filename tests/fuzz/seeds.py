"""Whole inputs of every kind, which `mutations` then damage."""

import csv
import io
import pathlib
from typing import Any

import numpy as np
import references
import safetensors.numpy
from finished_runs import finished_run
from PIL import Image

from cloc_jax.scoring.decisions import Decision

RANKS = ("0", "1", "2")


def images() -> dict[str, bytes]:
    """Image files by name, of every kind and mode that is read."""
    rng = np.random.default_rng(0)
    colour = Image.fromarray(rng.integers(0, 256, (20, 24, 3), np.uint8))
    deep = Image.fromarray(rng.integers(0, 2**16, (20, 24)).astype(np.uint16))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned
    return {
        "colour.png": _image(colour, "PNG"),
        "grey.png": _image(colour.convert("L"), "PNG"),
        "clear.png": _image(colour.convert("RGBA"), "PNG"),
        "palette.png": _image(colour.convert("P"), "PNG", transparency=3),
        "deep.png": _image(deep, "PNG"),
        "photo.jpg": _image(colour, "JPEG", exif=exif),
        "ink.jpg": _image(colour.convert("CMYK"), "JPEG"),
        "slow.jpg": _image(colour, "JPEG", progressive=True),
        "flat.bmp": _image(colour, "BMP"),
        "scan.tif": _image(colour, "TIFF", compression="tiff_lzw"),
        "deep.tif": _image(deep, "TIFF"),
        "web.webp": _image(colour, "WEBP"),
    }


def _image(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def tables() -> dict[str, bytes]:
    """Tables of graded images by name."""
    rows = [["path", "label", "split", "patient"]]
    for i in range(24):
        split = ("train", "train", "val", "test")[i % 4]
        rows.append([f"{i}.png", str(i % 3), split, f"p{i // 2}"])
    found = {}
    for name, separator in (("comma", ","), ("semicolon", ";"), ("tab", "\t")):
        text = io.StringIO(newline="")
        csv.writer(text, delimiter=separator).writerows(rows)
        found[f"{name}.csv"] = text.getvalue().encode()
    text = io.StringIO(newline="")
    remark = ["remark", *(['a remark, with "quotes"'] * 24)]
    quoted = [[*row, remark[i]] for i, row in enumerate(rows)]
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(quoted)
    found["quoted.csv"] = b"\xef\xbb\xbf" + text.getvalue().encode()
    return found


def weights() -> dict[str, bytes]:
    """Files of weights by name, of every format."""
    given = references.few_numbers("resnet18")
    found = {"net.safetensors": safetensors.numpy.save(given, {"licence": "MIT"})}
    try:
        import torch
    except ImportError:
        return found
    state = {name: torch.from_numpy(t) for name, t in given.items()}
    for name, is_zip in (("net.pth", True), ("old.pth", False)):
        file = io.BytesIO()
        torch.save(state, file, _use_new_zipfile_serialization=is_zip)
        found[name] = file.getvalue()
    return found


def write_run(path: pathlib.Path) -> None:
    """The files of a run that are read without its model."""
    from configs import quickstart

    run = finished_run(
        path,
        ranks=RANKS,
        critical=("1|2",),
        count=8,
        splits=("val", "test"),
        method="ce",
        shown=0,
        pictures=(),
        config=quickstart.get_config().to_dict(),
    )
    (path / "stages").mkdir()
    ended = {"epochs": 3, "steps": 9, "stop_rule": "epochs", "seconds": 1.0}
    run.write_stage("fit", ended, {"bank": np.eye(3, dtype=np.float32)})
    decision = Decision(RANKS, temperature=1.0, thresholds={"1|2": 0.3})
    run.write(run.decision, decision.to_json())
