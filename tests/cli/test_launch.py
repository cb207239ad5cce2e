"""The program as a user meets it: one finished run, and every way to misuse it."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import miniatures
import numpy as np
import pytest
from damage import biggest, flip
from launching import ROOT, TINY, launch, launched, run_code, stand_ins
from PIL import Image
from tiny_runs import arrays, history

from cloc_jax.cli import main
from cloc_jax.report import view
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import predictions
from cloc_jax.scoring.conformal_sets import PredictionSets
from cloc_jax.scoring.decisions import Decision
from cloc_jax.scoring.results import read_results


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder to work in."""
    return tmp_path_factory.mktemp("launch")


@pytest.fixture(scope="module")
def finished(place):
    """A run that nothing interrupted, made while TensorFlow would leave a trace."""
    trace, variables = stand_ins(place / "without", "tensorflow")
    process = launched(*TINY, "--run=whole", cwd=place, **variables)
    assert not trace.exists()
    return place / "whole", process


def test_leaves_all_results(finished):
    run, process = finished
    folder = RunFolder(run)
    results = read_results(folder)
    assert folder.read_config()["data"]["name"] == results.dataset
    stages = [row["stage"] for row in folder.read_history()]
    assert stages == ["joint"] * 2 + ["refine"] * (len(stages) - 2)
    found = predictions.read(run, results)  # which checks its checksum
    assert {split: len(one.items) for split, one in found.items()} == {
        split: scores.count for split, scores in results.final.items()
    }
    test = found["test"]
    right = np.mean(test.true == test.predicted)
    assert right == pytest.approx(results.final["test"].accuracy)
    assert (test.probabilities.argmax(1) == test.predicted).all()
    for name in ("confusion.png", "embedding.png", "similarity.png"):
        with Image.open(run / name) as picture:
            picture.verify()
    kept = view.read_thumbnails(run / view.THUMBNAILS)
    assert set(kept) == set(test.items)
    page = (run / "report.html").read_text()
    assert f"{100 * results.final['test'].accuracy:.1f}%" in page
    assert page.rstrip().endswith("</html>")
    assert list((run / "tensorboard").glob("events*"))
    told = re.search(r"after compilation: (\d+) s per epoch", process.stdout)
    assert told and told.start() < process.stdout.index("joint   1 ")
    assert "joint ended after epoch 2" in process.stdout
    assert "\x1b" not in process.stdout  # no terminal, no control sequences
    assert process.stderr == ""  # Orbax, JAX and TensorFlow Datasets would


def test_metrics_have_the_documented_keys(finished):
    metrics = json.loads((finished[0] / "metrics.json").read_text())
    for phase in ("phase_one", "final"):
        for split, count in (("val", 20), ("test", 14)):
            scores = metrics[phase][split]
            assert scores["count"] == count
            assert {"accuracy", "mae", "qwk", "one_off_accuracy"} < set(scores)
            assert list(scores["boundaries"]) == ["0|1", "1|2", "2|3", "3|4"]
            if phase == "final":
                low, high = scores["intervals"]["accuracy"]
                assert low <= scores["accuracy"] <= high and high - low > 0.1
                rates = scores["intervals"]["boundaries"]
                assert list(rates) == list(scores["boundaries"])
    assert list(metrics["order_score"]["by_rank"]) == list("01234")
    assert list(metrics["margins"]) == ["0|1", "1|2", "2|3", "3|4"]
    readout = metrics["readouts"]["margins"]
    assert readout["values"] == metrics["margins"] and readout["per"] == "boundary"
    assert set(metrics["seconds"]) == {"phase_one", "phase_two", "total"}
    assert [s["stop_rule"] for s in metrics["stages"]] == ["max_epochs"] * 2
    in_training = [stage["kept_triplets"] for stage in metrics["stages"]]
    for kept in (metrics["kept_triplets"], *in_training):
        assert list(kept) == list(metrics["margins"])
        assert all(share is None or 0 <= share <= 1 for share in kept.values())
    assert any(share is not None for share in in_training[-1].values())
    assert history(finished[0])[-1]["readouts"]["kept_triplets"] == in_training[-1]


def test_phase_two_keeps_the_margins_to_the_bit(finished):
    run, _ = finished
    joint, refine = arrays(run, "joint"), arrays(run, "refine")
    theta = [k for k in joint if "theta" in k]
    assert len(theta) == 1
    assert joint[theta[0]].tobytes() == refine[theta[0]].tobytes()
    kernels = [k for k in joint if "kernel" in k]
    assert all((joint[k] != refine[k]).any() for k in kernels)
    rows = history(run)
    margins = [row["readouts"]["margins"] for row in rows]
    assert margins[0] != margins[1]  # phase one moves them
    assert margins[1] == margins[2] == margins[3]


