"""Benchmarks: what they measure is right; how long it took is not tested."""

import json

import jax
import jax.numpy as jnp
import pytest
from launching import launched
from tiny_runs import tiny

from cloc_jax.bench import measurement, throughput
from cloc_jax.runtime import sharding
from cloc_jax.training import assembly


def test_programs_are_timed_in_turn():
    order = []
    programs = {
        name: measurement.Program(lambda name=name: order.append(name))
        for name in "abc"
    }
    timings = measurement.interleaved(programs, rounds=4, warm_up=1)
    assert order == list("abc") * 5
    assert list(timings) == list("abc")
    for timing in timings.values():
        low, high = timing["quartiles"]
        assert 0 <= low <= timing["milliseconds"] <= high


def test_collectives_and_memory_are_read_from_the_program():
    mesh = sharding.make_mesh(8)
    x = jax.device_put(jnp.ones((16, 64), jnp.float32), sharding.split_batch(mesh))
    programs = {
        "total": measurement.compiled(lambda x: jnp.sum(jnp.sin(x)), x),
        "alone": measurement.compiled(jnp.sin, jnp.ones((4, 4), jnp.float32)),
        "big": measurement.compiled(
            lambda x: jnp.linalg.norm(jnp.sin(x @ x.T) @ x),
            jnp.ones((256, 8), jnp.float32),
        ),
    }
    total, alone, big = measurement.measure(programs, {"batch": 16}, rounds=1)
    assert total["collectives"] == {"all-reduce": 1} and alone["collectives"] == {}
    assert big["temporary_mib"] >= 256 * 256 * 4 / 2**20
    rate = 16 / (big["milliseconds"] / 1e3)
    assert big["samples_per_second"] == pytest.approx(rate)


@pytest.mark.slow
def test_through_launch(tmp_path):
    process = launched(
        "bench",
        "--batches=16,32",
        "--dims=8",
        "--meshes=1,2x4",
        "--rounds=2",
        "--run=bench",
        cwd=tmp_path,
        XLA_FLAGS="--xla_force_host_platform_device_count=8",
    )
    rows = [json.loads(line) for line in (tmp_path / "bench/bench.jsonl").open()]
    assert len(rows) == 3 * 2 * 2
    for row in rows:
        assert row["milliseconds"] > 0 and row["times_floor"] > 0
        assert row["environment"]["jax"] == jax.__version__
        communicates = bool(row["collectives"])
        assert communicates == (row["devices"] == 8)
    assert {r["algorithm"] for r in rows} == {"floor", "dense", "sorted"}
    assert "times floor" in process.stdout


def test_the_form_of_the_loss_that_runs_take():
    mesh, spread = sharding.make_mesh(1), sharding.make_mesh(8)
    small, large = tiny(train__batch_size=32), tiny(train__batch_size=2**15)
    assert assembly.loss_form(small, mesh) == "dense"
    assert assembly.loss_form(tiny(train__batch_size=64), mesh) == "sorted"
    assert assembly.loss_form(large, mesh) == "blockwise"
    assert assembly.loss_form(large, spread) == "sorted"
    small.method.cloc.algorithm = "sorted"  # asked for, so nothing is chosen
    assert assembly.loss_form(small, mesh) == "sorted"


def test_the_step_needs_no_dataset():
    config = tiny(method__name="mwr", data__name="folder", data__root="nowhere")
    config.method.mwr.hidden = 8
    (cell,) = throughput.bench_step(
        config, batches=[8], meshes=[(2,)], ranks=4, rounds=1
    )
    assert (cell["batch"], cell["devices"]) == (8, 2)
    assert cell["collectives"]["all-reduce"]
