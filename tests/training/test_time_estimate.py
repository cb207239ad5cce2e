"""The estimate of hours: its arithmetic, when it is told, and what it suggests."""

import importlib

import pytest
import tiny_runs

from cloc_jax.training import assembly, callbacks


@pytest.fixture(scope="module")
def config():
    return tiny_runs.tiny(train__max_epochs=100)


@pytest.fixture(scope="module")
def parts(config):
    return assembly.build(config)


def test_epochs_are_steps_and_a_third_for_each_image_evaluated(config, parts):
    batches = parts.samplers[0]
    # Batches of 8; phase one looks at 48 + 20 images, phase two at 20.
    one, two = (batches.steps_per_epoch + n / 8 / 3 for n in (68, 20))
    (line,) = callbacks.estimate_lines(config, parts, 3.0, 3)
    assert f"{3 * one:.0f} s per epoch" in line
    assert f"about {20 * 3 * (one + two) / 60:.0f} min if stages end after 20" in line
    assert f"{100 * 3 * (one + two) / 60:.0f} min at most" in line


def steps(estimate, *began, is_last=False):
    for start in began:
        estimate.after_step(0, start, is_last=is_last)


def test_it_is_told_once_after_the_step_that_compiles(config, parts, capsys):
    times = iter([50.0, 102.0, 202.0, 302.0])  # the step that compiles does not count
    estimate = callbacks.TimeEstimate(config, parts, clock=lambda: next(times))
    steps(estimate, 0.0, 100.0, 200.0)
    assert capsys.readouterr().out == ""
    steps(estimate, 300.0)
    told = capsys.readouterr().out.strip().splitlines()
    assert told == callbacks.estimate_lines(config, parts, 2.0, 3)
    steps(estimate, 400.0)  # the clock would be exhausted
    frozen = tiny_runs.tiny(encoder__frozen=True)  # is fast
    steps(callbacks.TimeEstimate(frozen, parts, clock=lambda: 1 / 0), 0.0)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("seconds", "is_last"), [(50.0, False), (3.0, True)])
def test_a_slow_step_or_the_last_before_evaluation_is_enough(
    config, parts, capsys, seconds, is_last
):
    estimate = callbacks.TimeEstimate(config, parts, clock=lambda: 10.0 + seconds)
    steps(estimate, 0.0)
    steps(estimate, 10.0, is_last=is_last)
    told = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert told == callbacks.estimate_lines(config, parts, seconds, 1)


@pytest.mark.parametrize(
    "name",
    "synthetic folder koa idrid adience hid bracs clap2015 retinamnist".split(),
)
def test_the_file_that_is_suggested_exists_and_is_frozen(name, parts):
    config = tiny_runs.tiny(data__name=name)
    _, advice = callbacks.estimate_lines(config, parts, 6000.0, 3)
    file, _, variant = advice.partition("configs/")[2].partition(".py:")
    found = importlib.import_module(f"configs.{file}").get_config(variant)
    assert found.data.name == name
    assert found.encoder.frozen and found.head.projection == 128
    assert found.encoder.weights and found.encoder.name == "resnet50"
