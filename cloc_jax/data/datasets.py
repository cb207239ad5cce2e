"""Datasets by name: ranks and the splits as random-access sources."""

import collections
import inspect
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cloc_jax.data import drawn_knees, label_noise, records, splits
from cloc_jax.data.images import NetworkInput, uncropped
from cloc_jax.data.layouts import official, tables
from cloc_jax.data.layouts.listing import Item, Listing, count_of
from cloc_jax.data.source import Source

Settings = Mapping[str, Any]  # fields of the data section of a configuration
SHOWN = 5  # files that a message names


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
    folds: int = 0  # each of which is the test part once


LAYOUTS = {
    "folder": Layout(tables.scan),
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
        {"all": 17424},
        official.FOLDS,
    ),
    "hid": Layout(
        official.scan_hid,
        "http://graphics.cs.cmu.edu/projects/historicalColor",
        {"all": 1325},
        official.FOLDS,
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
_OWN_FIELDS = {"bin": 1, "csv": "", "fold": 0, "order": (), "group_pattern": ""}


def load(name: str, settings: Settings, *, prepared: pathlib.Path) -> Dataset:
    """A dataset with its splits; images are prepared where they are not yet.

    `settings` are the fields of the data section of a configuration.
    """
    if name == "synthetic":
        dataset = load_synthetic(**_given(name, load_synthetic, settings))
    else:
        listing = scan(name, settings)
        dataset = _load_listed(name, listing, settings, prepared)
    if not settings["relabel"]:
        return dataset
    train, changes = label_noise.relabel(
        dataset.splits["train"],
        dataset.ranks,
        rules=settings["relabel"],
        seed=settings["seed"],
    )
    notes = [
        f"data.relabel {rule}: {count_of(ids)} of train called otherwise."
        for rule, ids in changes.items()
    ]
    return dataset._replace(
        splits=dataset.splits | {"train": train},
        notes=dataset.notes + notes,
        details=dataset.details | {"biased": changes},
    )


def network_input(settings: Settings, random_crop: float = 0.0) -> NetworkInput:
    """How an image becomes what the network sees in evaluation.

    `random_crop` is the fraction of each side that training cuts away.
    """
    height, width = settings["size"]
    return NetworkInput(
        # With room for the random crop.
        size=uncropped((height, width), random_crop),
        channels=settings["channels"],
        crop=tuple(settings["crop"]) if settings["crop"] else None,
        equalize=settings["equalize"],
        random_crop=random_crop,
        max_pixels=settings["max_pixels"],
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
    except ValueError as error:
        if name == "folder":
            raise
        raise ValueError(
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
    return Dataset(
        drawn_knees.RANKS,
        parts,
        ["drawn images of knees, made as they are needed; no files"],
    )


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
    name: str, listing: Listing, settings: Settings, prepared: pathlib.Path
) -> Dataset:
    wanted = network_input(settings)
    # A table may lie beside its images and be all that is given.
    root = pathlib.Path(settings["root"] or pathlib.Path(settings["csv"]).parent)
    made = records.prepare(
        listing.items,
        records.home(prepared, name, root.expanduser()),
        wanted,
        threads=settings["threads"],
    )
    _check_prepared(made, wanted.crop, settings["on_bad_image"])
    items = [item for item in listing.items if item.id in made.contents]
    if listing.drawn is not None:
        items = official.draw_test(items, listing.drawn)
    copies = made.identical()
    how = inspect.signature(splits.divide).parameters
    division = splits.divide(
        # Only here: the lists of published datasets stay what they were.
        splits.keep_together(items, copies) if name == "folder" else items,
        listing.ranks,
        may_lack_ranks=name == "clap2015",  # some ages are rare
        **{field: settings[field] for field in how if field in settings},
    )
    sources: dict[str, Source] = {
        split: records.Records(made, [items[index] for index in indices], wanted)
        for split, indices in division.indices.items()
    }
    weights = [items[index].weight for index in division.indices["train"]]
    if None not in weights:
        own = np.asarray(weights, np.float32)
        sources["train"] = sources["train"].replaced(weights=own)
    notes = [
        *notes_on_listing(listing, items, LAYOUTS[name].counts),
        *notes_on_images(made, wanted),
        *division.notes,
        *notes_on_identical(copies, items, division),
    ]
    details = {
        "prepared": str(made.path),
        "skipped": [list(pair) for pair in listing.skipped] + sorted(made.bad.items()),
        "unreadable": made.bad,
        "identical": copies,
        "sizes": made.facts,
    }
    return Dataset(listing.ranks, sources, notes, details, items)


# --- checks ---


def _check_prepared(
    made: records.Preparation, crop: tuple[int, int] | None, on_bad_image: str
) -> None:
    if made.bad and (on_bad_image != "skip" or not made.contents):
        raise ValueError(
            f"{_unreadable(made)} Repair or remove them, or go on without them: "
            "--config.data.on_bad_image=skip."
        )
    least = made.facts["least_height"], made.facts["least_width"]
    if crop and (least[0] < crop[0] or least[1] < crop[1]):
        raise ValueError(
            f"data.crop is {crop[0]}x{crop[1]} (height x width), but the least height "
            f"and width of the images are {least[0]} and {least[1]}; choose a crop "
            "that fits all of them, or none."
        )


# --- what a person is told before training starts ---


def notes_on_listing(
    listing: Listing, items: Sequence[Item], expected: Mapping[str, int]
) -> list[str]:
    """What was inferred from folders and tables, skipped, or is not as published."""
    reasons: dict[str, list[str]] = collections.defaultdict(list)
    for what, reason in listing.skipped:
        reasons[reason].append(what)
    skipped = [
        f"Skipped: {len(some)} {reason}, such as {some[0]}."
        for reason, some in reasons.items()
    ]
    counts = collections.Counter(item.split for item in items)
    counts["all"] = len(items)
    unlike = [
        f"Warning: {split} has {counts[split]} images; the card in data/ says {wanted}."
        for split, wanted in expected.items()
        if counts[split] != wanted
    ]
    return [*listing.notes, *skipped, *unlike]


def notes_on_images(made: records.Preparation, wanted: NetworkInput) -> list[str]:
    """What was found out about the images when they were prepared."""
    facts, is_grey = made.facts, made.facts["grey"] == made.facts["images"]
    small, large = ("x".join(map(str, facts[key])) for key in ("smallest", "largest"))
    size = small if small == large else f"from {small} to {large}"
    notes = [f"Images are {size} (height x width), {'grey' if is_grey else 'colour'}."]
    if wanted.channels == 3 and is_grey:
        notes.append("All are grey but read as colour; data.channels=1 is enough.")
    if made.bad:
        notes.append(f"Warning: left out: {_unreadable(made)}")
    return notes


def _unreadable(made: records.Preparation) -> str:
    first = [f"{id_} ({why})" for id_, why in sorted(made.bad.items())[:SHOWN]]
    return (
        f"{len(made.bad)} of {len(made.bad) + len(made.contents)} images cannot be "
        f"read: {'; '.join(first)}{'; …' * (len(made.bad) > SHOWN)}. `python launch.py "
        "check …` lists all."
    )


def notes_on_identical(
    copies: Sequence[Sequence[str]], items: Sequence[Item], division: splits.Division
) -> list[str]:
    """A warning where one image is in two splits, or has two ranks."""
    place_of = {
        items[index].id: (split, items[index].label)
        for split, chosen in division.indices.items()
        for index in chosen
    }
    apart = [ids for ids in copies if len({place_of[id_] for id_ in ids}) > 1]
    if not apart:
        return []
    return [
        f"Warning: identical images are in several splits or of several ranks: "
        f"{count_of(apart, 'group')}, such as {' = '.join(apart[0][:3])}. "
        "`python launch.py check …` shows all of them."
    ]
