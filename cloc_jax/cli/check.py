"""What may be wrong with a dataset, before anything is trained on it.

Prints it, draws what looks odd, and writes all of it as JSON. The exit code is for
scripts: 0 if nothing was found that matters, 1 if something was.
"""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from cloc_jax.data import inspection
from cloc_jax.data.datasets import LAYOUTS, Dataset
from cloc_jax.data.inspection import Alike, Graded, Inspection
from cloc_jax.data.layouts.listing import count_of
from cloc_jax.data.source import Source
from cloc_jax.report import figures
from cloc_jax.report.figures import Picture, Row, style
from cloc_jax.runtime import files
from cloc_jax.runtime.console import console, print_dataset, track
from cloc_jax.scoring import intervals
from cloc_jax.training import assembly

FEW_TO_JUDGE = 30  # test images of a rank
FEW_TO_LEARN = 10  # training images of a rank
SHOWN = 5  # of a kind that are printed; check.json has all
ROWS = 4  # of a kind in the picture
COLUMNS = 6  # of one image that is there often
BITS = inspection.HASH_SIDE**2
KINDS = {
    "several splits": style.VERMILION,
    "several ranks": style.ORANGE,
    "shows nothing": style.PURPLE,
    "same split, rank": style.FAINT,
}


def check(config: ConfigDict, folder: pathlib.Path) -> int:
    """Checks the images of a configuration; the exit code."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"--run={folder} is a file; give the name of a folder.")
    if config.data.name not in LAYOUTS:
        print_dataset(assembly.load(config))
        console.print("these images are drawn by a program: there is nothing to check")
        return 0
    is_strict = config.data.on_bad_image == "error"
    config = config.copy_and_resolve_references()
    config.data.on_bad_image = "skip"  # to look at the others
    dataset = assembly.load(config)
    found = _inspect(config, dataset)
    unreadable = dataset.details["unreadable"]
    print_dataset(dataset._replace(notes=_other_notes(dataset.notes)))
    findings = find(found, unreadable if is_strict else {})
    remarks = remark(found, {} if is_strict else unreadable)
    for text in findings:
        console.print(f"! {text}", soft_wrap=True)
    for text in remarks:
        console.print(f"- {text}", soft_wrap=True)
    folder.mkdir(parents=True, exist_ok=True)
    prepared = assembly.prepare(dataset, config).splits
    picture, path = folder / "odd.png", folder / "check.json"
    picture.unlink(missing_ok=True)  # of an earlier check
    if draw_odd(picture, found, prepared, config.data.name):
        console.print(f"picture  {picture}", soft_wrap=True)
    files.write_json(path, as_json(config, dataset, found, findings, remarks))
    console.print(f"details  {path}", soft_wrap=True)
    said = f"{count_of(findings, 'finding')} (!)" if findings else "nothing was found"
    console.print(f"{said} that should be looked at before training")
    return 1 if findings else 0


def _inspect(config: ConfigDict, dataset: Dataset) -> Inspection:
    total = sum(map(len, dataset.splits.values()))
    with track("comparing", total, note=f"compared {total} images") as advance:
        return inspection.inspect(
            dataset.items,
            dataset.ranks,
            dataset.splits,
            dataset.details["identical"],
            threads=config.data.threads,
            advance=advance,
        )


def find(found: Inspection, unreadable: dict[str, str]) -> list[str]:
    """What has to be looked at before scores can be believed, in sentences."""
    texts = []
    if unreadable:
        texts.append(
            f"Cannot be read, so that training would stop: {_bad(unreadable)}. Mend or "
            "remove them, or go on without: --config.data.on_bad_image=skip."
        )
    for groups, what in ((found.identical, "identical"), (found.near, "nearly so")):
        shared = [group for group in groups if group.is_shared]
        unlike = [group for group in groups if group.is_contradictory]
        if shared:
            texts.append(
                f"In several splits, {what}: {_named(shared)}. Scores are too good "
                "then; remove all but one of each."
            )
        if unlike:
            texts.append(
                f"Of several ranks, {what}: {_named(unlike)}. At most one rank is "
                "right; grade them again or remove them."
            )
    if found.shared_patients:
        first = [
            f"{patient} ({', '.join(splits)})"
            for patient, splits in list(found.shared_patients.items())[:SHOWN]
        ]
        texts.append(
            f"{len(found.shared_patients)} of {found.patients} patients or subjects "
            "are in several splits, which makes scores too good: "
            f"{'; '.join(first)}{_more(found.shared_patients)}. Move all images of one "
            "to one split, or ship no splits, so that they are carved by patient."
        )
    return texts


def remark(found: Inspection, unreadable: dict[str, str]) -> list[str]:
    """What is good to know, in sentences."""
    texts = []
    if unreadable:
        texts.append(f"Left out, as they cannot be read: {_bad(unreadable)}.")
    for groups, what in ((found.identical, "identical"), (found.near, "nearly so")):
        inside = [group for group in groups if not group.matters]
        if inside:
            texts.append(f"Within one split and rank, {what}: {_named(inside)}.")
    if not (found.identical or found.near):
        texts.append("No two images are identical or nearly so.")
    if found.flat:
        ids = ", ".join(image.id for image in found.flat[:SHOWN])
        texts.append(
            f"{count_of(found.flat)} nearly of one grey level, which show nothing: "
            f"{ids}{_more(found.flat)}."
        )
    if not found.patients:
        texts.append(
            "Patients or subjects are not known, so whether one is in several splits "
            "cannot be told."
        )
    elif not found.shared_patients:
        texts.append(
            f"No patient or subject of {found.patients} is in more than one split."
        )
    return texts + few(found.counts)


def few(counts: dict[str, dict[str, int]]) -> list[str]:
    """Ranks with few images, and what can be told of so many."""
    texts = []
    for rank, count in counts["train"].items():
        if count < FEW_TO_LEARN:
            texts.append(f"train has few images of rank {rank} to learn from: {count}.")
    wide = []
    for rank, count in counts["test"].items():
        if not count:
            texts.append(
                f"test has no image of rank {rank}: nothing can be told of it."
            )
        elif count < FEW_TO_JUDGE:
            right = -(-4 * count // 5)
            low, high = intervals.binomial(right, count)
            wide.append(
                f"{right} of {count} right in rank {rank} would mean {low:.2f} to "
                f"{high:.2f}"
            )
    if wide:
        texts.append(
            f"Few test images, so what can be told of single ranks is vague (95% "
            f"intervals): {'; '.join(wide[: 2 * SHOWN])}{_more(wide, 2 * SHOWN)}."
        )
    return texts


def as_json(
    config: ConfigDict,
    dataset: Dataset,
    found: Inspection,
    findings: Sequence[str],
    remarks: Sequence[str],
) -> dict[str, Any]:
    """All that was found, as check.json has it."""
    return {
        "dataset": config.data.name,
        "root": str(config.data.root),
        "ranks": list(dataset.ranks),
        "images": found.counts,
        "sizes": dataset.details["sizes"],
        "unreadable": dataset.details["unreadable"],
        "identical": [group.as_json() for group in found.identical],
        "near_identical": [pair.as_json() for pair in found.near],
        "near_identical_bits": [inspection.NEAR_BITS, BITS],
        "flat": [image._asdict() for image in found.flat],
        "patients": found.patients,
        "patients_in_several_splits": found.shared_patients,
        "findings": list(findings),
        "remarks": list(remarks),
    }


# --- the picture of what looks odd ---


def draw_odd(
    path: pathlib.Path, found: Inspection, splits: Mapping[str, Source], name: str
) -> bool:
    """Saves the sheet, what matters first; False where nothing is odd."""
    by_kind: dict[str, list[tuple[Alike, str]]] = {kind: [] for kind in KINDS}
    for group in found.identical:
        by_kind[_kind(group)].append((group, "identical"))
    for pair in found.near:
        by_kind[_kind(pair)].append((pair, f"{pair.bits} of {BITS} bits differ"))
    by_kind["shows nothing"] = [(Alike((image,)), "") for image in found.flat]
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

    rows = [
        Row(kind, [picture(image, more) for image in group.images[:COLUMNS]])
        for kind, groups in by_kind.items()
        for group, more in groups[:ROWS]
    ]
    if not rows:
        return False
    total = sum(map(len, by_kind.values()))
    figures.sheet(
        path,
        rows,
        list(KINDS),
        title=f"{name}: images that look odd",
        note=f"{len(rows)} of {total}; check.json names all",
        front_heading="what",
        colours=list(KINDS.values()),
    )
    return True


def _kind(group: Alike) -> str:
    if group.is_shared:
        return "several splits"
    return "several ranks" if group.is_contradictory else "same split, rank"


# --- words ---


def _named(groups: Sequence[Alike]) -> str:
    """How many there are, and the names of the first."""

    def name(image: Graded) -> str:
        file = pathlib.PurePosixPath(image.id).name
        return f"{file} ({image.split}, {image.rank})"

    first = [" = ".join(map(name, group.images[:4])) for group in groups[:SHOWN]]
    # Often pairs; one image that is there three times makes them groups.
    is_pairs = all(len(group.images) == 2 for group in groups)
    count = count_of(groups, "pair" if is_pairs else "group")
    return f"{count}, {'; '.join(first)}{_more(groups)}"


def _bad(unreadable: dict[str, str]) -> str:
    some = [f"{id_} ({why})" for id_, why in sorted(unreadable.items())[:SHOWN]]
    count = count_of(list(unreadable), "file")
    return f"{count}, {'; '.join(some)}{_more(unreadable)}"


def _other_notes(notes: Sequence[str]) -> list[str]:
    """Notes of what is not told below in more words."""
    told = ("launch.py check", "images cannot be read")
    return [note for note in notes if not any(text in note for text in told)]


def _more(things: Any, shown: int = SHOWN) -> str:
    return f"; and {len(things) - shown} more" if len(things) > shown else ""
