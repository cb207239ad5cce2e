"""Reading optimized programs: lines as the compilers write them, and compiled ones."""

import pytest

from cloc_jax.bench import hlo_text

LINES = {
    "  %all-reduce.7 = f32[64]{0} all-reduce(%x), channel_id=1, "
    "replica_groups=[1,8]<=[8], use_global_device_ids=true, to_apply=%add": (
        "all-reduce",
        256,
    ),
    "  ROOT %r = (f32[], bf16[3,5]{1,0:T(8,128)(2,1)S(1)}) all-reduce(%a, %b), "
    "replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%add": ("all-reduce", 4 + 30),
    "  %g = f32[64,4]{1,0} all-gather-done(%all-gather-start)": ("all-gather", 1024),
    "  %g2 = (f32[64]{0}, pred[64]{0}) all-gather-done(%start)": (
        "all-gather",
        256 + 64,
    ),
    "  %s = f32[8,96]{1,0} reduce-scatter(%u), replica_groups=[2,4]<=[8], "
    "dimensions={0}, to_apply=%add": ("reduce-scatter", 8 * 96 * 4),
    "  %p = f8e4m3fn[2,2]{1,0} collective-permute(%u), source_target_pairs={{0,1}}": (
        "collective-permute",
        4,
    ),
}


@pytest.mark.parametrize("line", LINES)
def test_a_communication(line):
    kind, size = LINES[line]
    assert hlo_text.read_collectives(line) == {kind: {"count": 1, "bytes": size}}


@pytest.mark.parametrize(
    "line",
    [
        "  %g = (f32[8]{0}, f32[64]{0}) all-gather-start(%p), dimensions={0}",
        "  %x = f32[64]{0} get-tuple-element(%all-gather), index=0",
        "  %all-reduce.3 = f32[64]{0} add(%a, %b)",
    ],
)
def test_lines_that_only_mention_one(line):
    assert hlo_text.read_collectives(line) == {}


def test_sums_per_kind():
    sums = hlo_text.read_collectives("\n".join(LINES))
    assert sums["all-reduce"] == {"count": 2, "bytes": 256 + 34}
    assert sums["all-gather"]["count"] == 2 and "all-to-all" not in sums


TEXT = """
HloModule jit_f, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

%fused (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %n = f32[8]{0} negate(%p)
}

%body (t: (s32[], f32[8])) -> (s32[], f32[8]) {
  %t = (s32[], f32[8]{0}) parameter(0)
  %x = f32[8]{0} get-tuple-element(%t), index=1
  %f.1 = f32[8]{0} fusion(%x), kind=kLoop, calls=%fused
  %f.2 = f32[8]{0} fusion(%f.1), kind=kLoop, calls=%fused
  ROOT %r = (s32[], f32[8]{0}) tuple(%i, %f.2)
}

%condition (t.1: (s32[], f32[8])) -> pred[] {
  %t.1 = (s32[], f32[8]{0}) parameter(0)
  ROOT %l = pred[] compare(%i.1, %c), direction=LT
}

%one (q: f32[8]) -> f32[8] {
  %q = f32[8]{0} parameter(0)
  ROOT %s = f32[8]{0} sort(%q), dimensions={0}, to_apply=%less
}

%none (q.1: f32[8]) -> f32[8] {
  ROOT %q.1 = f32[8]{0} parameter(0)
}

ENTRY %main.1 (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %start = f32[8]{0} all-reduce-start(%a), to_apply=%add
  %done = f32[8]{0} all-reduce-done(%start)
  %w = (s32[], f32[8]{0}) while(%t.2), condition=%condition, body=%body, \
backend_config={"known_trip_count":{"n":"5"}}
  %c.1 = f32[8]{0} conditional(%b, %a, %a), branch_computations={%none, %one}
  ROOT %g = f32[8]{0} call(%c.1), to_apply=%one
}
"""


def test_rounds_and_branches():
    # The all-reduce, five rounds of two fusions and a comparison, a sort in the larger
    # branch, and one in what is called.
    assert hlo_text.count_launches(TEXT) == 1 + 5 * 3 + 1 + 1
