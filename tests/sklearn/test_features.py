"""OrdinalClassifier: as scikit-learn wants it, and with an order."""

import pickle

import numpy as np
import pytest
from launching import ROOT, launched
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cloc_jax.sklearn import OrdinalClassifier
from cloc_jax.sklearn.features import ordered_classes
from cloc_jax.training import fit, train_step

ORDER = ["mild", "moderate", "severe"]


def graded(count=90, seed=0):
    """Rows whose grade follows from their first feature."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 4))
    return X, np.array(ORDER)[np.digitize(X[:, 0], [-0.5, 0.5])]


@pytest.fixture(scope="module")
def fitted():
    return OrdinalClassifier(ORDER, random_state=0).fit(*graded())


def test_learns_the_grades(fitted):
    assert fitted.score(*graded(seed=1)) > 0.8
    assert fitted.classes_.tolist() == ORDER and fitted.n_iter_ >= 2


def test_probabilities_are_in_the_order(fitted):
    X, _ = graded(seed=1)
    chances = fitted.predict_proba(X)
    np.testing.assert_allclose(chances.sum(1), 1)
    lowest, highest = X[:, 0].argmin(), X[:, 0].argmax()
    assert chances[lowest].argmax() == 0 and chances[highest].argmax() == 2
    assert (fitted.classes_[chances.argmax(1)] == fitted.predict(X)).all()


def assert_no_class_of_infinite_numbers(found):
    X, _ = graded()
    X[7] = 3e38
    for use in (found.predict, found.predict_proba):
        with pytest.raises(ValueError, match="not finite, such as for row 7,.*scale"):
            use(X)


def test_features_that_overflow_have_no_class(fitted):
    assert_no_class_of_infinite_numbers(fitted)


def test_boundaries_have_margins(fitted):
    found = fitted.decision_boundaries()
    assert list(found) == ["mild|moderate", "moderate|severe"]
    assert all(0 < margin < 1 for margin in found.values())


def test_a_copy_says_the_same(fitted):
    X, _ = graded(seed=1)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert again.decision_boundaries() == fitted.decision_boundaries()


def test_compiles_once_for_a_shape(fitted):
    """Another number of rows and another seed are the same programs."""
    before = list(train_step.PROGRAMS.values())
    OrdinalClassifier(ORDER, random_state=1).fit(*graded(61, seed=2))
    assert set(train_step.PROGRAMS.values()) == set(before)
    assert [program.steps._cache_size() for program in before[-2:]] == [1, 1]


def test_the_order_may_have_more_than_the_data(fitted):
    X, y = graded()
    some = y != "moderate"
    found = OrdinalClassifier(ORDER, random_state=0).fit(X[some], y[some])
    assert found.predict_proba(X).shape == (len(X), 3)


@pytest.mark.parametrize(
    "labels, classes",
    [
        (["10", "9", "11"], ["9", "10", "11"]),
        (["10_IC", "2_UDH", "0_N"], ["0_N", "2_UDH", "10_IC"]),
        ([10, 9, 11], [9, 10, 11]),
        (np.array(["1.5", "-2", "10"], object), ["-2", "1.5", "10"]),
    ],
)
def test_numbers_are_ordered_by_value_also_in_strings(labels, classes):
    for is_needed in (False, True):
        found = ordered_classes(np.asarray(labels), None, is_needed=is_needed)
        assert found.tolist() == classes and found.dtype == np.asarray(labels).dtype


def test_the_order_of_other_strings_is_named_or_asked_for():
    labels = np.array(["low", "mid", "high"])
    with pytest.warns(UserWarning, match="not known: high < low < mid was taken; give"):
        assert ordered_classes(labels, None).tolist() == ["high", "low", "mid"]
    with pytest.raises(ValueError, match=r"Give order=\['high', 'low', 'mid'\], rearr"):
        ordered_classes(labels, None, is_needed=True)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"class_weight": {"grave": 2}}, r"class_weight names \['grave'\]"),
        ({"sample_weight": np.ones(3)}, "sample_weight"),
        (
            {"method": "gol", "sample_weight": np.ones(90)},
            "a weight for each .* is set, but method gol",
        ),
        ({"order": ["mild", "severe"]}, "moderate"),
        ({"order": [*ORDER, "mild"]}, "twice"),
        ({"method": "simclr"}, "augmented images"),
        ({"method": "nothing"}, "this version has"),
        ({"validation_fraction": 1.0}, "test_size=90"),
        ({"settings": {"method.cloc.wieght": 1.0}}, "settings"),
    ],
)
def test_mistakes_are_named(changes, message):
    X, y = graded()
    weight = changes.pop("sample_weight", None)
    with pytest.raises(ValueError, match=message):
        OrdinalClassifier(**{"order": ORDER} | changes).fit(X, y, weight)
    with pytest.raises(ValueError, match="one class"):
        OrdinalClassifier(ORDER).fit(X[:3], ["mild"] * 3)


def test_weights_decide_what_is_learned():
    X, y = graded(90)
    ce = {"method": "ce", "max_epochs": 5, "random_state": 0}
    one = OrdinalClassifier(ORDER, **ce, class_weight={"mild": 0}).fit(X, y)
    assert "mild" not in one.predict(X)
    sample_weight = (y != "mild").astype(float)
    other = OrdinalClassifier(ORDER, **ce).fit(X, y, sample_weight=sample_weight)
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


def test_epochs_of_few_rows_are_long_enough(fitted):
    """Also where a class has one row, or nearly all rows are of one class."""
    method = fitted._model().method
    for labels in ([0, 1], [0, 0, 0, 1, 2], [0] * 500 + [1], [0, 1, 2, 3] * 500):
        labels = np.array(labels, np.int32)
        settings = fit.Settings(0, 32, "natural", {}, 256, 2, epoch_steps=20)
        made, _ = fit.samplers_of(method, labels, settings, "0123")
        assert made.steps_per_epoch >= 20
        assert max(made.batch(0)) < len(labels)


@pytest.mark.slow
@pytest.mark.parametrize("method", "ce orcnn poe gol mwr coral corn sord clm".split())
def test_other_methods(method):
    found = OrdinalClassifier(ORDER, method=method, random_state=0).fit(*graded(300))
    X, y = graded(200, seed=1)
    # POE drops half of the features in training, and there are only four.
    assert found.score(X, y) > (0.55 if method == "poe" else 0.7)
    np.testing.assert_allclose(found.predict_proba(X).sum(1), 1)
    assert_no_class_of_infinite_numbers(found)
    if method in ("coral", "clm", "gol"):
        assert list(found.decision_boundaries()) == ["mild|moderate", "moderate|severe"]
    else:
        with pytest.raises(ValueError, match="no value per boundary"):
            found.decision_boundaries()


@pytest.mark.slow
def test_in_a_grid_of_pipelines_on_two_processes():
    pipeline = make_pipeline(
        StandardScaler(), OrdinalClassifier(ORDER, random_state=0, max_epochs=5)
    )
    grid = {"ordinalclassifier__method": ["cloc", "ce"]}
    search = GridSearchCV(pipeline, grid, cv=2, n_jobs=2, error_score="raise")
    X, y = graded()
    search.fit(X * 1e4, y)  # only the scaler makes this learnable
    assert search.best_score_ > 0.6 and len(search.cv_results_["params"]) == 2


@pytest.mark.slow
def test_passes_the_checks_of_scikit_learn():
    script = "tests/sklearn/check_estimator.py"
    lines = launched(cwd=ROOT, script=script, seconds=3000).stdout.splitlines()
    assert len(lines) > 50
    expected = ("passed ", "xfail check_sample_weight_equivalence_on_dense_data ")
    assert all(line.startswith(expected) for line in lines), lines
