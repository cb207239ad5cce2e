"""Programs from shapes alone are those of the run; the job compiles and reads them."""

import json

import jax
import pytest
from launching import TINY, launched
from tiny_runs import stage_parts, tiny

from cloc_jax.bench import compiled_programs
from cloc_jax.runtime import sharding

CLOC = ["step joint", "step refine", "loss dense"]


def shapes(tree):
    return jax.tree.map(lambda x: (x.shape, str(x.dtype), x.sharding.spec), tree)


def test_a_step_takes_what_the_run_gives_it():
    config = tiny(mesh__devices=8, mesh__shape=(1, 8), head__hidden=256)
    _, carry, batch, _, _ = stage_parts(config)
    step = next(compiled_programs.programs(config, 5, sharding.make_mesh(8, (1, 8))))
    assert step.name == "step joint" and step.batch == 8
    assert shapes(step.arguments[0]) == shapes(carry)
    assert shapes(step.arguments[1]) == shapes(batch)


@pytest.mark.parametrize(
    "method, names",
    [
        ("cloc", CLOC),
        ("mwr", ["step fit"]),
        ("simclr", ["step pretrain", "step probe"]),
    ],
)
def test_programs_of_methods(method, names):
    config = tiny(method__name=method)
    found = list(compiled_programs.programs(config, 5, sharding.make_mesh(2)))
    assert [p.name for p in found] == names


def test_the_loss_gathers_and_scatters_embeddings_once():
    config = tiny(mesh__devices=8, encoder__widths=(2, 4, 4, 6))
    *_, loss = compiled_programs.programs(config, 5, sharding.make_mesh(8))
    costs = compiled_programs.compile_program(loss, "cpu")
    # The embeddings' gradients: each device keeps its share. Labels and the mask of
    # the batch are gathered beside the embeddings.
    assert costs["collectives"]["reduce-scatter"] == {"count": 1, "bytes": 6 * 4}
    gathered = costs["collectives"]["all-gather"]["bytes"]
    assert 8 * 6 * 4 <= gathered <= 8 * 6 * 4 + 3 * 8 * 4
    assert costs["peak"] >= costs["arguments"] > 0


@pytest.mark.slow
def test_through_launch(tmp_path):
    process = launched(
        "compile",
        *TINY,
        "--target=cpu:1,cpu:2",
        "--batches=8,9,16",
        "--run=here",
        cwd=tmp_path,
    )
    found = json.loads((tmp_path / "here/compile.json").read_text())
    rows = found["programs"]
    assert [r["program"] for r in rows if r["devices"] == 2] == CLOC * 2
    assert "batch 9 does not divide over cpu:2" in process.stdout
    for r in rows:
        assert r["fits"] and r["peak"] > 0
        assert r["launches"] > 0 and r["compile_seconds"] > 0
        assert bool(r["collectives"]) == (r["devices"] == 2)


@pytest.mark.tpu_compile
def test_for_a_tpu(tmp_path):
    pytest.importorskip("libtpu", reason="the optional extra `compile-tpu`")
    launched("compile", *TINY, "--target=v5e:2x2", "--programs=loss", cwd=tmp_path)
    file = tmp_path / "runs/quickstart-compile/compile.json"
    (loss,) = json.loads(file.read_text())["programs"]
    # On a TPU nobody has measured the dense form, so "auto" sorts.
    assert loss["program"] == "loss sorted" and loss["devices"] == 4
    assert loss["fits"] and loss["memory"] == 16 * 2**30
    assert loss["collectives"]["all-gather"]["count"] >= 1
