"""Datasets by name: ranks and the splits as random-access sources."""

import inspect
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from cloc_jax.data import dataset_notes, drawn_knees, label_noise, records, splits
from cloc_jax.data.images import NetworkInput
from cloc_jax.data.layouts import graded_table, official, rank_folders
from cloc_jax.data.layouts.listing import Item, Listing, comma, count_of
from cloc_jax.data.source import Source
from cloc_jax.runtime import files

Settings = Mapping[str, Any]  # fields of the data section of a configuration


class Dataset(NamedTuple):
    """Graded images, split."""

    ranks: tuple[str, ...]  # names in order
    splits: dict[str, Source]  # "train", "val", "test"; "calibration" if asked for
    notes: list[str]  # what was inferred, for the user to see before training
    details: dict[str, Any] = {}  # what a run records beside that, as plain data
    items: Sequence[Item] = ()  # all that can be read, as they were listed


class Layout(NamedTuple):
    """A dataset on disk."""

    scan: Callable[..., Listing]  # its keyword arguments are fields of the settings
    source: str = ""  # where it comes from
    # Images that the official download holds, by split as shipped; its card says so.
    counts: Mapping[str, int] = {}
    protocol: splits.Protocol = splits.Protocol()


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
    return rank_folders.scan(root, **how)