def test_killed_and_resumed_equals_uninterrupted(finished, place, monkeypatch, capsys):
    """The resumed run is that of the other one's saved configuration."""
    whole, _ = finished
    parts = place / "parts"
    command = ["train", f"--config={whole / 'config.json'}", f"--run={parts.name}"]
    command += ["--no-report"]
    # Five steps per epoch; the newest checkpoint is then of step eight.
    for kill in ("SIGKILL joint 9", "SIGTERM refine 2"):
        resume = ["--resume"] if parts.exists() else []
        process = launch(
            *command,
            *resume,
            cwd=place,
            script="tests/killed_launch.py",
            CLOC_KILL=kill,
        )
        number = getattr(signal, kill.split()[0])
        can_speak = number != signal.SIGKILL
        code = 128 + number if can_speak else -number
        assert process.returncode == code, (kill, process.stdout, process.stderr)
        if can_speak:
            assert "--resume" in process.stderr
            assert f"{parts.name}/checkpoints" in process.stderr
    process = launched(*command, "--resume", cwd=place)
    assert history(parts) == history(whole)
    for stage in ("joint", "refine"):
        a, b = arrays(whole, stage), arrays(parts, stage)
        assert list(a) == list(b)
        assert all(a[k].tobytes() == b[k].tobytes() for k in a)
    one, other = (read_results(RunFolder(run)) for run in (whole, parts))
    assert one.final == other.final and one.margins == other.margins
    name = "predictions.csv"
    assert (whole / name).read_bytes() == (parts / name).read_bytes()
    assert not (parts / "report.html").exists()
    # Once more, and nothing is trained.
    before = {p: p.read_bytes() for p in parts.rglob("*") if p.is_file()}
    monkeypatch.chdir(place)
    assert main.main([*command, "--resume"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "parts is finished" in said and "its checkpoints were removed" in said
    assert {p: p.read_bytes() for p in parts.rglob("*") if p.is_file()} == before


def test_a_damaged_model_predicts_nothing(finished, tmp_path, capsys):
    run, _ = finished
    copy = shutil.copytree(run, tmp_path / "damaged")
    flip(biggest(copy / "stages" / "refine"), 20)
    output = tmp_path / "no.csv"
    words = [f"--run={copy}", f"--output={output}", str(run / "examples")]
    assert main.main(["predict", *words]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert said.startswith(f"error: {copy}/stages/refine/")
    assert not output.exists()


def test_a_closed_output(tmp_path):
    command = f'"{sys.executable}" "{ROOT / "launch.py"}" decide --run=nowhere >&-'
    process = subprocess.run(
        command, shell=True, cwd=tmp_path, capture_output=True, text=True
    )
    assert "Traceback" not in process.stderr and process.returncode == 2


def test_a_damaged_configuration_is_refused(finished, tmp_path, capsys):
    text = (finished[0] / "config.json").read_text()
    file = tmp_path / "config.json"
    for changed in (text.replace('"seed": 0', '"seed": 1', 1), text[:100], "[]"):
        file.write_text(changed)
        assert main.main([f"--config={file}"]) == 2
        assert f"error: {file}" in capsys.readouterr().err


def test_results_are_made_again(finished, place):
    run, _ = finished
    copy = shutil.copytree(run, place / "copy")
    for name in ("metrics.json", "predictions.csv", "report.html", "confusion.png"):
        (copy / name).unlink()
    launched("evaluate", "--run=copy", cwd=place)
    for name in ("metrics.json", "predictions.csv"):
        assert (copy / name).read_bytes() == (run / name).read_bytes()
    assert (copy / "report.html").exists() and (copy / "confusion.png").exists()


def test_report_is_drawn_again_without_jax(finished, place):
    run, _ = finished
    copy = shutil.copytree(run, place / "redrawn")
    (copy / "report.html").unlink()
    before = {p: p.read_bytes() for p in copy.iterdir() if p.is_file()}
    code = (
        "import sys; from cloc_jax.cli import main;"
        "code = main.main(['report', '--run=redrawn']);"
        "assert 'jax' not in sys.modules; sys.exit(code)"
    )
    process = run_code(code, cwd=place)
    assert process.returncode == 0, process.stderr
    assert "report  redrawn/report.html" in process.stdout
    page = (copy / "report.html").read_text().replace("redrawn", "whole")
    assert page == (run / "report.html").read_text()
    for path, data in before.items():
        assert path.read_bytes() == data, path.name


def test_predict_equals_the_evaluation_and_goes_on_past_a_broken_file(finished, place):
    run, _ = finished
    broken = place / "broken[old].png"  # not to be taken for markup
    broken.write_bytes(b"not an image")
    process = launch("predict", "--run=whole", broken, run / "examples", cwd=place)
    assert process.returncode == 1 and "Traceback" not in process.stderr
    failed, *rows = csv.DictReader((run / "predicted.csv").open())
    assert "broken[old].png" in failed["error"] and "[old]" in process.stdout
    assert not failed["predicted"]
    assert len(rows) == len(list((run / "examples").iterdir())) > 0
    assert all(row["predicted"] and not row["error"] for row in rows)
    # The examples are test images, so their rows are in predictions.csv as well.
    known = {
        tuple(f"{float(r[f'p_{k}']):.4f}" for k in range(5))
        for r in csv.DictReader((run / "predictions.csv").open())
    }
    assert all(tuple(r[f"p_{k}"] for k in range(5)) in known for r in rows)


def test_predict_goes_by_a_saved_decision(finished, place, capsys):
    run, _ = finished
    copy = shutil.copytree(run, place / "decided")
    ranks = tuple(str(k) for k in range(5))
    sets, costs = PredictionSets(0.9, 0.6, 100), {"1|2": (9.0, 0.2)}
    decision = Decision(ranks, 1.5, costs=costs, sets=sets)
    RunFolder(copy).write(RunFolder(copy).decision, decision.to_json())
    words = [f"--run={copy}", f"--output={place / 'by.csv'}", str(run / "examples")]
    assert main.main(["predict", *words]) == 0
    said = capsys.readouterr().out
    assert "at 1|2 a missed image costs 9" in said and "at least 90% of images" in said
    found = predictions.read(run, read_results(RunFolder(run)))["test"]
    shown = decision.calibrated(found.probabilities)
    lists = (
        decision.apply(found.probabilities),
        found.predicted,
        *decision.apply_sets(found.probabilities),
    )
    known = {
        tuple(f"{p:.4f}" for p in chances): tuple(map(str, of_image))
        for chances, *of_image in zip(shown, *lists, strict=True)
    }
    rows = list(csv.DictReader((place / "by.csv").open()))
    assert len(rows) == len(list((run / "examples").iterdir())) > 0
    columns = ("predicted", "most_likely", "set_from", "set_to")
    for row in rows:
        chances = tuple(row[f"p_{k}"] for k in range(5))
        assert tuple(row[column] for column in columns) == known[chances]
        mean = sum(k * float(p) for k, p in enumerate(chances))
        assert float(row["expected"]) == pytest.approx(mean, abs=2e-3)
    assert any(row["predicted"] != row["most_likely"] for row in rows)


@pytest.mark.slow
def test_own_folder_of_images(place):
    root = os.fsencode(miniatures.folder(place / "images", (20, 20, 20)))
    for name in os.listdir(root + b"/0"):  # names that are not UTF-8
        os.rename(root + b"/0/" + name, root + b"/0/caf\xe9\x1b" + name)
    process = launched(
        f"--config={ROOT / 'configs' / 'folder.py'}",
        *[a for a in TINY if "num_" not in a],
        "--config.data.root=images",
        "--config.data.channels=1",
        "--config.data.calibration_fraction=0.2",
        "--config.method.name=ce",
        "--config.train.max_epochs=1",
        "--run=own",
        cwd=place,
    )
    saved = json.loads((place / "own" / "config.json").read_text())
    assert saved["data"]["root"] == str(place / "images")  # it was given relative
    metrics = json.loads((place / "own" / "metrics.json").read_text())
    assert metrics["ranks"] == ["0", "1", "2"]
    assert "phase_one" not in metrics and metrics["margins"] == {}
    assert not (place / "own" / "examples").exists()  # the images are files already
    # Calibration is shown, recorded and predicted, but not scored.
    assert "calibration  9 images" in process.stdout
    sizes = json.loads((place / "own" / "dataset.json").read_text())["images"]
    text = (place / "own" / "predictions.csv").read_bytes()
    assert b"0/caf\xe9\x1b0" in text and (place / "own" / "report.html").exists()
    rows = list(csv.DictReader(text.decode(errors="surrogateescape").splitlines()))
    for split in ("val", "test", "calibration"):
        assert sum(r["split"] == split for r in rows) == sizes[split] > 0
    assert set(metrics["final"]) == {"val", "test"}


# One of two CPU devices is late; XLA alone gives up after 60 s.
LATE = """
import time
from cloc_jax.runtime import environment
environment.set_up_libraries(is_joint=False)
import jax, numpy as np
from cloc_jax.runtime import sharding

def late(index):
    time.sleep(75 * int(index))
    return np.float32(1)

def add(x, *_, where, axis_name):
    index = jax.lax.axis_index(axis_name)
    one = jax.pure_callback(late, jax.ShapeDtypeStruct((), x.dtype), index)
    return jax.lax.psum(x.sum() + one, axis_name)

ones, none = np.ones(4, np.float32), np.zeros(0, np.float32)
total = sharding.over_batch(add, sharding.make_mesh())
print("total", jax.jit(total)(ones, ones, none, ones))
"""


@pytest.mark.slow
@pytest.mark.parametrize("flags", ["", "--xla_force_host_platform_device_count=2"])
def test_a_device_may_wait_for_the_other(flags):
    """Devices that launch.py makes, and those that were asked for."""
    process = run_code(LATE, XLA_FLAGS=flags)
    assert "total 6.0" in process.stdout, process.stderr[-2000:]
