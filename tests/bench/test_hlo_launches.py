"""Counting what a compiled program starts: by hand, and one that is compiled here."""

import jax
import jax.numpy as jnp

from cloc_jax.bench import hlo_launches

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
    assert hlo_launches.count(TEXT) == 1 + 5 * 3 + 1 + 1


def test_a_compiled_loop():
    def function(x, rounds):
        return jax.lax.fori_loop(0, rounds, lambda i, x: jnp.sort(jnp.sin(x) + i), x)

    shape = jax.ShapeDtypeStruct((64,), jnp.float32)
    texts = [
        jax.jit(function, static_argnums=1).lower(shape, n).compile().as_text()
        for n in (10, 20)
    ]
    few, many = map(hlo_launches.count, texts)
    assert few > 10 and 1.5 * few < many < 2.1 * few