LAYOUTS = {
    "folder": Layout(scan_own),
    "koa": Layout(
        official.scan_koa,
        "https://doi.org/10.17632/56rmx5bjcr.1",
        {"train": 5778, "val": 826, "test": 1656},
    ),
    "idrid": Layout(
        official.scan_idrid,
        "https://idrid.grand-challenge.org",
        {"train": 413, "test": 103},
    ),
    "adience": Layout(
        official.scan_adience,
        "https://talhassner.github.io/home/projects/Adience/Adience-data.html",
        dict(zip(official.FOLDS, (4316, 3101, 3339, 2975, 3693), strict=True)),
        splits.Protocol(folds=5),
    ),
    "hid": Layout(
        official.scan_hid,
        "http://graphics.cs.cmu.edu/projects/historicalColor",
        {"all": 1325},
        splits.Protocol(folds=5, draw=50),
    ),
    "bracs": Layout(
        official.scan_bracs,
        "https://www.bracs.icar.cnr.it",
        {"train": 3657, "val": 312, "test": 570},
    ),
    "clap2015": Layout(
        official.scan_clap2015,
        "https://chalearnlap.cvc.uab.cat/dataset/18",
        {"train": 2476, "val": 1136, "test": 1079},
    ),
    "retinamnist": Layout(
        official.scan_retinamnist,
        "https://medmnist.com",
        {"train": 1080, "val": 120, "test": 400},
    ),
}
DATASETS = ("synthetic", *LAYOUTS)
# Fields that only some datasets have, and what they are where unused.
_OWN_FIELDS = {
    "bin": 1,
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
    track: records.Track = records.no_track,
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
    else:
        listing = scan(name, settings)
        dataset = _load_listed(name, listing, settings, prepared, say, track)
    if not (settings["relabel"] or settings["subsample"]):
        return dataset
    train, changes = label_noise.add_label_noise(
        dataset.splits["train"],
        dataset.ranks,
        relabel=settings["relabel"],
        subsample=settings["subsample"],
        seed=settings["seed"],
    )
    done = {"relabel": "called otherwise", "subsample": "left out"}
    notes = [
        f"data.{rule}: {count_of(ids)} of train {done[rule.split()[0]]}."
        for rule, ids in changes.items()
    ]
    return dataset._replace(
        splits=dataset.splits | {"train": train},
        notes=dataset.notes + notes,
        details=dataset.details | {"biased": changes},
    )


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
    held = int(calibration_fraction * num_train + 0.5)
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
        stretches[splits.CALIBRATION] = (num_train - held, held)
    parts: dict[str, Source] = {
        split: drawn_knees.Knees(count, start=start, seed=seed, size=size)
        for split, (start, count) in stretches.items()
    }
    return Dataset(drawn_knees.RANKS, parts, ["drawn knees, stored nowhere"])


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


def _load_listed(
    name: str,
    listing: Listing,
    settings: Settings,
    prepared: pathlib.Path,
    say: Callable[[str], None],
    track: records.Track,
) -> Dataset:
    protocol = LAYOUTS[name].protocol
    # Before what takes long.
    splits.check_fold(protocol, settings["fold"])
    if settings["on_bad_image"] not in ("error", "skip"):
        raise ValueError(
            f"data.on_bad_image is {settings['on_bad_image']!r}; use error or skip."
        )
    # The settings that decide which images and ranks there are.
    taken = set(inspect.signature(LAYOUTS[name].scan).parameters)
    fields = sorted(taken - {"root", "max_file_mib"})
    choice = {field: settings[field] for field in fields}
    wanted = NetworkInput(
        size=tuple(settings["size"]),
        channels=settings["channels"],
        crop=tuple(settings["crop"]) if settings["crop"] else None,
        equalize=settings["equalize"],
        max_pixels=settings["max_pixels"],
        max_bytes=settings["max_file_mib"] * files.MEBIBYTE,
    )
    home = records.home(prepared, name, _root(listing, settings))
    made = records.prepare(
        listing.items,
        home,
        wanted,
        options=choice,
        threads=settings["threads"],
        say=say,
        track=track,
    )
    _check_prepared(made, wanted.crop, settings["on_bad_image"])
    items = [item for item in listing.items if item.id in made.contents]
    copies = made.identical()
    how = {
        field: settings[field]
        for field in inspect.signature(splits.divide).parameters
        if field in settings
    }
    saved = home / f"splits-{records.short_hash([choice, how])}.json"
    division = splits.divide(
        # Only here: the lists of published datasets stay what they were.
        splits.keep_together(items, copies) if name == "folder" else items,
        listing.ranks,
        protocol=protocol,
        **how,
    )
    if name != "clap2015":  # where some ages are rare
        _check_ranks(items, division, listing.ranks)
    sources: dict[str, Source] = {
        split: records.Records(
            made,
            [items[index] for index in indices],
            channels=wanted.channels,
            max_pixels=wanted.max_pixels,
        )
        for split, indices in division.indices.items()
    }
    notes = [
        *dataset_notes.on_listing(listing, items, LAYOUTS[name].counts),
        *dataset_notes.on_images(made, wanted),
        *division.notes,
        *splits.write(saved, division, items, {"dataset": name} | choice | how),
        *dataset_notes.on_groups(name, items, division),
        *dataset_notes.on_identical(copies, items, division, listing.ranks),
    ]
    details = {
        "prepared": str(made.path),
        "splits": str(saved),
        "skipped": [list(pair) for pair in listing.skipped] + sorted(made.bad.items()),
        "unreadable": made.bad,
        "identical": copies,
        "sizes": made.facts,
    }
    return Dataset(listing.ranks, sources, notes, details, items)


def _root(listing: Listing, settings: Settings) -> pathlib.Path:
    """The folder of the sources: a table may stand for it."""
    if settings["root"]:
        return pathlib.Path(settings["root"]).expanduser()
    first = listing.items[0]
    return first.path.parents[first.id.count("/")]


# --- checks ---


def _check_prepared(
    made: records.Preparation, crop: tuple[int, int] | None, on_bad_image: str
) -> None:
    if made.bad and (on_bad_image == "error" or not made.contents):
        first = sorted(made.bad.items())[: dataset_notes.SHOWN]
        named = " | ".join(f"{id_}: {why}" for id_, why in first)
        more = " | …" * (len(made.bad) > dataset_notes.SHOWN)
        raise ValueError(
            f"{len(made.bad)} of {len(made.bad) + len(made.contents)} images cannot be "
            f"read: {named}{more} `python launch.py check …` lists all. Mend or remove "
            "them, or go on without them: --config.data.on_bad_image=skip."
        )
    least = made.facts["least_height"], made.facts["least_width"]
    if crop and (least[0] < crop[0] or least[1] < crop[1]):
        raise ValueError(
            f"data.crop is {crop[0]}x{crop[1]} (height x width), but the least height "
            f"and width of the images are {least[0]} and {least[1]}; choose a crop "
            "that fits all of them, or none."
        )


def _check_ranks(
    items: Sequence[Item], division: splits.Division, ranks: Sequence[str]
) -> None:
    present = {items[index].label for index in division.indices["train"]}
    absent = [rank for label, rank in enumerate(ranks) if label not in present]
    if absent:
        raise ValueError(
            f"there are no training images of {comma(absent)}; a rank without them "
            "cannot be learned. Add some, or leave the rank out."
        )
