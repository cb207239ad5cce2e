"""What the compiler made of a program, read from its text: communication, kernels."""

import math
import re
from typing import NamedTuple

COLLECTIVES = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
)
# The whole shape, the kind, whether it is only started here, and all that follows.
_CALL = re.compile(
    rf"= (\(.*\)|\S+) ({'|'.join(COLLECTIVES)})(-start)?\((.*)$", re.MULTILINE
)
_SHAPE = re.compile(r"\b([a-z]+\d*(?:e\d+m\d+\w*)?)\[([\d,]*)\]")
_LISTED = re.compile(r"replica_groups=\{\{([\d,]+)\}")
_IOTA = re.compile(r"replica_groups=\[(\d+),(\d+)\]")
_MESH = re.compile(r"replica_groups=mesh\[(.*?)\] \{(.*?)\}")
_AXIS = re.compile(r"'(\w+)'=(\d+)")
_USED = re.compile(r"'(\w+)'(?::\(\d+\)(\d+))?")  # a part of an axis: 'x':(2)4
_KERNEL = re.compile(r'custom_call_target="([^"]+)"')
_TRITON = re.compile(r'"kind":"(__triton[^"]*)"')
# Custom calls that are no kernels: hints of one pass to another, and what XLA's TPU
# compiler calls its own.
_HINTS = (
    "Sharding",
    "SPMD",
    "annotate",
    "AllocateBuffer",
    "Assume",
    "xla.sdy",
    "AsyncCollective",
    "GatherScatterIndices",
    "ConcatBitcast",
    "ZeroCrop",
)


_NAMED = re.compile(r"%([\w.-]+) = ([a-z]+\d+)\[")
_CAST = re.compile(r"= ([a-z]+\d+)\[([\d,]*)\]\S* convert\((?:\S+ )?%([\w.-]+)\)")
_FLOATS = ("bf16", "f16", "f32", "f64")


class Collective(NamedTuple):
    """One communication."""

    kind: str
    bytes: int  # of the whole array: what is reduced, or what is gathered
    devices: int  # that take part with each other; 0 for all


def read_collectives(text: str) -> list[Collective]:
    """The communications of an optimized program, those within loops once."""
    found = []
    for shape, kind, is_started, rest in _CALL.findall(text):
        devices = _group_size(rest)
        size = _bytes_of(_result(shape, kind) if is_started else shape)
        if kind == "reduce-scatter":
            size *= max(devices, 1)  # its result is a device's share
        found.append(Collective(kind, size, devices))
    return found


def summarise(found: list[Collective]) -> dict[str, dict[str, int]]:
    """Number and bytes of the communications of each kind."""
    return {
        kind: {
            "count": sum(c.kind == kind for c in found),
            "bytes": sum(c.bytes for c in found if c.kind == kind),
        }
        for kind in COLLECTIVES
        if any(c.kind == kind for c in found)
    }


def read_kernels(text: str) -> dict[str, int]:
    """How often an optimized program calls kernels that XLA did not write itself.

    cuDNN's, cuBLAS's and Triton's on a GPU, Mosaic's on a TPU, oneDNN's on a CPU.
    """
    names = [n for n in _KERNEL.findall(text) if not n.startswith(_HINTS)]
    names += _TRITON.findall(text)
    return {name: names.count(name) for name in sorted(set(names))}


def read_casts(text: str) -> dict[str, dict[str, int]]:
    """Number and elements of the casts of an optimized program, by "from -> to".

    Only those between types of floating-point numbers. Most of them are a part of some
    kernel that reads or writes the array anyway.
    """
    kinds = dict(_NAMED.findall(text))
    found: dict[str, dict[str, int]] = {}
    for target, sizes, operand in _CAST.findall(text):
        source = kinds.get(operand, "")
        if source in _FLOATS and target in _FLOATS:
            sums = found.setdefault(
                f"{source} -> {target}", {"count": 0, "elements": 0}
            )
            sums["count"] += 1
            sums["elements"] += math.prod(int(n) for n in sizes.split(",") if n)
    return dict(sorted(found.items()))


def _result(shape: str, kind: str) -> str:
    """The result's part of the tuple that a started communication gives."""
    if kind not in ("all-gather", "collective-permute", "reduce-scatter"):
        return shape
    parts = _split(shape)
    return parts[1] if len(parts) > 1 else shape  # operand, result, …


def _split(shape: str) -> list[str]:
    """The outermost parts of a tuple's text."""
    parts, depth, start = [], 0, 1
    for place, letter in enumerate(shape):
        if letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        if (letter == "," and depth == 1) or (depth == 0 and letter == ")"):
            parts.append(shape[start:place])
            start = place + 1
    return parts


def _bytes_of(shape: str) -> int:
    return sum(
        math.prod(int(n) for n in sizes.split(",") if n) * _width(kind)
        for kind, sizes in _SHAPE.findall(_without_layouts(shape))
    )


def _without_layouts(shape: str) -> str:
    return re.sub(r"\{[^{}]*\}", "", shape)


def _width(kind: str) -> int:
    """Bytes of an element; "pred" has one."""
    bits = re.match(r"[a-z]+(\d+)", kind)
    return max(int(bits[1]) // 8, 1) if bits else 1


def _group_size(rest: str) -> int:
    if listed := _LISTED.search(rest):
        return listed[1].count(",") + 1
    if iota := _IOTA.search(rest):
        return int(iota[2])
    if mesh := _MESH.search(rest):
        sizes = dict(_AXIS.findall(mesh[1]))
        used = _USED.findall(mesh[2])
        return math.prod(int(part or sizes[axis]) for axis, part in used)
    return 0
