"""What only the text of a compiled program tells: communications and launches."""

import math
import re

COLLECTIVES = (
    "all-gather all-reduce reduce-scatter all-to-all collective-permute"
).split()
# An asynchronous one is read where it is done: there its shape is that of the result.
_COLLECTIVE = re.compile(rf"= (\(.*\)|\S+) ({'|'.join(COLLECTIVES)})(?:-done)?\(")
_SHAPE = re.compile(r"\b(?:pred|[a-z]+(\d+)\w*)\[([\d,]*)\]")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"= (?:\(.*?\)|\S+) ([a-z][\w-]*)\((.*)$")
_CALLED = re.compile(
    r"(?:body|condition|to_apply|(?:true|false|branch)_computations?)=(\{[^}]*\}|[^,)]+)"
)
_NAME = re.compile(r"[\w.-]+")
_ROUNDS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
# Names for what is there already; the ends of what was started are left out too.
_FREE = (
    "after-all bitcast constant get-tuple-element opt-barrier parameter partition-id "
    "replica-id tuple"
).split()


def read_collectives(text: str) -> dict[str, dict[str, int]]:
    """Number of the communications of each kind, and bytes of their results.

    Bytes are per device; communications within loops count once.
    """
    sums: dict[str, dict[str, int]] = {}
    for shape, kind in _COLLECTIVE.findall(text):
        of_kind = sums.setdefault(kind, {"count": 0, "bytes": 0})
        of_kind["count"] += 1
        of_kind["bytes"] += sum(
            math.prod(int(n) for n in sizes.split(",") if n)
            * max(int(bits or 8) // 8, 1)
            for bits, sizes in _SHAPE.findall(shape)
        )
    return {kind: sums[kind] for kind in COLLECTIVES if kind in sums}


def count_launches(text: str) -> int:
    """Kernels, copies and communications that an optimized program starts.

    Loops count by their rounds (once where unknown), and of branches the longest one.
    """
    computations: dict[str, list[tuple[str, str]]] = {}
    entry = name = ""
    for line in text.splitlines():
        if head := _COMPUTATION.match(line):
            name = head[2]
            computations[name] = []
            entry = name if head[1] else entry
        elif name and (instruction := _INSTRUCTION.search(line)):
            computations[name].append((instruction[1], instruction[2]))
    return _launches_of(entry, computations)


def _launches_of(name: str, computations: dict[str, list[tuple[str, str]]]) -> int:
    total = 0
    for kind, rest in computations.get(name, ()):
        if kind in _FREE or kind.endswith("-done"):
            continue
        if kind not in ("while", "call", "conditional"):
            total += 1
            continue
        called = _NAME.findall(" ".join(_CALLED.findall(rest)))
        inside = [_launches_of(name, computations) for name in called]
        rounds = _ROUNDS.search(rest)
        once = max(inside) if kind == "conditional" else sum(inside)
        total += once * (int(rounds[1]) if rounds else 1)
    return total
