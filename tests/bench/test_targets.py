"""Targets: what a text names, and what is said where it names nothing."""

import importlib.util

import pytest

from cloc_jax.bench import targets


@pytest.mark.parametrize(
    "text, groups, shape, platform",
    [
        ("h100:8", 1, (8,), "cuda"),
        ("A100:4x6", 4, (6,), "cuda"),
        ("v5e:2x4", 1, (2, 4), "tpu"),
        ("v6e:2x16x16", 2, (16, 16), "tpu"),
        ("v5p:3x2x2x2", 3, (2, 2, 2), "tpu"),
        ("cpu:8", 1, (8,), "cpu"),
    ],
)
def test_what_a_text_names(text, groups, shape, platform):
    target = targets.parse(text)
    assert (target.groups, target.shape, target.platform) == (groups, shape, platform)
    assert str(target) == text.lower()


@pytest.mark.parametrize(
    "text",
    ["k80:2", "h100", "h100:eight", "h100:0", "h100:2x2x2", "v5e:6", "cpu:2x4"],
)
def test_mistakes(text):
    with pytest.raises(ValueError, match="use a name and its devices.*cpu, a100"):
        targets.parse(text)


def test_memory_is_published_given_or_that_of_this_machine():
    assert targets.parse("h100:8").memory == 80e9
    assert targets.parse("h100:8", 7e9).memory == 7e9
    two, eight = targets.parse("cpu:2"), targets.parse("cpu:8")
    assert two.memory == 4 * eight.memory  # devices share it


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"libtpu.*pip install '\.\[compile-tpu\]'"):
        targets.set_up([targets.parse("v5e:2x4")])
    with pytest.raises(ValueError, match=r"pip install '\.\[compile-cuda\]'"):
        targets.set_up([targets.parse("h100:8")])


def test_a_gpu_is_described_to_the_compiler():
    text = targets.describe_gpu(targets.parse("h100:1", 7e9))
    assert "cuda_compute_capability { major: 9 minor: 0 }" in text
    assert "device_memory_size: 7000000000\n" in text
    assert "core_count: 132\n" in text
    assert text.count("{") == text.count("}")
