"""Reading optimized programs: lines as the compilers write them, and one compiled."""

import pytest

from cloc_jax.bench import hlo_costs
from cloc_jax.bench.hlo_costs import Collective

LINES = {
    "  %all-reduce.7 = f32[64]{0} all-reduce(%x), channel_id=1, "
    "replica_groups=[1,8]<=[8], use_global_device_ids=true, to_apply=%add": Collective(
        "all-reduce", 256, 8
    ),
    "  ROOT %r = (f32[], bf16[3,5]{1,0:T(8,128)(2,1)S(1)}) all-reduce(%a, %b), "
    "replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%add": Collective(
        "all-reduce", 4 + 30, 4
    ),
    "  %ar = (f32[10]{0}, s32[2]{0}) all-reduce-start(%a, %b), replica_groups={}, "
    "to_apply=%add": Collective("all-reduce", 48, 0),
    "  %g = (f32[8,4]{1,0}, f32[64,4]{1,0}) all-gather-start(%p), "
    "replica_groups=[1,8]<=[8], dimensions={0}": Collective("all-gather", 1024, 8),
    "  %g2 = ((f32[8]{0}, pred[8]{0}), (f32[64]{0}, pred[64]{0})) all-gather-start("
    "%p, %q), replica_groups=[1,8]<=[8], dimensions={0}": Collective(
        "all-gather", 256 + 64, 8
    ),
    "  %s = f32[8,96]{1,0} reduce-scatter(%u), replica_groups=[2,4]<=[8], "
    "dimensions={0}, to_apply=%add": Collective("reduce-scatter", 4 * 8 * 96 * 4, 4),
    "  ROOT %m = f32[64]{0} all-reduce(%f), channel_id=1, replica_groups="
    "mesh['axis_0'=8,'axis_1'=3] {'axis_0'}, to_apply=%r": Collective(
        "all-reduce", 256, 8
    ),
    "  %m2 = f32[64]{0} all-reduce(%f), replica_groups="
    "mesh['a'=8,'b'=3] {'a':(2)4,'b'}, to_apply=%r": Collective("all-reduce", 256, 12),
    "  %p = f16[2,2]{1,0} collective-permute(%u), source_target_pairs={{0,1},{1,0}}": (
        Collective("collective-permute", 8, 0)
    ),
}


@pytest.mark.parametrize("line", LINES)
def test_a_communication(line):
    assert hlo_costs.read_collectives(line) == [LINES[line]]


@pytest.mark.parametrize(
    "line",
    [
        "  %done = f32[64]{0} all-reduce-done(%all-reduce-start.1)",
        "  %x = f32[64]{0} get-tuple-element(%all-gather), index=0",
        "  %all-reduce.3 = f32[64]{0} add(%a, %b)",
    ],
)
def test_lines_that_only_mention_one(line):
    assert hlo_costs.read_collectives(line) == []


def test_sums_per_kind():
    sums = hlo_costs.summarise(hlo_costs.read_collectives("\n".join(LINES)))
    assert sums["all-reduce"] == {"count": 5, "bytes": 3 * 256 + 34 + 48}
    assert sums["all-gather"]["count"] == 2 and "all-to-all" not in sums


def test_kernels_without_hints():
    text = """
      %c = f32[2]{0} custom-call(%a), custom_call_target="__cudnn$convForward"
      %d = f32[2]{0} custom-call(%a), custom_call_target="__cudnn$convForward"
      %e = f32[2]{0} custom-call(%a), custom_call_target="Sharding"
      %f = f32[2]{0} fusion(%a), backend_config={"kind":"__triton_gemm","x":1}
    """
    found = hlo_costs.read_kernels(text)
    assert found == {"__cudnn$convForward": 2, "__triton_gemm": 1}


def test_casts_between_floats():
    text = """
%fused (param_0.1: bf16[4,8]) -> f32[4,8] {
  %param_0.1 = bf16[4,8]{1,0} parameter(0)
  %c.1 = f32[4,8]{1,0} convert(%param_0.1), metadata={op_name="x"}
  %c.2 = bf16[4,8]{1,0} convert(f32[4,8]{1,0} %c.1)
  %c.3 = f32[] convert(%c.2)
  %i = s32[4]{0} constant({1,2,3,4})
  ROOT %c.4 = f32[4]{0} convert(%i)
}
"""
    assert hlo_costs.read_casts(text) == {
        "bf16 -> f32": {"count": 2, "elements": 33},
        "f32 -> bf16": {"count": 1, "elements": 32},
    }
