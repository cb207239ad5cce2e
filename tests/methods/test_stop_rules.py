"""Stop rules: pure, in the documented order, with a state that survives JSON."""

import json

import pytest

from cloc_jax.methods.interface import Limits, after_epochs, by_validation


def follow(rule, accuracies, maes):
    """Verdicts epoch by epoch, with the state saved and read in between."""
    state, verdicts = rule.init(), []
    for epoch, (accuracy, mae) in enumerate(zip(accuracies, maes, strict=True), 1):
        found = {"mae": mae, "accuracy": accuracy, "qwk": None}
        scores = {split: found for split in rule.reads}
        verdict = rule.update(state, epoch, scores)
        state = json.loads(json.dumps(verdict.state))
        verdicts.append(verdict)
    return verdicts


def test_train_accuracy_fires_first():
    rule = by_validation(Limits(3, 1, "mae"), train_accuracy=0.95)
    verdicts = follow(rule, [0.5, 0.95], [1.0, 2.0])
    assert [v.rule for v in verdicts] == ["", "train_accuracy"]
    assert "0.950 reached 0.95" in verdicts[1].reason


@pytest.mark.parametrize("train_accuracy", [None, 1.5])
def test_training_data_are_not_looked_at_without_need(train_accuracy):
    limits = Limits(2, 9, "mae")
    rule = by_validation(limits, train_accuracy=train_accuracy)
    assert rule.reads == ("val",)
    verdicts = follow(rule, [1.0] * 2, [1.0] * 2)
    assert [v.rule for v in verdicts] == ["", "max_epochs"]
    assert by_validation(limits, train_accuracy=1.0).reads == ("train", "val")


def test_patience_counts_epochs_without_improvement():
    rule = by_validation(Limits(99, 2, "mae"))
    verdicts = follow(rule, [1.0] * 5, [0.9, 0.5, 0.5, 0.4, 0.41])
    assert [v.improved for v in verdicts] == [True, True, False, True, False]
    assert [v.rule for v in verdicts] == [""] * 5
    more = follow(rule, [1.0] * 3, [0.5, 0.5, 0.6])
    assert more[-1].rule == "patience" and "mae" in more[-1].reason


def test_higher_is_better_where_it_is():
    rule = by_validation(Limits(99, 9, "accuracy"))
    verdicts = follow(rule, [0.5, 0.4, 0.6], [1.0, 0.5, 2.0])
    assert [v.improved for v in verdicts] == [True, False, True]


def test_an_undefined_score_still_leaves_something_to_hand_over():
    rule = by_validation(Limits(9, 2, "qwk"))
    verdicts = follow(rule, [0.5] * 3, [1.0] * 3)
    assert [v.improved for v in verdicts] == [True, False, False]
    assert verdicts[-1].rule == "patience"


def test_the_cap():
    rule = by_validation(Limits(2, 9, "mae"))
    assert [v.rule for v in follow(rule, [0.1] * 2, [1, 1])] == ["", "max_epochs"]
    assert rule.max_epochs == 2


def test_a_stage_that_is_not_scored_ends_after_its_epochs():
    rule = after_epochs(2)
    assert rule.reads == () and rule.max_epochs == 2
    verdicts = [rule.update(rule.init(), n, {}) for n in (1, 2)]
    assert [v.rule for v in verdicts] == ["", "max_epochs"]
    assert all(v.improved for v in verdicts)
