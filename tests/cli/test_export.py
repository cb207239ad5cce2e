"""A run handed over: the folder, and what it gives in a process of its own."""

import csv
import json
import shutil

import cv2
import jax
import jaxtyping
import numpy as np
import pytest
from damage import flip
from exported_runs import untrained_run
from finished_runs import finished_run
from launching import TINY, launched, run_code
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from tiny_runs import SMALL_METHODS, tiny

import cloc_jax
from cloc_jax.cli import export, main
from cloc_jax.data import drawn_knees
from cloc_jax.runtime import files
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import decisions, exported_model
from cloc_jax.training import assembly, trained_run
from cloc_jax.training.trained_run import TrainedRun

IMAGES = drawn_knees.Knees(9, start=10_000, seed=3, size=(24, 24))
ARRAYS = [IMAGES[i] for i in range(9)]


def exported(config, place):
    folder = untrained_run(config, place / "run")
    # jaxtyping cannot broadcast the symbol that stands for the number of images.
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        export.export(config, folder, place / "out")
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
    return folder


def of_run(config, folder, size):
    """What `predict` says of the images, in batches of that size."""
    run = TrainedRun(config, folder)
    parts = [
        run.predict_images(ARRAYS[first : first + size], size)
        for first in range(0, len(ARRAYS), size)
    ]
    found = jax.tree.map(lambda *rows: np.concatenate(rows), *parts)
    return decisions.grade(found, run.ranks, None)


def assert_same(found, wanted):
    for name, value in wanted._asdict().items():
        other = getattr(found, name)
        if isinstance(value, np.ndarray):
            assert other.dtype == value.dtype and other.tobytes() == value.tobytes()
        else:
            assert other == value


@pytest.fixture(scope="module")
def handed_over(tmp_path_factory):
    """CLOC, batches of four images: the last one is not full."""
    place = tmp_path_factory.mktemp("export")
    config = tiny(train__eval_batch_size=4)
    return config, exported(config, place), place / "out"


def test_gives_what_the_run_gives_to_the_bit(handed_over):
    config, folder, out = handed_over
    wanted = of_run(config, folder, 4)
    found = cloc_jax.load(out)(ARRAYS)
    assert_same(found, wanted)
    assert len(found.predicted) == 9 and found.probabilities.shape == (9, 5)


def test_takes_paths_arrays_and_one_of_them(handed_over, tmp_path):
    model = cloc_jax.load(handed_over[2])
    path = tmp_path / "image.png"
    cv2.imwrite(str(path), ARRAYS[0])
    wanted = model(str(path))
    colour = np.repeat(ARRAYS[0], 3, axis=2)
    for given in (path, [path], ARRAYS[0], ARRAYS[0][..., 0], colour, ARRAYS[0][None]):
        assert_same(model(given), wanted)
    many = model(np.stack(ARRAYS))
    assert many.predicted == model(ARRAYS).predicted
    with pytest.raises(ValueError, match="float32.*uint8"):
        model(ARRAYS[0].astype(np.float32))
    with pytest.raises(ValueError, match="no images came"):
        model([])


