"""Targets: what a text names, and what is said where it names nothing."""

import importlib.util

import pytest

from cloc_jax.bench import targets


@pytest.mark.parametrize(
    "text, name, groups, per_group, platform",
    [
        ("h100", "h100", 1, 1, "cuda"),
        ("h100:8", "h100", 1, 8, "cuda"),
        ("h100:64", "h100", 8, 8, "cuda"),
        ("A100:4x6", "a100", 4, 6, "cuda"),
        ("b200:2", "b200", 1, 2, "cuda"),
        ("v5e:2x4", "v5e", 1, 8, "tpu"),
        ("v5e:1", "v5e", 1, 1, "tpu"),
        ("v5e:512", "v5e", 2, 256, "tpu"),
        ("v5p:512", "v5p", 1, 512, "tpu"),
        ("cpu:8", "cpu", 1, 8, "cpu"),
    ],
)
def test_what_a_text_names(text, name, groups, per_group, platform):
    target = targets.parse(text)
    assert (target.name, target.groups, target.per_group) == (name, groups, per_group)
    assert target.platform == platform
    assert target.devices == groups * per_group


@pytest.mark.parametrize("text", ["h100:8", "h100:4x8", "v5e:2x4", "v5p:2x2x2"])
def test_a_target_reads_its_own_name(text):
    assert str(targets.parse(text)) == text
    assert targets.parse(str(targets.parse(text))) == targets.parse(text)


def test_the_name_of_several_slices_says_so():
    assert str(targets.parse("v5e:512")) == "v5e:2x16x16"
    assert str(targets.parse("h100:64")) == "h100:8x8"


@pytest.mark.parametrize(
    "text, message",
    [
        ("k80:2", "Known are cpu, a100"),
        ("h100:eight", "use a name and its devices"),
        ("h100:0", "use a name and its devices"),
        ("h100:12", "a multiple of 8"),
        ("v5e:6", "comes in 4, 8, 16"),
        ("cpu:2x4", "takes a number of devices"),
        ("h100:2x2x2", "takes a number of devices or hosts x devices"),
    ],
)
def test_mistakes(text, message):
    with pytest.raises(ValueError, match=message):
        targets.parse(text)


def test_published_memory_can_be_overridden():
    assert targets.parse("h100:8").memory == 80e9
    less = targets.parse("h100", 7e9)
    assert less.memory == targets.of_size(less, 64).memory == 7e9


def test_devices_of_a_cpu_share_one_machine():
    two, eight = targets.parse("cpu:2"), targets.parse("cpu:8")
    assert two.memory == 4 * eight.memory
    assert targets.of_size(two, 8) == eight


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"libtpu.*pip install '\.\[compile-tpu\]'"):
        targets.set_up(targets.parse("v5e:2x4"))
    with pytest.raises(ValueError, match=r"pip install '\.\[compile-cuda\]'"):
        targets.set_up(targets.parse("h100:8"))


def test_a_gpu_is_described_to_the_compiler():
    text = targets.describe_gpu(targets.parse("h100", 7e9))
    assert "cuda_compute_capability { major: 9 minor: 0 }" in text
    assert "device_memory_size: 7000000000\n" in text
    assert "core_count: 132\n" in text
    assert text.count("{") == text.count("}")
