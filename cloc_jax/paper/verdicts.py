"""What one study says about a claim, and the rule by which that is decided."""

from collections.abc import Sequence
from typing import NamedTuple

HOLDS, FAILS, OPEN = "holds", "does not hold", "not shown"


class Evidence(NamedTuple):
    """What one study says about a claim."""

    setting: str
    found: str
    verdict: str
    runs: tuple[str, ...] = ()  # settings of the study that it is about; () for all


def of_interval(ends: Sequence[float], *, is_lower_better: bool) -> str:
    """The verdict on a difference that the claim says is an improvement.

    Args:
      ends: of the 95% interval of the difference.
      is_lower_better: whether a negative difference is the improvement.
    """
    low, high = ends
    if not (low > 0 or high < 0):  # also where there is no interval
        return OPEN
    return HOLDS if (high < 0) == is_lower_better else FAILS


def signed(value: float, ends: Sequence[float]) -> str:
    """A difference with its interval, as it is printed."""
    return f"{value:+.3f} [{ends[0]:+.3f}, {ends[1]:+.3f}]"
