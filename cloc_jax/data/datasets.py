"""Datasets by name: ranks and the splits as random-access sources."""

import hashlib
import inspect
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from cloc_jax.data import (
    carving,
    dataset_notes,
    drawn_knees,
    duplicates,
    expected_counts,
    label_noise,
    splits,
)
from cloc_jax.data.layouts import (
    adience,
    bracs,
    clap2015,
    folder,
    graded_table,
    hid,
    idrid,
    koa,
    retinamnist,
)
from cloc_jax.data.layouts.listing import (
    UNLISTED,
    Item,
    Listing,
    comma,
    count_of,
    skipped_notes,
)
from cloc_jax.data.prepared import record_store, stored_image
from cloc_jax.data.prepared.records import Records
from cloc_jax.data.source import Source
from cloc_jax.runtime import files

Settings = Mapping[str, Any]  # fields of the data section of a configuration


class Dataset(NamedTuple):
    """Graded images, split."""

    ranks: tuple[str, ...]  # names in order
    splits: dict[str, Source]  # "train", "val", "test"; "calibration" if asked for
    notes: list[str]  # what was inferred, for the user to see before training
    details: dict[str, Any] = {}  # what a run records beside that, as plain data


class Layout(NamedTuple):
    """A dataset on disk."""

    scan: Callable[..., Listing]  # its keyword arguments are fields of the settings
    protocol: splits.Protocol = splits.Protocol()
    source: str = ""  # where it comes from


def scan_own(
    root: str | pathlib.Path,
    *,
    csv: str,
    columns: Mapping[str, str],
    order: Sequence[str],
    group_pattern: str,
    max_file_mib: int,
) -> Listing:
    """Anyone's own images: one folder per rank, or graded in a table."""
    how: dict[str, Any] = {"order": order, "group_pattern": group_pattern}
    if csv:
        how["max_bytes"] = max_file_mib * files.MEBIBYTE
        return graded_table.scan(root, csv=csv, columns=columns, **how)
    return folder.scan(root, **how)


_SHIPPED = splits.Protocol()
LAYOUTS = {
    "folder": Layout(scan_own),
    "koa": Layout(koa.scan, _SHIPPED, "https://doi.org/10.17632/56rmx5bjcr.1"),
    "idrid": Layout(idrid.scan, _SHIPPED, "https://idrid.grand-challenge.org"),
    "adience": Layout(
        adience.scan,
        splits.Protocol(folds=adience.FOLDS),
        "https://talhassner.github.io/home/projects/Adience/Adience-data.html",
    ),
    "hid": Layout(
        hid.scan,
        splits.Protocol(folds=5, draw=50),
        "http://graphics.cs.cmu.edu/projects/historicalColor",
    ),
    "bracs": Layout(bracs.scan, _SHIPPED, "https://www.bracs.icar.cnr.it"),
    "clap2015": Layout(
        clap2015.scan, _SHIPPED, "https://chalearnlap.cvc.uab.cat/dataset/18"
    ),
    "retinamnist": Layout(retinamnist.scan, _SHIPPED, "https://medmnist.com"),
}
DATASETS = ("synthetic", *LAYOUTS)
# Fields that only some datasets have, and what they are where unused.
_OWN_FIELDS = {
    "subset": "",
    "bin": 1,
    "landmarks": "",
    "csv": "",
    "order": (),
    "group_pattern": "",
}


def load(
    name: str,
    settings: Settings,
    *,
    prepared: pathlib.Path,
    say: Callable[[str], None] = print,
    track: record_store.Track = record_store.no_track,
) -> Dataset:
    """A dataset with its splits; images are prepared where they are not yet.

    Args:
        name: One of DATASETS.
        settings: Fields of the data section of a configuration.
        prepared: Folder that keeps prepared images.
        say: Told, in a line, what takes time.
        track: Shows the progress of it.
    """
    if name == "synthetic":
        dataset = load_synthetic(**_given(name, load_synthetic, settings))
        changes = _bias(dataset.splits, dataset.ranks, settings)
        notes = dataset.notes + dataset_notes.on_bias(changes)
        return dataset._replace(notes=notes, details={"biased": changes})
    return _load(name, scan(name, settings), settings, prepared, say, track)


def ranks_of(name: str, settings: Settings) -> tuple[str, ...]:
    """The ranks of a dataset, from names of files and tables alone."""
    if name == "synthetic":
        return drawn_knees.RANKS
    return scan(name, settings).ranks


def scan(name: str, settings: Settings) -> Listing:
    """All graded images of one of LAYOUTS, by names and tables alone."""
    try:
        find = LAYOUTS[name].scan
        return find(**_given(name, find, settings))
    except (FileNotFoundError, ValueError) as error:
        if name == "folder":
            raise
        raise type(error)(
            f"{error} The data come from {LAYOUTS[name].source}; data/{name}/README.md "
            "says how to get them and which folder is data.root."
        ) from None


