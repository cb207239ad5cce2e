"""What is installed: the licence, the versions, and a wheel that works alone."""

import tomllib

import yaml
from launching import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_licence_and_citation_name_this_version_and_the_paper():
    texts = [(ROOT / name).read_text() for name in PROJECT["license-files"]]
    assert "Apache License\n" in texts[0] and "Version 2.0, January 2004" in texts[0]
    (script,) = (ROOT / "cloc_jax").rglob("*.min.js")  # all else is our own
    version = script.read_text()[:80].partition("(v")[2].partition(")")[0]
    assert version and script.name in texts[1] and f"| {version} | MIT" in texts[1]
    assert "The MIT License" in texts[2] and PROJECT["license"].endswith("AND MIT")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0" and citation["type"] == "software"
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"].partition(" ")[0]
    readme = " ".join((ROOT / "README.md").read_text().replace("*", "").split())
    paper = citation["preferred-citation"]
    assert f"{paper['title']}, CVPR {paper['year']}" in readme
