"""The order of rank names: as given, or by the numbers they start with."""

import collections
import itertools
import math
import re
from collections.abc import Sequence

from cloc_jax.data.layouts.listing import comma, plural
from cloc_jax.runtime.errors import printable

GAP = 10  # missing numbers that a note names one by one
NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
# What programs write where there is no value; never a rank, unless data.order has it.
NO_VALUE = ("nan", "n/a", "<na>", "null")


def number(name: str) -> float | None:
    """The number that a name is or starts with; None where it does neither.

    1e1 is 10; but only a whole name is read so, and 1early starts with 1.
    """
    match = NUMBER.match(name)
    if match is None:
        return None
    try:
        value = float(name)
    except ValueError:
        value = float(match[0])
    return value if math.isfinite(value) else None


def order_ranks(
    names: Sequence[str], order: Sequence[str], *, what: str, where: str
) -> tuple[tuple[str, ...], list[str]]:
    """Rank names, lowest first, and notes on how that was settled.

    Args:
        names: The different names found.
        order: All of them from lowest to highest, or () to go by their numbers.
        what: What carries a name, "folder" or "label", for messages.
        where: Where the names were found, for messages.
    """
    check_case(names, what=what, where=where)
    _check_text(names, what, where)
    notes = []
    if order:
        ranks = _given(names, order, what, where)
    else:
        ranks = _by_number(names, what, where)
        notes.append(f"Ranks by the numbers of their {what}s: {' < '.join(ranks)}.")
        if absent := _gaps(ranks):
            notes.append(
                f"No {what} is called {absent}; the ranks around such a gap count as "
                "neighbours."
            )
    if len(ranks) == 1:
        raise ValueError(
            f"{where} has only one rank {what}, {ranks[0]}; grading needs at least two."
        )
    return ranks, notes


def _gaps(ranks: Sequence[str]) -> str:
    """The whole numbers that are missing between ranks, in words; "" for none."""
    if not all(rank.isdecimal() and len(rank) < 16 for rank in ranks):
        return ""
    absent: list[str] = []
    for lower, upper in itertools.pairwise(map(int, ranks)):
        few = range(lower + 1, min(upper, lower + 1 + GAP))
        absent += map(str, few)
        if upper - lower > GAP + 1:  # labels need not be close to each other
            absent.append(f"… {upper - 1}")
    return comma(absent)


def check_case(names: Sequence[str], *, what: str, where: str) -> None:
    """ValueError where two names differ only in case."""
    lower = collections.Counter(name.lower() for name in names)
    same = sorted(name for name in names if lower[name.lower()] > 1)
    if same:
        raise ValueError(
            f"{where} has rank {what}s that differ in case only: {comma(same)}; merge "
            "or rename them."
        )


def _check_text(names: Sequence[str], what: str, where: str) -> None:
    """ValueError for names that cannot be written everywhere: pages, plots, tables."""
    odd = [name for name in names if printable(name) != name or "\n" in name]
    if odd:
        raise ValueError(
            f"{where} has rank {what}s with control characters or bytes that are not "
            f"UTF-8: {comma(map(repr, odd))}; rename them."
        )


def _given(
    names: Sequence[str], order: Sequence[str], what: str, where: str
) -> tuple[str, ...]:
    if isinstance(order, str):
        raise ValueError(
            f"data.order is the text {order!r}; give a tuple of {what} names, lowest "
            "rank first, e.g. ('healthy', 'mild', 'severe')."
        )
    ranks = tuple(str(name) for name in order)
    twice = [name for name, count in collections.Counter(ranks).items() if count > 1]
    missing = [name for name in ranks if name not in names]
    extra = [name for name in names if name not in ranks]
    problems = []
    if twice:
        problems.append(f"it names {comma(twice)} more than once")
    if missing:
        problems.append(f"there is no {what} {comma(missing)}")
    if extra:
        problems.append(f"it leaves out the {plural(extra, what)} {comma(extra)}")
    if problems:
        raise ValueError(
            f"data.order={ranks} does not fit the {what}s in {where}: "
            f"{'; '.join(problems)}. Name each of {comma(names)} once, lowest rank "
            f"first, and take out {what}s that are no ranks."
        )
    return ranks


def _by_number(names: Sequence[str], what: str, where: str) -> tuple[str, ...]:
    if absent := [name for name in names if name.lower() in NO_VALUE]:
        raise ValueError(
            f"{where} has the {plural(absent, what)} {comma(absent)}, which means that "
            f"there is no value, so it was not taken for a rank; remove or rename it, "
            "or name all ranks in data.order if it is one."
        )
    example = f"data.order=({', '.join(repr(name) for name in names)})"
    found = {name: number(name) for name in names}
    numbers = {name: value for name, value in found.items() if value is not None}
    if len(numbers) < len(names):
        raise ValueError(
            f"the order of the rank {what}s in {where} is unknown: {comma(names)} do "
            "not all start with a finite number, and the alphabet is no order of "
            "grades. "
            f"Give them lowest rank first: {example}, rearranged."
        )
    counts = collections.Counter(numbers.values())
    same = [name for name in names if counts[numbers[name]] > 1]
    if same:
        raise ValueError(
            f"the order of the rank {what}s in {where} is unknown: {comma(same)} start "
            f"with the same number. Give all lowest rank first: {example}, rearranged."
        )
    return tuple(sorted(names, key=numbers.__getitem__))