def load_synthetic(
    *,
    size: tuple[int, int],
    channels: int,
    num_train: int,
    num_val: int,
    num_test: int,
    seed: int,
    calibration_fraction: float,
) -> Dataset:
    """Drawn knees; the splits are neighbouring stretches of one endless series.

    Calibration takes the end of what would be train, so that val and test stay.
    """
    if channels != 1:
        raise ValueError(
            f"data.channels is {channels}; the drawn knees are grey: use 1."
        )
    for name, count in (("train", num_train), ("val", num_val), ("test", num_test)):
        if count < 1:
            raise ValueError(f"data.num_{name} is {count}; use 1 or more.")
    is_share = 0 <= calibration_fraction < 1
    held = int(calibration_fraction * num_train + 0.5) if is_share else 0
    if calibration_fraction and not 0 < held < num_train:
        raise ValueError(
            f"data.calibration_fraction={calibration_fraction} of {num_train} training "
            "images leaves none for calibration or none for training; use e.g. 0.1."
        )
    stretches = {
        "train": (0, num_train - held),
        "val": (num_train, num_val),
        "test": (num_train + num_val, num_test),
    }
    if held:
        stretches[carving.CALIBRATION] = (num_train - held, held)
    parts: dict[str, Source] = {
        split: drawn_knees.Knees(count, start=start, seed=seed, size=size)
        for split, (start, count) in stretches.items()
    }
    return Dataset(drawn_knees.RANKS, parts, ["drawn knees, stored nowhere"], {})


def _given(name: str, function: Callable, settings: Settings) -> dict[str, Any]:
    """The settings that a function takes; ValueError where others are given."""
    fields = inspect.signature(function).parameters
    for field, unused in _OWN_FIELDS.items():
        given = settings.get(field, unused)
        if field not in fields and given != unused:
            raise ValueError(
                f"data.{field} is {given!r}, which the dataset {name} does not have; "
                f"leave it at {unused!r}."
            )
    return {field: settings[field] for field in fields}


def _load(
    name: str,
    listing: Listing,
    settings: Settings,
    prepared: pathlib.Path,
    say: Callable[[str], None],
    track: record_store.Track,
) -> Dataset:
    protocol = LAYOUTS[name].protocol
    splits.check_fold(protocol, settings["fold"])  # before what takes long
    if settings["on_bad_image"] not in ("error", "skip"):
        raise ValueError(
            f"data.on_bad_image is {settings['on_bad_image']!r}; use error or skip."
        )
    closed = [what for what, why in listing.skipped if why == UNLISTED]
    if closed and settings["on_bad_image"] == "error":
        raise ValueError(
            f"{count_of(closed, 'folder')} cannot be listed: "
            f"{comma(closed[: dataset_notes.SHOWN])}{', …' * (len(closed) > 5)}; "
            "change their access, or go on without them: "
            "--config.data.on_bad_image=skip."
        )
    if not listing.items:
        raise ValueError(f"data.root={settings['root']} holds no graded images.")
    choice = _choice(name, settings)
    wanted = stored_image.Wanted(
        *(_tuple(settings[field]) for field in stored_image.Wanted._fields)
    )
    home = record_store.home(prepared, name, _root(listing, settings))
    made = record_store.prepare(
        listing.items,
        home,
        wanted,
        options=choice,
        threads=settings["threads"],
        max_bytes=settings["max_file_mib"] * files.MEBIBYTE,
        say=say,
        track=track,
    )
    items = _readable(listing.items, made, settings["on_bad_image"])
    _check_crop(made, wanted)
    copies = duplicates.identical(items, kept=made.path, threads=settings["threads"])
    how = {
        field: settings[field]
        for field in ("fold", "merge_val", "val_fraction", "test_fraction", "seed")
    }
    if settings["calibration_fraction"]:  # without, lists keep the names they had
        how["calibration_fraction"] = settings["calibration_fraction"]
    about = {"dataset": name, "root": str(settings["root"])} | choice | how
    saved = home / f"splits-{_mark(choice | how)}.json"
    # Only here: the lists of published datasets stay what they were.
    kept_whole = duplicates.grouped(items, copies) if name == "folder" else items
    division = splits.divide(
        kept_whole,
        listing.ranks,
        protocol=protocol,
        saved=saved,
        **how,
    )
    _check_ranks(items, division, listing.ranks, name)
    unsaved = _save(saved, division, items, about)
    sources = _sources(items, division, made, wanted)
    changes = _bias(sources, listing.ranks, settings)
    notes = [
        *listing.notes,
        *skipped_notes(listing.skipped),
        *expected_counts.compare(
            name if not settings.get("subset") else "", items, listing.ranks
        ),
        *dataset_notes.on_images(made, wanted),
        *division.notes,
        *unsaved,
        *dataset_notes.on_groups(name, items, division),
        *dataset_notes.on_identical(copies, items, division, listing.ranks),
        *dataset_notes.on_bias(changes),
    ]
    details = {
        "prepared": str(made.path),
        "splits": str(saved),
        "skipped": [list(pair) for pair in listing.skipped] + sorted(made.bad.items()),
        "unreadable": made.bad,
        "identical": copies,
        "sizes": made.facts,
        "biased": changes,
    }
    return Dataset(listing.ranks, sources, notes, details)


