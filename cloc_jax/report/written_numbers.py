"""Numbers as the report writes them."""

import math
from collections.abc import Sequence

DASH = "–"  # stands for a number that is not defined


def written(kind: str, value: float | int | None) -> str:
    """A "percent" or a "number"."""
    return percent(value) if kind == "percent" else number(value)


def interval(kind: str, ends: Sequence[float] | None) -> str | None:
    """An interval in words; None where there is none."""
    if not ends:
        return None
    low, high = (written(kind, end) for end in ends)
    return f"{low.removesuffix('%')} to {high}"


def percent_interval(ends: Sequence[float] | None) -> str | None:
    """An interval of a rate in words; None where there is none."""
    return interval("percent", ends)


def percent(value: float | int | None) -> str:
    """A rate, such as "12.5%"."""
    if value is None or not math.isfinite(value):
        return DASH
    return f"{100 * value:.1f}%"


def number(value: float | int | None) -> str:
    """Three digits, with a proper minus."""
    if value is None or not math.isfinite(value):
        return DASH
    return f"{value:.3f}".replace("-", "−")


def duration(seconds: float | int | None) -> str:
    """Seconds, minutes or hours."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    if seconds < 59.95:  # rounds to less than a minute
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
