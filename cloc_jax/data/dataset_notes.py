"""What a person is told of a dataset before training starts."""

import collections
import pathlib
from collections.abc import Mapping, Sequence

from cloc_jax.data import records, splits
from cloc_jax.data.images import NetworkInput
from cloc_jax.data.layouts.listing import Item, Listing, count_of

SHOWN = 5  # files that a message names


def on_listing(
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
    counts = collections.Counter(item.split or "all" for item in items)
    unlike = [
        f"Warning: {split} has {counts[split]} images; the card in data/ says {wanted}."
        for split, wanted in expected.items()
        if counts[split] != wanted
    ]
    return [*listing.notes, *skipped, *unlike]


def on_images(made: records.Preparation, wanted: NetworkInput) -> list[str]:
    """What was found out about the images when they were prepared."""
    facts, is_grey = made.facts, made.facts["grey"] == made.facts["images"]
    small, large = ("x".join(map(str, facts[key])) for key in ("smallest", "largest"))
    size = small if small == large else f"from {small} to {large}"
    notes = [f"Images are {size} (height x width), {'grey' if is_grey else 'colour'}."]
    if wanted.channels == 3 and is_grey:
        notes.append("All are grey but read as colour; data.channels=1 is enough.")
    if made.bad:
        first = [f"{id_} ({why})" for id_, why in sorted(made.bad.items())[:SHOWN]]
        notes.append(
            f"Warning: {count_of(made.bad)} left out that cannot be read: "
            f"{'; '.join(first)}{'; …' * (len(made.bad) > SHOWN)}. "
            "`python launch.py check …` lists all."
        )
    return notes


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
