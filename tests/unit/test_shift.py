"""Likelihood ratios by a classifier."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import lvd
from lvd.calibration.shift import ShiftWarning, effective_rows, estimate_weights


@pytest.fixture
def populations(rng):
    return rng.normal(size=(800, 2)), rng.normal([0.5, 0.0], 1.0, size=(400, 2))


@pytest.mark.parametrize("classifier", ["logistic", LogisticRegression()], ids=["name", "estimator"])
def test_the_ratio_of_two_normals_is_found(populations, classifier):
    calib, new = populations
    weights = estimate_weights(calib, new, classifier=classifier, random_state=0)
    for rows, ratios in zip(populations, weights, strict=True):
        truth = np.exp(0.5 * rows[:, 0] - 0.125)
        assert np.abs(np.log(ratios / truth)).mean() < 0.3
    assert weights.calib.mean() == pytest.approx(1.0)


def test_boosting_sees_what_is_not_linear(rng):
    calib, drawn = rng.uniform(-2.0, 2.0, size=(800, 1)), rng.uniform(-2.0, 2.0, size=(2000, 1))
    new = drawn[(np.abs(drawn[:, 0]) > 1.0) | (rng.uniform(size=2000) < 0.2)]
    flat = estimate_weights(calib, new, random_state=0).calib
    bent = estimate_weights(calib, new, classifier="boosting", random_state=0).calib
    outside = np.abs(calib[:, 0]) > 1.0
    assert flat[outside].mean() / flat[~outside].mean() == pytest.approx(1.0, abs=0.1)
    assert bent[outside].mean() / bent[~outside].mean() == pytest.approx(5.0, rel=0.4)


def test_no_shift_gives_weights_near_one(rng):
    weights = estimate_weights(rng.normal(size=(500, 3)), rng.normal(size=(500, 3)), random_state=0)
    assert np.abs(np.log(np.concatenate(weights))).max() < 1.0


def test_the_seed_decides(populations):
    first, again, other = (estimate_weights(*populations, random_state=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.calib, again.calib)
    assert (first.calib != other.calib).any()


def test_too_little_overlap_is_told(rng):
    calib, new = rng.normal(size=(300, 1)), rng.normal(4.0, 1.0, size=(300, 1))
    with pytest.warns(
        ShiftWarning, match=r"the 300 calibration rows are worth only \d+ rows of the new population"
    ):
        weights = estimate_weights(calib, new, random_state=0)
    assert effective_rows(weights.calib) < 30


def test_effective_rows_by_hand():
    assert effective_rows(np.ones(7)) == 7.0
    assert effective_rows(np.array([2.0, 1.0, 1.0])) == pytest.approx(16.0 / 6.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classifier": "forest"}, "classifier must be 'logistic', 'boosting' or a scikit-learn classifier"),
        ({"classifier": LinearSVC()}, "a scikit-learn classifier with predict_proba, got LinearSVC"),
        ({"n_folds": 1}, "n_folds must be at least 2"),
        ({"n_folds": 500}, "got 500 for 800 calibration and 400 new rows"),
        ({"clip": 0.7}, r"clip must lie in \(0, 0\.5\), got 0\.7"),
        ({"X_new": np.zeros((9, 3))}, "X_new has 3 features, but lvd is expecting 2"),
    ],
    ids=["name", "svc", "one", "many", "clip", "columns"],
)
def test_refusals(populations, changes, message):
    given = {"X_calib": populations[0], "X_new": populations[1]} | changes
    with pytest.raises(lvd.InputError, match=message):
        estimate_weights(**given)


def test_the_weights_go_with_the_rows(populations):
    calib, new = populations
    weights = estimate_weights(calib, new, random_state=0)
    kernel = lvd.MahalanobisKernel.from_components(
        np.eye(2), mean=np.zeros(2), scale=np.ones(2), device="cpu"
    )
    conformal = lvd.LocalConformal(kernel).conformalize(calib, np.abs(calib[:, 0]), weights=weights.calib)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert conformal.radius(new, weights=weights.new).shape == (400,)