def test_what_is_not_finite_has_no_grade(handed_over, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(handed_over[2], out)
    path = out / exported_model.WEIGHTS
    arrays = load_file(path)
    next(iter(arrays.values())).flat[0] = np.inf
    save_file(arrays, path)
    seal = files.read_sealed(out / files.SEAL, remedy="")
    seal["files"][path.name] = files.sha256(path)
    files.write_sealed(out / files.SEAL, seal)
    with pytest.raises(
        ValueError, match="out gives .* not finite, such as for image 0"
    ):
        cloc_jax.load(out)(ARRAYS)


def test_one_artifact_for_every_platform_and_batch(handed_over):
    data = bytearray((handed_over[2] / exported_model.PROGRAM).read_bytes())
    program = jax.export.deserialize(data)
    assert program.platforms == ("cpu", "cuda", "tpu") and program.nr_devices == 1
    assert str(program.in_avals[-1].shape) == "(batch, 24, 24, 1)"


def test_the_card_is_of_the_run(handed_over):
    card = (handed_over[2] / exported_model.CARD).read_text()
    assert "0 < 1 < 2 < 3 < 4" in card and "48 images to train on" in card
    assert "not evaluated" in card  # nothing is claimed that was not measured


def test_a_damaged_folder_is_refused(handed_over, tmp_path):
    again = tmp_path / "again"
    shutil.copytree(handed_over[2], again)
    (again / exported_model.CARD).write_text("my own words")  # people may edit it
    assert_same(cloc_jax.load(again)(ARRAYS), cloc_jax.load(handed_over[2])(ARRAYS))
    weights = again / exported_model.WEIGHTS
    flip(weights, 1000)
    with pytest.raises(ValueError, match="damaged: it does not match .* export"):
        cloc_jax.load(again)
    weights.unlink()
    with pytest.raises(ValueError, match=f"{weights.name} is damaged: it is missing"):
        cloc_jax.load(again)
    with pytest.raises(ValueError, match="it is missing.*launch.py export"):
        cloc_jax.load(tmp_path / "nowhere")


def test_rebuilt_from_weights_and_configuration(handed_over):
    """What a converter to ONNX traces says the same as the program."""
    out = handed_over[2]
    predict = trained_run.rebuild_program(out)
    wanted = cloc_jax.load(out)(ARRAYS)
    images = jax.numpy.asarray(np.stack(ARRAYS))
    # Converters know no choice by platform; the strided 1x1 kernels have one.
    assert "platform_index" not in str(jax.make_jaxpr(predict)(images))
    found = predict(images)
    np.testing.assert_array_equal(found["label"], wanted.labels)
    np.testing.assert_allclose(found["probabilities"], wanted.probabilities, rtol=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        "gol",  # has a bank, and probabilities above boundaries
        pytest.param("mwr", marks=pytest.mark.slow),  # a bank of pairs
        pytest.param("poe", marks=pytest.mark.slow),  # draws samples
        pytest.param("simclr", marks=pytest.mark.slow),  # pretrains
        pytest.param("clm", marks=pytest.mark.slow),  # a head of its own
    ],
)
def test_every_method_can_be_handed_over(name, tmp_path):
    config = tiny(method__name=name, train__eval_batch_size=4, **SMALL_METHODS)
    folder = exported(config, tmp_path)
    out = tmp_path / "out"
    assert (out / exported_model.SUPPORT).exists() == (
        TrainedRun(config, folder).support is not None
    )
    assert_same(cloc_jax.load(out)(ARRAYS), of_run(config, folder, 4))


