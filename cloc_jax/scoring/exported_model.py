"""A model that was handed over: the folder that `launch.py export` writes, in use.

Nothing that trains or builds networks is imported: the network is in the folder, as a
program (docs/runs.md says what each file is).
"""

import json
import pathlib
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
from jax import export
from safetensors.numpy import load_file

from cloc_jax.data.images import NetworkInput
from cloc_jax.runtime import files
from cloc_jax.scoring import decisions, predictions
from cloc_jax.scoring.decisions import Decision

CARD = "README.md"
PROGRAM, WEIGHTS, SUPPORT = "model.jax", "model.safetensors", "support.safetensors"
ABOUT, PREPROCESSING, DECISION = "model.json", "preprocessing.json", "decision.json"
CONFIG = "config.json"
FORMAT = 1  # of the folder; another number means another reader

Image = str | pathlib.Path | np.ndarray
_FIELDS = ("label", "value", "above", "probabilities")


def load(folder: str | pathlib.Path) -> "ExportedModel":
    """The model in a folder that `launch.py export` wrote; call it with images."""
    return ExportedModel(folder)


class ExportedModel:
    """An exported model; calling it grades images as `launch.py predict` does.

    Attributes:
      ranks: their names, lowest first.
      temperature: of the probabilities, fitted on validation data; None where unknown.
      decision: how grades are chosen; None for the most likely one.
      about: what else model.json says.
    """

    def __init__(self, folder: str | pathlib.Path):
        self.folder = pathlib.Path(folder)
        check(self.folder)
        self.about = self._read(ABOUT)
        if self.about["format"] != FORMAT:
            raise ValueError(
                f"{self.folder} has format {self.about['format']}, this version of "
                f"cloc_jax reads {FORMAT}; install cloc_jax {self.about['version']}."
            )
        self.ranks: list[str] = self.about["ranks"]
        self.temperature: float | None = self.about["temperature"]
        fields = self._read(PREPROCESSING)["image"]
        for name in ("size", "crop"):
            fields[name] = tuple(fields[name]) if fields[name] else None
        self._input = NetworkInput(**fields)
        self.decision = Decision.read(self.folder / DECISION, self.ranks)
        exported = export.deserialize(bytearray((self.folder / PROGRAM).read_bytes()))
        support = self.folder / SUPPORT
        arrays = (
            load_file(self.folder / WEIGHTS),
            load_file(support) if support.exists() else {},
        )
        self._arrays = jax.device_put(arrays)
        self._program = jax.jit(exported.call)  # compiled once for each batch size

    def __call__(self, images: Image | Sequence[Image]) -> decisions.Grades:
        """The grades of images.

        Args:
          images: paths, or uint8 arrays [height, width] or [height, width, channels];
            one of them, a list, or an array [image, height, width, channels].
        """
        given = _as_list(images)
        prepared = [self._input.of(image) for image in given]
        parts = [
            jax.device_get(self._program(*self._arrays, rows))
            for rows in self._batches(prepared)
        ]
        outputs = {
            name: np.concatenate([part[name] for part in parts])[: len(prepared)]
            for name in self.about["outputs"]
        }
        predictions.check_finite(
            outputs.values(),
            [
                f"image {i}" if isinstance(image, np.ndarray) else str(image)
                for i, image in enumerate(given)
            ],
            f"the model {self.folder}",
            "The run that it was exported from diverged in training, or its weights "
            "were changed: export another run.",
        )
        prediction = SimpleNamespace(**dict.fromkeys(_FIELDS) | outputs)
        return decisions.grade(prediction, self.ranks, self.decision)

    def _batches(self, prepared: list[np.ndarray]) -> Iterator[np.ndarray]:
        """Images in batches as large as each device had in the run.

        A matrix product may round otherwise in a batch of another size; with the same
        sizes results are the same to the bit.
        """
        batch = self.about["batch"]
        rows = -(-min(batch["images"], len(prepared)) // batch["devices"])
        for start in range(0, len(prepared), rows):
            part = prepared[start : start + rows]
            yield np.stack([*part, *[part[-1]] * (rows - len(part))])

    def _read(self, name: str) -> dict[str, Any]:
        return json.loads((self.folder / name).read_text())


def check(folder: pathlib.Path) -> None:
    """ValueError where a file is not what `export` wrote, or is missing."""
    remedy = (
        "`launch.py export --run=DIR --to=OUT` writes an exported model; copy or "
        "download all of its folder again."
    )
    files.check_folder(folder, remedy=remedy)


def _as_list(images: Any) -> list[Image]:
    is_one = isinstance(images, np.ndarray) and images.ndim < 4
    listed = [images] if is_one or isinstance(images, str | pathlib.Path) else images
    if not len(listed):
        raise ValueError("no images came; give a path, an array, or a list of them.")
    return list(listed)
