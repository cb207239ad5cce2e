"""The TFDS builder that writes prepared images as ArrayRecord, without TensorFlow.

One split, `items`, holds every image once in a fixed order, so that folds and carved
splits are lists of indices into it. Records keep the bytes of an image file; labels
stay with the listing.
"""

import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.core import registered

SPLIT = "items"

Example = dict[str, Any]  # "id" (text) and "image" (bytes)
Shard = Callable[[], Iterator[tuple[int, Example]]]


class _Info(tfds.core.DatasetInfo):
    """Description of a dataset that nobody else has published."""

    def initialize_from_bucket(self) -> None:
        """Does not ask the network for statistics, nor leave a folder behind."""


with registered.skip_registration():

    class Images(tfds.core.ShardBasedBuilder):
        """Encoded images, shard by shard.

        Shards and not one generator: a generator would be sorted first, with all of
        its examples in memory.
        """

        VERSION = tfds.core.Version("1.0.0")
        # Where TFDS would look for checksums of downloads, through a package that it
        # imports but does not install.
        code_path = None

        def __init__(self, shards: Sequence[Shard], **options: Any):
            self._shards = shards
            super().__init__(**options)

        def _info(self) -> tfds.core.DatasetInfo:
            features = tfds.features.FeaturesDict(
                {
                    "id": tfds.features.Text(),
                    "image": tfds.features.Tensor(shape=(), dtype=np.object_),
                }
            )
            return _Info(builder=self, features=features, disable_shuffling=True)

        def _shard_iterators_per_split(
            self, dl_manager: Any
        ) -> Mapping[str, Sequence[Shard]]:
            return {SPLIT: self._shards}

        # TFDS prints of downloads, which there are none of.
        def _log_download_bytes(self) -> None: ...
        def _log_download_done(self) -> None: ...


def write(folder: pathlib.Path, shards: Sequence[Shard]) -> None:
    """Writes shards below a folder."""
    images = Images(shards, data_dir=str(folder), file_format="array_record")
    images.download_and_prepare(
        download_config=tfds.download.DownloadConfig(try_download_gcs=False)
    )


def read(folder: pathlib.Path) -> Sequence[Example]:
    """Random access to what `write` wrote; can be pickled and shared by threads."""
    (version,) = (folder / Images.name).iterdir()
    images = tfds.builder_from_directory(version)
    if not images.info.splits[SPLIT].num_examples:
        return []
    return images.as_data_source(split=SPLIT)
