"""What a person is told of a dataset before training starts."""

import pathlib
from collections.abc import Mapping, Sequence

from cloc_jax.data import splits
from cloc_jax.data.layouts.listing import Item, count_of
from cloc_jax.data.prepared import record_store, stored_image

SHOWN = 5  # files that a message names


def on_images(made: record_store.Preparation, wanted: stored_image.Wanted) -> list[str]:
    """What was found out about the images when they were prepared."""
    facts, count = made.facts, made.facts["images"]
    small, large = ("x".join(map(str, facts[s])) for s in ("smallest", "largest"))
    size = small if facts["sizes"] == 1 else f"from {small} to {large}"
    if facts["sizes"] > 1 and facts.get("median"):
        size += f", median {'x'.join(map(str, facts['median']))}"
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
            f"Warning: {count_of(list(made.bad))} left out that cannot be read: "
            f"{'; '.join(first)}{'; …' * (len(made.bad) > SHOWN)}. "
            f"{made.bad_list} lists all."
        )
    if old := record_store.stale(made.path):
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
    found = [
        f"{len(some)} {what}, such as {' = '.join(map(named, some[0][:3]))}"
        for some, what in ((shared, "in several splits"), (unlike, "of several ranks"))
        if some
    ]
    if not found:
        return []
    return [
        f"Warning: identical images: {'; '.join(found)}. `python launch.py check …` "
        "shows all of them."
    ]
