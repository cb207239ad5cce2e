"""cloc_jax.fit and what it gives, against the command line with the same images."""

import re

import cv2
import numpy as np
import pandas
import pytest
from launching import QUICK, ROOT, launched, run_code

from cloc_jax import api
from cloc_jax.data import drawn_knees

KNEES = drawn_knees.Knees(400, start=0, seed=0, size=(32, 32))
# Twelve of each rank.
ITEMS = [i for rank in range(5) for i in np.flatnonzero(KNEES.labels == rank)[:12]]
ARRAYS, GRADES = [KNEES[i] for i in ITEMS], KNEES.labels[ITEMS].tolist()
SMALL = {
    "data.size": (32, 32),
    "data.channels": 1,
    "encoder.widths": (2, 4, 4, 4),
    "head.hidden": 8,
    "train.batch_size": 8,
    "train.max_epochs": 1,
}
SPLITS = ("val", "test", "train", "train", "train", "train")


def test_arrays_are_written_as_they_are(tmp_path):
    colour = np.random.default_rng(0).integers(0, 256, (5, 6, 3), np.uint8)
    path = tmp_path / "elsewhere" / "knee.png"
    path.parent.mkdir()
    cv2.imwrite(str(path), ARRAYS[1])
    rows = [
        {"path": colour, "label": "a"},
        {"path": path, "label": "b, or c"},
        {"path": ARRAYS[0], "label": "b", "split": "val"},
    ]
    root, table = api.write_table(rows, tmp_path / "images")
    assert root == tmp_path
    assert table.read_text().splitlines() == [
        "path,label,split",
        "images/0000000.png,a,",
        'elsewhere/knee.png,"b, or c",',
        "images/0000002.png,b,val",
    ]
    read = cv2.imread(str(tmp_path / "images" / "0000000.png"))[..., ::-1]
    np.testing.assert_array_equal(read, colour)


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        ((ARRAYS[1:], GRADES), {}, "59 images, but 60 labels"),
        ((ARRAYS,), {}, "labels are missing"),
        (("image.png", [0]), {}, "must be a list of paths or arrays"),
        ((ARRAYS, GRADES), {"patients": ["a"]}, "60 images came, but patient has 1"),
        ((ARRAYS, GRADES), {"weights": [-1] * 60}, "the weight is '-1'; use a number"),
        ((ARRAYS, GRADES), {"train__max_epoch": 1}, "max_epochs"),
        ((ARRAYS, ["low", "high"] * 30), {}, "order of the rank labels .* is unknown"),
        ((pandas.DataFrame({"path": [1]}),), {"weights": [2]}, "weights .* in columns"),
    ],
)
def test_mistakes_are_named(arguments, options, sentence, tmp_path):
    run = tmp_path / "run"
    with pytest.raises(ValueError, match=sentence):
        api.fit(*arguments, run=run, verbose=False, **options)
    assert not [*tmp_path.rglob("*.png")]


@pytest.mark.slow
def test_equals_the_command_line(tmp_path):
    frame = pandas.DataFrame({"File": [f"{i:02}.png" for i in range(60)]})
    frame = frame.assign(Grade=GRADES, Split=[SPLITS[i % 6] for i in range(60)])
    frame.to_csv(tmp_path / "grades.csv", index=False)
    for name, image in zip(frame["File"], ARRAYS, strict=True):
        cv2.imwrite(str(tmp_path / name), image)
    flags = [f"--config.{name}={value}" for name, value in SMALL.items()]
    flags += ["--config.data.root=.", "--config.data.csv=grades.csv"]
    launched("--config=configs/folder.py", *flags, "--run=commanded", cwd=tmp_path)
    code = (
        "import cloc_jax, pandas\n"
        "frame = pandas.read_csv('grades.csv')\n"
        f"run = cloc_jax.fit(frame, run='fitted', **{SMALL})\n"
        "assert '<html' in run.report('page.html').read_text()\n"
    )
    # As many devices, and the same compiler, as the command line has.
    same = {"JAX_NUM_CPU_DEVICES": "2", "XLA_FLAGS": QUICK}
    process = run_code(code, cwd=tmp_path, **same)
    assert process.returncode == 0, process.stderr
    fitted, commanded = api.Run(tmp_path / "fitted"), api.Run(tmp_path / "commanded")
    assert fitted.results.final == commanded.results.final
    assert fitted.margins == commanded.margins != {}
    chances = fitted.predict(ARRAYS[:5]).probabilities
    np.testing.assert_array_equal(chances, commanded.predict(ARRAYS[:5]).probabilities)
    again = fitted.save(tmp_path / "copy")
    np.testing.assert_array_equal(again.predict(ARRAYS[:5]).probabilities, chances)


@pytest.mark.slow
def test_weights_of_images_count_as_those_of_their_ranks():
    by_rank = (1.0, 2.0, 0.5, 1.0, 3.0)
    weights = [by_rank[grade] for grade in GRADES]
    one = api.fit(ARRAYS, GRADES, weights=weights, **SMALL)
    other = api.fit(ARRAYS, GRADES, train__rank_weights=by_rank, **SMALL)
    assert one.results.final == other.results.final
    plain = api.fit(ARRAYS, GRADES, **SMALL)
    assert one.results.final != plain.results.final


@pytest.mark.slow
def test_parts_are_used_as_they_are():
    part = {name: ([], []) for name in SPLITS}
    for i, image in enumerate(ARRAYS):
        part[SPLITS[i % 6]][0].append(image)
        part[SPLITS[i % 6]][1].append(GRADES[i])
    run = api.fit(*part["train"], val=part["val"], test=part["test"], **SMALL)
    assert run.results.final["test"].count == run.results.final["val"].count == 10


@pytest.mark.slow
def test_the_examples_of_the_page_run(tmp_path):
    page = (ROOT / "docs" / "api.md").read_text().split("## scikit-learn")[0]
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    process = run_code(code, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert (tmp_path / "knees.html").exists() and (tmp_path / "knees").is_dir()
