"""What may be wrong with a dataset, before anything is trained on it.

Prints it, draws what looks odd, and writes all of it as JSON. The exit code is for
scripts: 0 if nothing was found that matters, 1 if something was.
"""

import os
import pathlib
from collections.abc import Mapping, Sequence

from ml_collections import ConfigDict

from cloc_jax.data import inspection
from cloc_jax.data.datasets import LAYOUTS
from cloc_jax.data.inspection import Alike, Graded, Inspection
from cloc_jax.data.layouts.listing import count_of
from cloc_jax.data.source import Source
from cloc_jax.report.figures import style
from cloc_jax.report.figures.contact_sheet import Picture, Row, sheet
from cloc_jax.runtime import files
from cloc_jax.runtime.console import console, print_dataset, track
from cloc_jax.training import assembly

FEW = 30  # test images of a rank, which tell little of it
SHOWN = 5  # of a kind that are printed; check.json has all
ROWS = 4  # of a kind in the picture
COLUMNS = 6  # of one image that is there often
BITS = inspection.HASH_SIDE**2
# Where images are alike, and what is to be done.
SPLITS, RANKS, ONE = "several splits", "several ranks", "one split and rank"
ADVICE = {
    SPLITS: "Scores are too good then; remove all but one of each.",
    RANKS: "At most one rank is right; grade them again or remove them.",
    ONE: "That is harmless.",
}
FLAT = "shows nothing"
COLOURS = {
    SPLITS: style.VERMILION,
    RANKS: style.ORANGE,
    FLAT: style.PURPLE,
    ONE: style.FAINT,
}


def check(config: ConfigDict, folder: pathlib.Path) -> int:
    """Checks the images of a configuration; the exit code."""
    if config.data.name not in LAYOUTS:
        print_dataset(assembly.load(config))
        console.print("these images are drawn by a program: there is nothing to check")
        return 0
    picture, path = folder / "odd.png", folder / "check.json"
    if files.owner_of(path) is None:
        for other in filter(os.path.lexists, (path, picture)):
            raise FileExistsError(
                f"{other} was not made by a check, or was changed since, and is left "
                "as it is; give another --run folder, or move it away."
            )
    is_strict = config.data.on_bad_image == "error"
    config = config.copy_and_resolve_references()
    config.data.on_bad_image = "skip"  # to look at the others
    dataset = assembly.load(config)
    total = sum(map(len, dataset.splits.values()))
    with track("comparing", total, note=f"compared {total} images") as advance:
        found = inspection.inspect(
            dataset.items,
            dataset.ranks,
            dataset.splits,
            dataset.details["identical"],
            threads=config.data.threads,
            advance=advance,
        )
    print_dataset(dataset)
    unreadable = dataset.details["unreadable"]
    findings, remarks = find(found, unreadable, is_strict=is_strict)
    for mark, texts in (("!", findings), ("-", remarks)):
        for text in texts:
            console.print(f"{mark} {text}", soft_wrap=True)
    folder.mkdir(parents=True, exist_ok=True)
    prepared = assembly.prepare(dataset, config).splits
    picture.unlink(missing_ok=True)  # of an earlier check
    written = {
        "dataset": config.data.name,
        "root": str(config.data.root),
        "ranks": list(dataset.ranks),
        "images": found.counts,
        "sizes": dataset.details["sizes"],
        "unreadable": unreadable,
        "identical": [group.as_json() for group in found.identical],
        "near_identical": [pair.as_json() for pair in found.near],
        "near_identical_bits": [inspection.NEAR_BITS, BITS],
        "flat": [image._asdict() for image in found.flat],
        "patients": found.patients,
        "patients_in_several_splits": found.shared_patients,
        "findings": findings,
        "remarks": remarks,
    }
    files.write_sealed(path, written)  # first: it is what tells that both are ours
    if draw_odd(picture, found, prepared, config.data.name):
        console.print(f"picture  {picture}", soft_wrap=True)
    console.print(f"details  {path}", soft_wrap=True)
    said = f"{count_of(findings, 'finding')} (!)" if findings else "nothing was found"
    console.print(f"{said} that should be looked at before training")
    return 1 if findings else 0


