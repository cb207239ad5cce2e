"""Text as it may be shown: names of files can hold anything but a slash.

Escape sequences would be obeyed by a terminal, marks of direction show a name in
another order, and bytes that are not UTF-8 cannot be written at all. Files carry names
unchanged (`errors="surrogateescape"`); people see them through `printable`.
"""

import re

# Control characters but tab and newline, marks of direction and of lines, surrogates.
_RAW = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    r"""The text with what is not safe to show written as \x1b or \u202e."""
    return _RAW.sub(_written, text)


def _written(match: re.Match[str]) -> str:
    character = match[0]
    if "\udc80" <= character <= "\udcff":  # a byte that is not UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