def _sources(
    items: Sequence[Item],
    division: splits.Division,
    made: record_store.Preparation,
    wanted: stored_image.Wanted,
) -> dict[str, Source]:
    """A source a split."""
    sources: dict[str, Source] = {}
    for split, indices in division.indices.items():
        chosen = [items[index] for index in indices]
        are_files = not any(item.row for item in chosen)
        sources[split] = Records(
            made,
            [item.id for item in chosen],
            [item.label for item in chosen],
            paths=[item.path for item in chosen] if are_files else None,
            channels=wanted.channels,
            max_pixels=wanted.max_pixels,
        )
    return sources


def _bias(
    sources: dict[str, Source], ranks: Sequence[str], settings: Settings
) -> dict[str, list[str]]:
    """Biases the training data as asked for, in place; ids by the rule they met."""
    if not (settings["relabel"] or settings["subsample"]):
        return {}
    sources["train"], changes = label_noise.add_label_noise(
        sources["train"],
        ranks,
        relabel=settings["relabel"],
        subsample=settings["subsample"],
        seed=settings["seed"],
    )
    return changes


# --- small parts ---


def _save(
    path: pathlib.Path,
    division: splits.Division,
    items: Sequence[Item],
    about: Settings,
) -> list[str]:
    """Writes the splits down; a note where that cannot be, as in a shared folder."""
    try:
        splits.write(path, division, items, about)
    except OSError as error:
        return [
            f"Warning: the splits could not be written down ({error}); other images in "
            "data.root may change what is carved."
        ]
    return []


def _choice(name: str, settings: Settings) -> dict[str, Any]:
    """The settings that decide which images and ranks there are, as plain data."""
    taken = set(inspect.signature(LAYOUTS[name].scan).parameters)
    fields = sorted(taken - {"root", "max_file_mib"})  # where and how, not which
    return json.loads(json.dumps({field: settings[field] for field in fields}))


def _mark(value: Any) -> str:
    text = json.dumps(value, sort_keys=True).encode()
    return hashlib.blake2b(text, digest_size=4).hexdigest()


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _root(listing: Listing, settings: Settings) -> pathlib.Path:
    """The folder of the sources: a table may stand for it."""
    if settings["root"]:
        return pathlib.Path(settings["root"]).expanduser()
    first = listing.items[0]
    return first.path.parents[first.id.count("/")]


def _readable(
    items: Sequence[Item], made: record_store.Preparation, on_bad_image: str
) -> list[Item]:
    """Items without those that cannot be read, or an error that names them."""
    if made.bad and (on_bad_image == "error" or not made.positions):
        first = [
            f"{id_}: {why}"
            for id_, why in sorted(made.bad.items())[: dataset_notes.SHOWN]
        ]
        more = len(made.bad) - len(first)
        rest = f" | … and {more} more; {made.bad_list} lists all." if more else ""
        raise ValueError(
            f"{len(made.bad)} of {count_of(items)} cannot be read: "
            f"{' | '.join(first)}{rest} Mend or remove them, or go on without them: "
            "--config.data.on_bad_image=skip."
        )
    return [item for item in items if item.id in made.positions]


def _check_crop(made: record_store.Preparation, wanted: stored_image.Wanted) -> None:
    facts = made.facts
    least = facts["least_height"], facts["least_width"]
    if wanted.crop and (least[0] < wanted.crop[0] or least[1] < wanted.crop[1]):
        raise ValueError(
            f"data.crop is {wanted.crop[0]}x{wanted.crop[1]} (height x width), but the "
            f"least height and width of the images are {least[0]} and {least[1]}; "
            "choose a crop that fits all of them, or none."
        )


def _check_ranks(
    items: Sequence[Item], division: splits.Division, ranks: Sequence[str], name: str
) -> None:
    present = {items[index].label for index in division.indices["train"]}
    absent = [rank for label, rank in enumerate(ranks) if label not in present]
    if absent and name != "clap2015":  # where some ages are rare
        raise ValueError(
            f"there are no training images of {comma(absent)}; a rank without them "
            "cannot be learned. Add some, or leave the rank out."
        )