def find(
    found: Inspection, unreadable: Mapping[str, str], *, is_strict: bool
) -> tuple[list[str], list[str]]:
    """What has to be looked at before scores can be believed, and what is good to know.

    `is_strict` is whether training stops at an image that cannot be read.
    """
    findings, remarks = [], []
    bad = _some([f"{id_} ({why})" for id_, why in sorted(unreadable.items())], "file")
    if unreadable and is_strict:
        findings.append(
            f"Cannot be read, so that training would stop: {bad}. Repair or remove "
            "them, or go on without: --config.data.on_bad_image=skip."
        )
    elif unreadable:
        remarks.append(f"Left out, as they cannot be read: {bad}.")
    for groups, what in ((found.identical, "identical"), (found.near, "nearly so")):
        for kind, advice in ADVICE.items():
            alike = [_names(group) for group in groups if _kind(group) == kind]
            if alike:
                texts = remarks if kind == ONE else findings
                texts.append(f"In {kind}, {what}: {_some(alike, 'group')}. {advice}")
    if shared := found.shared_patients:
        names = [
            f"{patient} ({', '.join(places)})" for patient, places in shared.items()
        ]
        findings.append(
            f"In several splits, which makes scores too good: "
            f"{_some(names, 'patient')}. Move all images of one to one split, or ship "
            "no splits, so that they are carved by patient."
        )
    elif not found.patients:
        remarks.append(
            "Patients or subjects are not known, so whether one is in several splits "
            "cannot be told."
        )
    if found.flat:
        flat = _some([image.id for image in found.flat], "image")
        remarks.append(f"Nearly of one grey level, which show nothing: {flat}.")
    small = [f"{rank} ({n})" for rank, n in found.counts["test"].items() if n < FEW]
    if small:
        few = _some(small, "rank")
        remarks.append(f"Few test images, which tell little of these ranks: {few}.")
    return findings, remarks


# --- the picture of what looks odd ---


def draw_odd(
    path: pathlib.Path, found: Inspection, splits: Mapping[str, Source], name: str
) -> bool:
    """Saves the sheet, what matters first; False where nothing is odd."""
    odd = [(_kind(group), group, "identical") for group in found.identical]
    odd += [(_kind(pair), pair, f"{pair.bits} of {BITS} differ") for pair in found.near]
    odd += [(FLAT, Alike((image,)), "") for image in found.flat]
    place = {
        i: (s, n) for s, source in splits.items() for n, i in enumerate(source.ids)
    }

    def picture(image: Graded, more: str) -> Picture:
        split, index = place[image.id]
        # A name that is not UTF-8 cannot be drawn as it is.
        file = os.fsencode(pathlib.PurePosixPath(image.id).name)
        short = file.decode("utf-8", "replace")
        caption = f"{short}\n{split}, rank {image.rank}\n{more}".rstrip()
        return Picture(splits[split][index], caption)

    rows = []
    for kind in COLOURS:
        of_kind = [(group, how) for other, group, how in odd if other == kind]
        for group, how in of_kind[:ROWS]:
            pictures = [picture(image, how) for image in group.images[:COLUMNS]]
            rows.append(Row(kind, pictures))
    if rows:
        drawn = sheet(
            rows,
            COLOURS,
            title=f"{name}: images that look odd",
            note=f"{len(rows)} of {len(odd)}; check.json names all",
            front_heading="what",
        )
        style.save(drawn, path)
    return bool(rows)


# --- words ---


def _kind(group: Alike) -> str:
    if group.is_shared:
        return SPLITS
    return RANKS if group.is_contradictory else ONE


def _names(group: Alike) -> str:
    """The first images of a group."""
    return " = ".join(
        f"{pathlib.PurePosixPath(image.id).name} ({image.split}, {image.rank})"
        for image in group.images[:4]
    )


def _some(texts: Sequence[str], what: str) -> str:
    """How many there are, and the first of them."""
    more = f"; and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return f"{count_of(texts, what)}, {'; '.join(texts[:SHOWN])}{more}"
