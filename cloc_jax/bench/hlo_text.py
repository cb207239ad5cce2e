"""What only the text of a compiled program tells: communications and launches."""

import math
import re

COLLECTIVES = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
)
# An asynchronous one is read where it is done: there its shape is that of the result.
_COLLECTIVE = re.compile(rf"= (\(.*\)|\S+) ({'|'.join(COLLECTIVES)})(?:-done)?\(")
_SHAPE = re.compile(r"\b(?:pred|[a-z]+(\d+)\w*)\[([\d,]*)\]")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"= (?:\(.*?\)|\S+) ([a-z][\w-]*)\((.*)$")
_CALLED = re.compile(r"(?:body|condition|to_apply|calls)=%?([\w.-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TWO_BRANCHES = re.compile(r"(?:true|false)_computation=%?([\w.-]+)")
_ROUNDS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
# Names for what is there already; the ends of what was started are left out too.
_FREE = {
    "after-all",
    "bitcast",
    "constant",
    "get-tuple-element",
    "opt-barrier",
    "parameter",
    "partition-id",
    "replica-id",
    "tuple",
}


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

    Loops count by their rounds (once where the compiler does not know how many), and of
    branches the one that starts most.
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
        if kind == "conditional":
            branches = _TWO_BRANCHES.findall(rest)
            if listed := _BRANCHES.search(rest):
                branches = [branch.strip(" %") for branch in listed[1].split(",")]
            total += max(_launches_of(b, computations) for b in branches)
        elif kind in ("while", "call"):
            rounds = _ROUNDS.search(rest)
            called = _CALLED.findall(rest)
            inside = sum(_launches_of(c, computations) for c in called)
            total += inside * (int(rounds[1]) if rounds else 1)
        else:
            total += 1
    return total
