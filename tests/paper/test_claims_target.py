"""The page of claims is written over no other file."""

import os

import pytest
from launching import launch

from cloc_jax.paper import claims
from cloc_jax.runtime import files

STUDY = {
    "command": "python launch.py collapse",
    "dataset": "koa",
    "size": [120, 200],
    "encoder": "resnet50",
    "is_frozen": True,
    "seeds": 3,
    "sentence": "0 of 3 runs collapsed.",
    "settings": {
        "all precautions": {"collapsed": 0},
        "none of them": {"collapsed": 2},
    },
}


@pytest.fixture
def studies(tmp_path):
    (tmp_path / "runs").mkdir()
    files.write_sealed(tmp_path / "runs" / "collapse.json", STUDY)
    return tmp_path / "runs"


@pytest.mark.parametrize("add", [False, True])
def test_other_files_stay_as_they_are(studies, tmp_path, add):
    others = {
        "thesis.md": b"# Claims\n\nmine",
        "x.png": b"\x89PNG",
        "empty.md": b"",
    }
    for name, content in others.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FileExistsError, match=f"{name} exists and is no page"):
            claims.write_claims(studies, tmp_path / name, add=add)
        assert (tmp_path / name).read_bytes() == content
    os.mkfifo(tmp_path / "pipe.md")
    for name in ("runs", "pipe.md"):
        with pytest.raises(FileExistsError, match=f"{name} exists and is no page"):
            claims.write_claims(studies, tmp_path / name, add=add)


def test_its_own_page_is_written_again(studies, tmp_path):
    target = tmp_path / "claims.md"
    with pytest.raises(FileNotFoundError, match="no page .*claims.md to add to"):
        claims.write_claims(studies, target, add=True)
    assert claims.write_claims(studies, target) == 1
    page = target.read_text()
    assert "0 of 3 runs collapsed." in page
    assert claims.write_claims(studies, target) == 1
    assert claims.write_claims(studies, target, add=True) == 1
    assert target.read_text() == page


def test_a_cut_study_is_named(studies, tmp_path):
    path = studies / "collapse.json"
    path.write_bytes(path.read_bytes()[:100])
    words = ["claims", f"--run={studies}", f"--to={tmp_path / 'claims.md'}"]
    ended = launch(*words, cwd=tmp_path)
    assert ended.returncode == 2 and len(ended.stderr.splitlines()) == 1
    assert ended.stderr.startswith(f"error: {path} is damaged: it is not valid JSON")
    assert not (tmp_path / "claims.md").exists()


@pytest.mark.parametrize(
    ("about", "encoder"),
    [
        ({"trainable_from": ""}, "frozen resnet50"),
        ({"trainable_from": "", "is_frozen": False}, "resnet50 trained whole"),
        (
            {"trainable_from": "layer4", "is_frozen": False},
            "resnet50 trained from layer4 on",
        ),
        ({"is_frozen": False}, "resnet50"),  # of an earlier version
    ],
)
def test_rows_of_studies_say_what_was_trained(about, encoder, studies, tmp_path):
    files.write_sealed(studies / "collapse.json", STUDY | about)
    claims.write_claims(studies, tmp_path / "claims.md")
    assert f"| KOA, 120x200, {encoder} | 3 |" in (tmp_path / "claims.md").read_text()
