"""Patients and subjects, found in file names."""

import re

from cloc_jax.data.layouts.listing import Item, count_of


def group_by_pattern(
    items: list[Item], group_pattern: str
) -> tuple[list[Item], list[str]]:
    """The items with their groups, and notes.

    The first group of the regular expression, searched in the file name, or its whole
    match, names the patient or subject. Names it misses stay without a group.
    """
    if not group_pattern:
        return items, []
    pattern = compile_pattern(group_pattern)
    grouped = []
    for item in items:
        match = pattern.search(item.id.rpartition("/")[2])
        name = match and ((pattern.groups and match[1]) or match[0])
        grouped.append(item._replace(group=name or None))
    single = [item.id for item in grouped if item.group is None]
    if len(single) == len(items):
        raise ValueError(
            f"data.group_pattern={group_pattern!r} matches no file name, such as "
            f"{items[0].id.rpartition('/')[2]}; give a pattern that finds the patient "
            "or subject in it, or none."
        )
    notes = []
    if single:
        notes.append(
            f"data.group_pattern finds nothing in {count_of(single)}, such as "
            f"{single[0]}; each of them was taken as its own group."
        )
    return grouped, notes


def compile_pattern(group_pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(group_pattern)
    except re.error as error:
        raise ValueError(
            f"data.group_pattern={group_pattern!r} is not a regular expression "
            f"({error}); give e.g. r'^(\\d+)' where file names start with the "
            "patient's number."
        ) from None
