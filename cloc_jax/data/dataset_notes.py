"""What a person is told of a dataset before training starts."""

import collections
import pathlib
from collections.abc import Mapping, Sequence

from cloc_jax.data import records, splits
from cloc_jax.data.images import NetworkInput
from cloc_jax.data.layouts.listing import Item, Listing, count_of

SHOWN = 5  # files that a message names

# How many images the official downloads hold, by split as shipped: the counts of the
# ranks in order, or one number for all of them. The cards in data/ say the same.
Counts = tuple[int, ...] | int
EXPECTED: dict[str, dict[str, Counts]] = {
    "koa": {
        "train": (2286, 1046, 1516, 757, 173),
        "val": (328, 153, 212, 106, 27),
        "test": (639, 296, 447, 223, 51),
    },
    "idrid": {
        "train": (134, 20, 136, 74, 49),
        "test": (34, 5, 32, 19, 13),
    },
    "bracs": {
        "train": (357, 714, 389, 624, 387, 665, 521),
        "val": (46, 43, 46, 49, 41, 40, 47),
        "test": (81, 79, 82, 83, 79, 85, 81),
    },
    "adience": {
        "fold 0": 4316,
        "fold 1": 3101,
        "fold 2": 3339,
        "fold 3": 2975,
        "fold 4": 3693,
        "all": (2519, 2163, 2132, 1655, 4950, 2300, 830, 875),
    },
    "hid": {"all": (265, 265, 265, 265, 265)},
    "clap2015": {"train": 2476, "val": 1136, "test": 1079},
    "retinamnist": {
        "train": (486, 128, 206, 194, 66),
        "val": (54, 12, 28, 20, 6),
        "test": (174, 46, 92, 68, 20),
    },
}


def on_listing(
    listing: Listing, items: Sequence[Item], name: str, subset: str | None
) -> list[str]:
    """What was inferred from folders and tables, skipped, or is not as published."""
    reasons: dict[str, list[str]] = collections.defaultdict(list)
    for what, reason in listing.skipped:
        reasons[reason].append(what)
    notes = [
        f"Skipped: {len(some)} {reason}, such as {some[0]}."
        for reason, some in reasons.items()
    ]
    expected = [] if subset else on_counts(name, items, listing.ranks)
    return [*listing.notes, *notes, *expected]


def on_counts(name: str, items: Sequence[Item], ranks: Sequence[str]) -> list[str]:
    """A warning for every split whose counts are not those of the card."""
    counts: dict[str, list[int]] = collections.defaultdict(lambda: [0] * len(ranks))
    for item in items:
        for split in (item.split, "all"):
            if split:
                counts[split][item.label] += 1
    warnings = []
    for split, wanted in EXPECTED.get(name, {}).items():
        has: Counts = tuple(counts[split])
        if isinstance(wanted, int):
            has = sum(counts[split])
        if has != wanted:
            warnings.append(
                f"Warning: {split} has {_slashes(has)} images; data/{name}/README.md "
                f"says {_slashes(wanted)}."
            )
    return warnings


def _slashes(counts: Counts) -> str:
    return str(counts) if isinstance(counts, int) else "/".join(map(str, counts))


def on_images(made: records.Preparation, wanted: NetworkInput) -> list[str]:
    """What was found out about the images when they were prepared."""
    facts, count = made.facts, made.facts["images"]
    small, median, large = (
        "x".join(map(str, facts[key])) for key in ("smallest", "median", "largest")
    )
    size = small
    if facts["sizes"] > 1:
        size = f"from {small} to {large}, median {median}"
    kinds = {count: "grey", 0: "colour"}
    kind = kinds.get(facts["grey"], f"{facts['grey']} grey, the others colour")
    notes = [f"Images are {size} (height x width), {kind}."]
    if facts["changed"]:
        notes.append(f"{facts['changed']} of them are stored as small as is needed.")
    if wanted.channels == 3 and facts["grey"] == count:
        notes.append("All are grey but read as colour; data.channels=1 is enough.")
    if wanted.channels == 1 and facts["grey"] < count:
        notes.append("Colour is read as grey, since data.channels=1.")
    if made.bad:
        first = [f"{id_} ({why})" for id_, why in sorted(made.bad.items())[:SHOWN]]
        notes.append(
            f"Warning: {count_of(made.bad)} left out that cannot be read: "
            f"{'; '.join(first)}{'; …' * (len(made.bad) > SHOWN)}. "
            "`python launch.py check …` lists all."
        )
    if old := records.stale(made.path):
        notes.append(
            f"{count_of(old, 'older preparation')} of these images in "
            f"{made.path.parent} can go; `python launch.py prepare …` removes them."
        )
    return notes


def on_bias(changes: Mapping[str, list[str]]) -> list[str]:
    """What was made wrong or rare on purpose."""
    done = {"relabel": "called otherwise", "subsample": "left out"}
    return [
        f"data.{rule}: {count_of(ids)} of train {done[rule.split()[0]]}."
        for rule, ids in changes.items()
    ]


def on_groups(name: str, items: Sequence[Item], division: splits.Division) -> list[str]:
    """Where splits were carved without knowing patients or subjects."""
    if not division.carved or any(item.group for item in items):
        return []
    advice = "For carving, each image was taken as its own patient or subject"
    if name == "folder":
        advice += "; where several images show the same one, give data.group_pattern"
    return [f"{advice}."]


def on_identical(
    copies: Sequence[Sequence[str]],
    items: Sequence[Item],
    division: splits.Division,
    ranks: Sequence[str],
) -> list[str]:
    """A warning where one image is in two splits, or has two ranks."""
    split_of = {
        items[index].id: split
        for split, chosen in division.indices.items()
        for index in chosen
    }
    rank_of = {item.id: ranks[item.label] for item in items}

    def named(id_: str) -> str:
        file = pathlib.PurePosixPath(id_).name
        return f"{file} ({split_of.get(id_, 'unused')}, {rank_of[id_]})"

    shared = [ids for ids in copies if len({split_of.get(i) for i in ids}) > 1]
    unlike = [ids for ids in copies if len({rank_of[i] for i in ids}) > 1]
    told = [
        f"{len(some)} {what}, such as {' = '.join(map(named, some[0][:3]))}"
        for some, what in ((shared, "in several splits"), (unlike, "of several ranks"))
        if some
    ]
    if not told:
        return []
    return [
        f"Warning: identical images: {'; '.join(told)}. `python launch.py check …` "
        "shows all of them."
    ]
