"""The picture of a check: what looks odd, side by side, with name, split and rank."""

import os
import pathlib
from collections.abc import Mapping

from cloc_jax.data import inspection
from cloc_jax.data.inspection import Alike, Graded, Inspection
from cloc_jax.data.source import Source
from cloc_jax.report import figures
from cloc_jax.report.figures import Picture, Row, style

ROWS = 16
COLUMNS = 6  # of one image that is there often
BITS = inspection.HASH_SIDE**2
KINDS = {
    "several splits": style.VERMILION,
    "several ranks": style.ORANGE,
    "shows nothing": style.PURPLE,
    "same split, rank": style.FAINT,
}


def draw(
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
        for kind, groups in _shared_out(by_kind).items()
        for group, more in groups
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


def _shared_out(by_kind: Mapping[str, list]) -> dict[str, list]:
    """The first of each kind, so that all kinds are seen and no more than ROWS."""
    shown = {kind: 0 for kind in by_kind}
    while sum(shown.values()) < ROWS:
        open_kinds = [kind for kind in by_kind if shown[kind] < len(by_kind[kind])]
        if not open_kinds:
            break
        for kind in open_kinds[: ROWS - sum(shown.values())]:
            shown[kind] += 1
    return {kind: groups[: shown[kind]] for kind, groups in by_kind.items()}
