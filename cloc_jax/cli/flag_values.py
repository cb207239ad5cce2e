"""Readers of what is given to flags: each says what came and what was wanted."""

import argparse
import re
from collections.abc import Callable, Sequence


def numbers(kind: type, least: float | int, wanted: str) -> Callable[[str], list]:
    """Reads numbers with commas between them."""

    def read(text: str) -> list:
        try:
            values = [kind(value) for value in text.split(",") if value.strip()]
        except ValueError:
            values = []
        if not values or min(values) < least:
            raise argparse.ArgumentTypeError(f"got {text}; give {wanted}")
        return values

    return read


def at_least(least: int) -> Callable[[str], int]:
    """Reads a whole number."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(
                f"got {text}; give a whole number, {least} or more"
            )
        return value

    return read


def words(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Reads some of the known words with commas between them."""

    def read(text: str) -> list[str]:
        found = [word.strip() for word in text.split(",") if word.strip()]
        unknown = [word for word in found if word not in known]
        if not found or unknown:
            raise argparse.ArgumentTypeError(
                f"got {text}; give some of {', '.join(known)} with commas between them"
            )
        return list(dict.fromkeys(found))

    return read


def shapes(text: str) -> list[tuple[int, ...]]:
    """Reads shapes of meshes with commas between them, such as 8,2x4."""
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch(r"[1-9]\d*(x[1-9]\d*)?", word) for word in words):
        raise argparse.ArgumentTypeError(f"got {text}; give sizes such as 8,2x4,1x8")
    return [tuple(map(int, word.split("x"))) for word in words]
