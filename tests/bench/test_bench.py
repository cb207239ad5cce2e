"""Benchmarks: what they measure is right; how long it took is not tested."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden_losses import CASES
from launching import TINY, launch, launched
from tiny_runs import tiny

from cloc_jax import losses
from cloc_jax.bench import cells, loss, stopwatch
from cloc_jax.cli import bench as job
from cloc_jax.runtime import crossovers, sharding
from cloc_jax.training import assembly

EIGHT = "--xla_force_host_platform_device_count=8"


@pytest.mark.parametrize("case", CASES)
def test_the_released_loop_equals_the_golden_values(case):
    torch = pytest.importorskip("torch", reason="the optional extra `parity`")
    from cloc_jax.bench.released_loop import mmnp_by_columns

    z = torch.tensor(case["z"], dtype=torch.float64, requires_grad=True)
    value = mmnp_by_columns(
        z, torch.tensor(case["y"]).long(), torch.tensor(case["margins"])
    )
    value.backward()
    np.testing.assert_allclose(value.item(), case["official"], rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(z.grad, case["grad_z"], rtol=1e-8, atol=1e-12)


def test_the_loop_of_rnc_equals_the_loss():
    torch = pytest.importorskip("torch", reason="the optional extra `parity`")
    from cloc_jax.bench.released_loop import rnc_by_columns

    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(6, 2, 5)), np.asarray([0, 3, 1, 1, 2, 0])
    z = torch.tensor(features, requires_grad=True)
    value = rnc_by_columns(z, torch.tensor(labels), 2.0)
    value.backward()
    with jax.enable_x64(True):
        ours, slope = jax.value_and_grad(losses.rnc)(
            jnp.asarray(features), jnp.asarray(labels), temperature=2.0
        )
    np.testing.assert_allclose(value.item(), ours, rtol=1e-12)
    np.testing.assert_allclose(z.grad, slope, rtol=1e-9, atol=1e-14)


def test_ratios_compare_what_has_the_same_size():
    def cell(algorithm, milliseconds, **changes):
        common = {"batch": 8, "dim": 4, "dtype": "float32", "devices": 1}
        return common | {"algorithm": algorithm, "milliseconds": milliseconds} | changes

    found = [cell("sorted", 2.0), cell("sorted", 1.0, batch=9), cell("released", 60.0)]
    assert cells.ratios(found) == [
        "batch 8, width 4, float32: released takes 30 times as long as sorted"
    ]


def test_programs_are_timed_in_turn():
    order = []
    programs = {
        name: stopwatch.Program(lambda name=name: order.append(name)) for name in "abc"
    }
    timings = stopwatch.interleaved(programs, rounds=4, warm_up=1)
    assert order == list("abc") * 5
    assert list(timings) == list("abc")
    assert all(0 <= t.low <= t.median <= t.high for t in timings.values())


def test_collectives_and_memory_are_read_from_the_program():
    mesh = sharding.make_mesh(8)
    x = jax.device_put(jnp.ones((16, 64), jnp.float32), sharding.split_batch(mesh))
    total = stopwatch.compiled(lambda x: jnp.sum(jnp.sin(x)), x)
    assert stopwatch.collectives(total) == {"all-reduce": 1}
    alone = stopwatch.compiled(jnp.sin, jnp.ones((4, 4), jnp.float32))
    assert stopwatch.collectives(alone) == {}
    big = stopwatch.compiled(
        lambda x: jnp.linalg.norm(jnp.sin(x @ x.T) @ x), jnp.ones((256, 8), jnp.float32)
    )
    assert stopwatch.temporary_bytes(big) >= 256 * 256 * 4


@pytest.mark.slow
def test_loss_benchmark_through_launch(tmp_path):
    process = launched(
        "bench",
        "--what=loss",
        "--batches=16,32,64",
        "--dims=8",
        "--devices=1,8",
        "--algorithms=dense,sorted",
        "--rounds=2",
        "--run=bench",
        cwd=tmp_path,
        XLA_FLAGS=EIGHT,
    )
    rows = [json.loads(line) for line in (tmp_path / "bench/bench.jsonl").open()]
    assert len(rows) == 3 * 3 * 2
    for row in rows:
        assert row["milliseconds"] > 0 and row["times_floor"] > 0
        assert row["environment"]["jax"] == jax.__version__
        communicates = bool(row["collectives"])
        assert communicates == (row["devices"] == 8)
    assert {r["algorithm"] for r in rows} == {"floor", "dense", "sorted"}
    assert (tmp_path / "bench" / "bench-loss.png").exists()
    assert "times floor" in process.stdout


@pytest.mark.slow
def test_the_benchmark_of_rnc_through_launch(tmp_path):
    launched(
        "bench",
        "--what=loss",
        "--loss=rnc",
        "--batches=8",
        "--dims=4",
        "--algorithms=sorted",
        "--rounds=2",
        "--run=bench",
        cwd=tmp_path,
    )
    rows = [json.loads(line) for line in (tmp_path / "bench/bench.jsonl").open()]
    assert [row["algorithm"] for row in rows] == ["floor", "sorted"]
    assert all(row["views"] == 2 and row["milliseconds"] > 0 for row in rows)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"algorithms": ["dense"]}, "--algorithms has dense; with --loss=rnc"),
        ({"devices": [8]}, "on one device in float32"),
    ],
)
def test_mistakes_with_rnc(change, message, tmp_path):
    grid = {"batches": [8], "dims": [4], "ranks": 3, "rounds": 1, "devices": [1]}
    with pytest.raises(ValueError, match=message):
        job.bench("loss", tiny(), tmp_path, of="rnc", **grid | change)


@pytest.mark.slow
def test_scaling_benchmark_through_launch(tmp_path):
    launched(
        "bench",
        *[a for a in TINY if "batch_size" not in a],
        "--what=scaling",
        "--batches=8",
        "--rounds=1",
        "--run=bench",
        cwd=tmp_path,
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )
    rows = [json.loads(line) for line in (tmp_path / "bench/bench.jsonl").open()]
    assert [row["devices"] for row in rows] == [1, 2]
    assert rows[0]["collectives"] == {} and rows[1]["collectives"]["all-reduce"] > 0


def test_calibration_is_found_by_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    small, large = (tiny(train__batch_size=size) for size in (64, 128))
    mesh = sharding.make_mesh(1)
    assert assembly.loss_form(small, mesh) == "sorted"
    crossovers.record(tmp_path / "cloc_jax", "cpu", 100)
    crossovers.record(tmp_path / "cloc_jax", "tpu", 7)
    assert assembly.loss_form(small, mesh) == "dense"
    assert assembly.loss_form(large, mesh) == "sorted"
    whole, spread = tiny(train__batch_size=2**15), sharding.make_mesh(8)
    assert assembly.loss_form(whole, mesh) == "blockwise"
    assert assembly.loss_form(whole, spread) == "sorted"
    small.method.cloc.algorithm = "sorted"  # asked for, so nothing is chosen
    assert assembly.loss_form(small, mesh) == "sorted"
    assert crossovers.read(tmp_path / "cloc_jax") == {"cpu": 100, "tpu": 7}


@pytest.mark.parametrize("damage", ["", "[1]", '{"cpu": "many"}', '{"cpu": 4'])
def test_a_damaged_calibration_is_as_none(tmp_path, damage):
    (tmp_path / crossovers.NAME).write_text(damage)
    assert crossovers.read(tmp_path) == {}
    crossovers.record(tmp_path, "cpu", 100)
    assert crossovers.read(tmp_path) == {"cpu": 100}


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--batches=a"], "--batches: got a; give whole numbers"),
        (["--what=speed"], "--what: invalid choice: 'speed'"),
        (["--meshes=2x"], "--meshes: got 2x; give sizes such as 8,2x4,1x8"),
        (["--rounds=0"], "--rounds: got 0; give a whole number, 1 or more"),
        (["--ranks=1"], "--ranks: got 1; give a whole number, 2 or more"),
        (["--dtypes=float64"], "--dtypes is float64; use some of float32"),
    ],
)
def test_mistakes(arguments, message, tmp_path):
    process = launch("bench", *arguments, cwd=tmp_path)
    assert process.returncode == 2 and message in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize(
    "change, message",
    [
        ({"batches": [100], "devices": [8]}, "does not divide over 8"),
        ({"devices": [9]}, "mesh.devices is 9, but there are 8"),
        ({"algorithms": ["dense", "fast"]}, "--algorithms has 'fast'; use some of"),
    ],
)
def test_mistakes_that_need_the_devices(change, message):
    grid = {
        "batches": [8],
        "dims": [4],
        "dtypes": ["float32"],
        "algorithms": ["dense"],
        "devices": [1],
        "ranks": 3,
        "rounds": 1,
    }
    with pytest.raises(ValueError, match=message):
        loss.bench_loss(**grid | change)
