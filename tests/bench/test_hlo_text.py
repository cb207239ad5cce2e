"""Reading optimized programs: lines as the compilers write them."""

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
