"""The picture of a check: what looks odd, side by side, with name, split and rank."""

import pathlib
from collections.abc import Mapping

from cloc_jax.data.inspection import Alike, Graded, Inspection
from cloc_jax.data.source import Source
from cloc_jax.report import figures
from cloc_jax.report.figures import Picture, Row, style

ROWS = 16
COLUMNS = 6  # of one image that is there often
KINDS = {
    "identical": style.VERMILION,
    "nearly": style.ORANGE,
    "flat": style.PURPLE,
    "within a split": style.FAINT,  # and rank
}


def draw(
    path: pathlib.Path, found: Inspection, splits: Mapping[str, Source], name: str
) -> bool:
    """Saves the sheet, what matters first; False where nothing is odd."""
    by_kind: dict[str, list[Alike]] = {
        "identical": _serious(found.identical),
        "nearly": _serious(found.near),
        "flat": [Alike((image,)) for image in found.flat],
        "within a split": [g for g in [*found.identical, *found.near] if not g.matters],
    }
    place = {
        i: (s, n) for s, source in splits.items() for n, i in enumerate(source.ids)
    }

    def picture(image: Graded, more: str) -> Picture:
        split, index = place[image.id]
        short = pathlib.PurePosixPath(image.id).name
        caption = f"{short}\n{split}, rank {image.rank}{more}"
        return Picture(splits[split][index], caption)

    rows = []
    for kind, groups in _shared_out(by_kind).items():
        for group in groups:
            more = f"\n{group.bits} bits differ" if group.bits else ""
            shown = group.images[:COLUMNS]
            rows.append(Row(kind, [picture(image, more) for image in shown]))
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


def _serious(groups: list[Alike]) -> list[Alike]:
    """Those that matter, first what is in several splits."""
    return sorted((g for g in groups if g.matters), key=lambda g: not g.is_shared)


def _shared_out(by_kind: Mapping[str, list[Alike]]) -> dict[str, list[Alike]]:
    """The first of each kind, so that all kinds are seen and no more than ROWS."""
    shown = {kind: 0 for kind in by_kind}
    while sum(shown.values()) < ROWS:
        open_kinds = [kind for kind in by_kind if shown[kind] < len(by_kind[kind])]
        if not open_kinds:
            break
        for kind in open_kinds[: ROWS - sum(shown.values())]:
            shown[kind] += 1
    return {kind: groups[: shown[kind]] for kind, groups in by_kind.items()}