FROZEN = [
    {"encoder.frozen": True, "head.projection": 4},
    pytest.param({"encoder.trainable_from": "layer3"}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("changes", FROZEN)
def test_frozen_parts_are_handed_over_too(changes, tmp_path):
    config = tiny(**{"train.eval_batch_size": 4} | changes)
    for name in config.augment:
        config.augment[name] = 0.0  # kept activations are of clean images
    folder = exported(config, tmp_path)
    model = cloc_jax.load(tmp_path / "out")
    assert_same(model(ARRAYS), of_run(config, folder, 4))
    with safe_open(tmp_path / "out" / exported_model.WEIGHTS, "numpy") as file:
        names = list(file.keys())
    trunk = {name.split(".")[1] for name in names if name.startswith("trunk.")}
    assert trunk == (
        {"stem", "layer1", "layer2"}
        if "encoder.trainable_from" in changes
        else {"stem", "layer1", "layer2", "layer3", "layer4"}
    )


def test_only_what_it_made_is_removed(handed_over, tmp_path, monkeypatch):
    """Neither what looks like a part nor what another export made meanwhile."""
    config, folder, _ = handed_over
    (tmp_path / "out.part").mkdir()
    (tmp_path / "out.part" / "notes.txt").write_text("mine")

    def program_of(run):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "model.jax").write_text("of another")
        return trained_run.Program(b"", {}, {}, ())

    monkeypatch.setattr(trained_run, "export_program", program_of)
    with pytest.raises(OSError):
        export.export(config, folder, tmp_path / "out")
    found = [p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.*")]
    assert sorted(found) == ["out.part", "out.part/notes.txt", "out/model.jax"]


def test_an_export_needs_the_predictions_of_the_results(handed_over, tmp_path):
    config, folder, _ = handed_over
    copy = RunFolder(shutil.copytree(folder.path, tmp_path / "run"))
    drawn = finished_run(tmp_path / "drawn", ranks=list("01234"), count=30)
    copy.write(copy.metrics, drawn.read_metrics())
    table = copy.path / "predictions.csv"
    shutil.copy(drawn.path / table.name, table)
    run, program = TrainedRun(config, copy), trained_run.Program(b"", {}, {}, ())
    image = assembly.network_input(config)._asdict()
    assert export._about(run, program, None, image)[0]["temperature"] > 1
    flip(table, 400)
    with pytest.raises(files.Damaged, match="predictions.csv is damaged"):
        export._about(run, program, None, image)


def test_mistakes_answer_at_once(capsys, handed_over):
    run = f"--run={handed_over[1].path}"
    for words, message in (
        ([f"--to={handed_over[2]}"], "exists already"),
        ([], "add --to=OUT"),
    ):
        assert main.main(["export", run, *words]) == 2
        assert message in capsys.readouterr().err


LOADED = """
import json, sys
import cloc_jax
model = cloc_jax.load(sys.argv[1])
found = model(sys.argv[2:])
unwanted = ("optax", "orbax", "grain", "flax", "tensorflow", "torch", "ml_collections")
rooms = ("training", "build", "methods", "losses", "jobs", "report", "studies")
for name in sys.modules:
    assert name.split(".")[0] not in unwanted, name
    assert not name.startswith(tuple(f"cloc_jax.{room}" for room in rooms)), name
print(json.dumps([found.predicted, found.most_likely, found.expected.tolist(),
                  found.probabilities.tolist()]))
"""


@pytest.mark.slow
def test_from_the_command_line_to_a_new_process(tmp_path):
    """Train, decide, export; load where nothing of the run is, and compare."""
    launched(*TINY, "--run=run", cwd=tmp_path)
    decide = ["--boundary=1|2", "--max-missed=0.1"]
    launched("decide", "--run=run", *decide, cwd=tmp_path)
    launched("export", "--run=run", "--to=out", cwd=tmp_path)
    files = []
    for i, image in enumerate(ARRAYS):
        files.append(tmp_path / f"{i}.png")
        cv2.imwrite(str(files[-1]), image)
    launched("predict", "--run=run", "--output=a.csv", *files, cwd=tmp_path)
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "out").rename(elsewhere)
    (tmp_path / "run").rename(tmp_path / "gone")
    process = run_code(LOADED, elsewhere, *files)
    assert process.returncode == 0, process.stderr
    predicted, most_likely, expected, chances = json.loads(process.stdout)
    rows = list(csv.DictReader((tmp_path / "a.csv").open()))
    assert [row["predicted"] for row in rows] == predicted
    assert [row["most_likely"] for row in rows] == most_likely
    assert [row["expected"] for row in rows] == [f"{e:.3f}" for e in expected]
    for row, found in zip(rows, chances, strict=True):
        assert [row[f"p_{k}"] for k in range(5)] == [f"{p:.4f}" for p in found]
    card = (elsewhere / exported_model.CARD).read_text()
    assert "saved decision" in card and r"1\|2 (critical)" in card
    metrics = json.loads((tmp_path / "gone" / "metrics.json").read_text())
    low, high = metrics["final"]["test"]["intervals"]["mae"]
    assert f"({low:.3f} to {high:.3f})" in card
