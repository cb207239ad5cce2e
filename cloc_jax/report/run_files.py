"""What the report reads from a run's folder, besides its scores."""

import base64
import io
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from PIL import Image

from cloc_jax.runtime import files
from cloc_jax.runtime.files import Damaged
from cloc_jax.runtime.run_folder import RunFolder, flatten
from cloc_jax.scoring import metrics, predictions
from cloc_jax.scoring.decisions import Decision
from cloc_jax.scoring.predictions import Predictions

MIME = {".png": "image/png", ".jpg": "image/jpeg"}


def picture(path: pathlib.Path) -> dict[str, Any] | None:
    """The picture as a data URI, and its width in CSS pixels (96 an inch)."""
    if not path.is_file():
        return None
    content = path.read_bytes()
    try:
        with Image.open(io.BytesIO(content)) as image:
            image.verify()
            width = image.width * 96 / image.info.get("dpi", (96, 96))[0]
    except Exception as error:  # Pillow has many for a file that is damaged
        raise Damaged(
            path,
            f"it is no picture ({error})",
            f"`launch.py evaluate --run={path.parent}` draws it again.",
        ) from None
    data = base64.b64encode(content).decode()
    return {"uri": f"data:{MIME[path.suffix]};base64,{data}", "width": round(width)}


def nearest(run: pathlib.Path, ranks: Sequence[str]) -> list[dict[str, Any]]:
    """Pictures of the images nearest boundaries, with their names."""
    pictures = [
        {"boundary": name, "picture": picture(run / f"nearest_{h}.jpg")}
        for h, name in enumerate(metrics.boundary_names(ranks))
    ]
    return [found for found in pictures if found["picture"]]


def _read_json(path: pathlib.Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    return files.read_sealed(path, remedy="Move it away, or repeat the study.")


def study(run: pathlib.Path, name: str, drawing: str) -> dict[str, Any] | None:
    """A study of several runs: from the run's folder or from the one it is in."""
    for folder in (run, run.resolve().parent):
        found = _read_json(folder / name)
        if found is not None:
            return found | {"picture": picture(folder / drawing)}
    return None


def read_predictions(
    run: pathlib.Path, scores: Mapping[str, Any]
) -> dict[str, Predictions]:
    """Predictions by split; none where there is no list of them."""
    try:
        return predictions.read_of_run(run, scores)
    except FileNotFoundError:
        return {}


def decision(run: pathlib.Path, ranks: Sequence[str]) -> Decision | None:
    """The saved decision, if there is one."""
    return Decision.read(RunFolder(run).decision, ranks)


def config_tables(run: pathlib.Path) -> dict[str, list[tuple[str, str]]]:
    """The config by its top-level groups, as (dotted name, value) rows."""
    if not RunFolder(run).config.is_file():
        return {}
    config = RunFolder(run).read_config()
    tables: dict[str, list[tuple[str, str]]] = {}
    for name, value in config.items():
        group = name if isinstance(value, dict) else "general"
        tables.setdefault(group, []).extend(
            (field, text if isinstance(text, str) else json.dumps(text))
            for field, text in flatten({name: value}).items()
        )
    return tables
