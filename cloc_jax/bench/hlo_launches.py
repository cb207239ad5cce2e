"""How often a compiled program starts a kernel, read from its text."""

import re

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


def count(text: str) -> int:
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
        elif name and (found := _INSTRUCTION.search(line)):
            computations[name].append((found[1], found[2]))
    return _of_computation(entry, computations)


def _of_computation(name: str, computations: dict[str, list[tuple[str, str]]]) -> int:
    total = 0
    for kind, rest in computations.get(name, ()):
        if kind in _FREE or kind.endswith("-done"):
            continue
        if kind == "conditional":
            branches = _TWO_BRANCHES.findall(rest)
            if listed := _BRANCHES.search(rest):
                branches = [branch.strip(" %") for branch in listed[1].split(",")]
            total += max(_of_computation(b, computations) for b in branches)
        elif kind in ("while", "call"):
            rounds = _ROUNDS.search(rest)
            inside = sum(
                _of_computation(called, computations)
                for called in _CALLED.findall(rest)
            )
            total += inside * (int(rounds[1]) if rounds else 1)
        else:
            total += 1
    return total
