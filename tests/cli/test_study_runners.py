"""Flags that say where and how many runs are trained."""

import math

import pytest

from cloc_jax.cli import command_line, study_runners


def options(*words):
    arguments = command_line.parser("sweep").parse_intermixed_args(words)
    return study_runners.engine_options(arguments)


def test_only_queues_have_a_time_limit_by_default():
    assert options("--workers=2").hours == math.inf
    assert options("--engine=ray").hours == options("--engine=slurm").hours == 24
    assert options("--workers=2", "--hours=0.5").hours == 0.5
    with pytest.raises(ValueError, match="--hours is 0; use more than 0"):
        options("--hours=0")


def test_this_process_trains_unless_there_are_workers():
    assert options().is_in_process and options("--workers=1").is_in_process
    assert not options("--workers=2").is_in_process
    assert not options("--engine=ray").is_in_process


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ValueError, match="is for another engine"):
        options("--option=num_gpus=1")
    with pytest.raises(ValueError, match="leave out one of them"):
        options("--workers=2", "--coordinator=host:1234")
