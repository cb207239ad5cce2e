"""A model that was handed over: the folder that `launch.py export` writes, in use.

Nothing that trains or builds networks is imported: the network is in the folder, as a
program. What the folder holds:

README.md             the model card
model.jax             the program, for cpu, cuda and tpu and any number of images
model.safetensors     its weights
support.safetensors   what some methods need besides, such as a bank of neighbours
model.json            ranks, method, temperature, how images go through the program
preprocessing.json    how an image becomes the program's input
decision.json         how grades are chosen, where `launch.py decide` wrote one
config.json           the configuration of the run
SHA256SUMS            checksums of all of these except the card
"""

import json
import pathlib
import shutil
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
from huggingface_hub import ModelHubMixin, snapshot_download
from jax import export
from safetensors.numpy import load_file

from cloc_jax.data.images import NetworkInput
from cloc_jax.runtime import files
from cloc_jax.scoring import decisions
from cloc_jax.scoring.decisions import Decision

CARD = "README.md"
PROGRAM, WEIGHTS, SUPPORT = "model.jax", "model.safetensors", "support.safetensors"
ABOUT, PREPROCESSING, DECISION = "model.json", "preprocessing.json", "decision.json"
CONFIG, SUMS = "config.json", "SHA256SUMS"
FORMAT = 1  # of the folder; another number means another reader

Image = str | pathlib.Path | np.ndarray
_SAID = ("label", "value", "above", "probabilities")


def load(folder: str | pathlib.Path) -> "ExportedModel":
    """The model in a folder that `launch.py export` wrote; call it with images."""
    return ExportedModel(folder)


class ExportedModel(ModelHubMixin, library_name="cloc_jax"):
    """An exported model; calling it grades images as `launch.py predict` does.

    It can be sent to a hub and taken from there: `push_to_hub`, `from_pretrained`.

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
        prepared = [
            self._input.of_array(image)
            if isinstance(image, np.ndarray)
            else self._input.of_file(image)
            for image in _as_list(images)
        ]
        found = [
            jax.device_get(self._program(*self._arrays, rows))
            for rows in self._batches(prepared)
        ]
        said = {
            name: np.concatenate([part[name] for part in found])[: len(prepared)]
            for name in self.about["outputs"]
        }
        prediction = SimpleNamespace(**dict.fromkeys(_SAID) | said)
        return decisions.grade(prediction, self.ranks, self.decision)

    def calibrated(self, probabilities: np.ndarray) -> np.ndarray:
        """Probabilities [item, rank] brought to the temperature of validation data."""
        if self.temperature is None:
            raise ValueError("no temperature is known: the run had no probabilities.")
        return decisions.apply_temperature(probabilities, self.temperature)

    def _batches(self, prepared: list[np.ndarray]) -> Iterator[np.ndarray]:
        """Images in batches as large as each device had in the run.

        A matrix product may round otherwise in a batch of another size; with the same
        sizes results are the same to the bit.
        """
        batch = self.about["batch"]
        chunk = min(batch["images"], len(prepared))
        rows = -(-chunk // batch["devices"])
        for first in range(0, len(prepared), chunk):
            some = prepared[first : first + chunk]
            for start in range(0, len(some), rows):
                part = some[start : start + rows]
                yield np.stack([*part, *[part[-1]] * (rows - len(part))])

    def _read(self, name: str) -> dict[str, Any]:
        return json.loads((self.folder / name).read_text())

    def _save_pretrained(self, save_directory: pathlib.Path) -> None:
        """Copies the folder: all that the checksums name, and the card."""
        for name in [*read_sums(self.folder), SUMS, CARD]:
            shutil.copyfile(self.folder / name, save_directory / name)

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **options: Any) -> "ExportedModel":
        """The model in a folder, or in a repository on the hub, which is downloaded."""
        if pathlib.Path(model_id).is_dir():
            return cls(model_id)
        return cls(snapshot_download(model_id, **options))


def check(folder: pathlib.Path) -> None:
    """ValueError where a file is not what `write_sums` saw, or is missing."""
    if not folder.is_dir() or not (folder / SUMS).is_file():
        raise FileNotFoundError(
            f"{folder} holds no exported model: there is no {SUMS} in it. "
            "`python launch.py export --run=DIR --to=OUT` makes one."
        )
    sums = read_sums(folder)
    needed = {PROGRAM, WEIGHTS, ABOUT, PREPROCESSING}
    optional = {name for name in (SUPPORT, DECISION) if (folder / name).is_file()}
    names = sorted(needed | optional | set(sums))
    missing = [name for name in names if not (folder / name).is_file()]
    changed = [
        name
        for name in names
        if name not in missing and files.sha256(folder / name) != sums.get(name)
    ]
    if missing or changed:
        what = [f"{name} is missing" for name in missing]
        what += [f"{name} is not as it was exported" for name in changed]
        raise ValueError(
            f"{folder} is damaged: {', '.join(what)}. Copy or download it again, or "
            "export the run again."
        )


def write_sums(folder: pathlib.Path) -> None:
    """Writes the checksums, in the format of sha256sum; people may edit the card."""
    names = sorted(p.name for p in folder.iterdir() if p.name not in (SUMS, CARD))
    lines = [f"{files.sha256(folder / name)}  {name}\n" for name in names]
    (folder / SUMS).write_text("".join(lines))


def read_sums(folder: pathlib.Path) -> dict[str, str]:
    """Checksums by file name."""
    found = {}
    for line in (folder / SUMS).read_text().splitlines():
        known, _, name = line.partition("  ")
        if not name or pathlib.PurePath(name).name != name:
            raise ValueError(f"{folder / SUMS} is damaged: it has the line {line!r}.")
        found[name] = known
    return found


def _as_list(images: Any) -> list[Image]:
    if isinstance(images, str | pathlib.Path):
        return [images]
    if isinstance(images, np.ndarray) and images.ndim < 4 and images.dtype != object:
        return [images] if images.dtype.kind not in "US" else [str(i) for i in images]
    found = list(images)
    if not found:
        raise ValueError("no images came; give a path, an array, or a list of them.")
    return found
