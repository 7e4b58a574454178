"""The same residuals and quantiles in MAPIE and crepes give the same intervals."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import Ridge
from sklearn.model_selection import LeaveOneOut, PredefinedSplit

import lvd

# 88 times a level is whole at 0.5 only: elsewhere the packages' rounding of (m + 1) level cannot differ.
N_CALIB, LEVELS = 87, [0.5, 0.8, 0.9, 0.95]


class Formula(RegressorMixin, BaseEstimator):
    """A fitted model that is a formula."""

    fitted_ = True

    def __init__(self, formula=None):
        self.formula = formula

    def fit(self, X, y):
        return self

    def predict(self, X):
        return self.formula(X)


def centre(X):
    return 2.0 * X[:, 0] - X[:, 1]


def error(X):
    return 0.2 + np.abs(X[:, 1])


def lower(X):
    return centre(X) - 1.0 - X[:, 0] ** 2


def upper(X):
    return centre(X) + 0.5 + X[:, 0] ** 2


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_CALIB + 30, 2))
    y = centre(X) + rng.normal(size=len(X)) * (0.2 + X[:, 0] ** 2)
    return X[:N_CALIB], y[:N_CALIB], X[N_CALIB:]


def conformalized(regressor, X, y):
    """Our regressor on a model that is a formula; the training rows are of no consequence."""
    return regressor.fit(X[:2] + 100.0, y[:2]).conformalize(X, y)


def ours(method, formula, **given):
    return method(Formula(formula), prefit=True, calib_size=None, confidence_level=0.5, **given)


def test_split_as_in_mapie(rows):
    mapie = pytest.importorskip("mapie.regression")
    X, y, X_test = rows
    theirs = mapie.SplitConformalRegressor(Formula(centre), confidence_level=LEVELS, prefit=True)
    _, expected = theirs.conformalize(X, y).predict_interval(X_test)
    regressor = conformalized(ours(lvd.SplitConformalRegressor, centre), X, y)
    np.testing.assert_array_equal(regressor.predict_interval(X_test, LEVELS)[1], expected)


def test_split_as_in_crepes(rows):
    crepes = pytest.importorskip("crepes")
    X, y, X_test = rows
    theirs = crepes.ConformalRegressor().fit(residuals=y - centre(X))
    regressor = conformalized(ours(lvd.SplitConformalRegressor, centre), X, y)
    _, intervals = regressor.predict_interval(X_test, LEVELS)
    for column, level in enumerate(LEVELS):
        expected = theirs.predict_int(centre(X_test), confidence=level)
        np.testing.assert_array_equal(intervals[:, :, column], expected)


def test_madsplit_as_in_mapie(rows):
    mapie = pytest.importorskip("mapie.regression")
    scores = pytest.importorskip("mapie.conformity_scores")
    X, y, X_test = rows
    unit = Formula(lambda X: 1e-5 + error(X))
    theirs = mapie.SplitConformalRegressor(
        Formula(centre),
        confidence_level=LEVELS,
        prefit=True,
        conformity_score=scores.ResidualNormalisedScore(residual_estimator=unit, prefit=True),
    )
    _, expected = theirs.conformalize(X, y).predict_interval(X_test)
    regressor = ours(lvd.MADSplitRegressor, centre, error_estimator=Formula(error))
    _, intervals = conformalized(regressor, X, y).predict_interval(X_test, LEVELS)
    np.testing.assert_array_equal(intervals, expected)


def test_madsplit_as_in_crepes(rows):
    crepes = pytest.importorskip("crepes")
    X, y, X_test = rows
    theirs = crepes.ConformalRegressor().fit(residuals=y - centre(X), sigmas=1e-5 + error(X))
    regressor = ours(lvd.MADSplitRegressor, centre, error_estimator=Formula(error))
    _, intervals = conformalized(regressor, X, y).predict_interval(X_test, LEVELS)
    for column, level in enumerate(LEVELS):
        expected = theirs.predict_int(centre(X_test), sigmas=1e-5 + error(X_test), confidence=level)
        np.testing.assert_array_equal(intervals[:, :, column], expected)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("level", [0.8, 0.9])
def test_cqr_as_in_mapie(rows, symmetric, level):
    mapie = pytest.importorskip("mapie.regression")
    X, y, X_test = rows
    theirs = mapie.ConformalizedQuantileRegressor(
        [Formula(lower), Formula(upper), Formula(centre)], confidence_level=level, prefit=True
    )
    _, expected = theirs.conformalize(X, y).predict_interval(X_test, symmetric_correction=symmetric)
    regressor = ours(
        lvd.ConformalizedQuantileRegressor,
        lambda X: np.stack([lower(X), upper(X)], axis=1),
        symmetric=symmetric,
    ).set_params(confidence_level=level)
    _, intervals = conformalized(regressor, X, y).predict_interval(X_test)
    np.testing.assert_array_equal(intervals, expected)


@pytest.mark.parametrize("cv", [None, 6])
def test_jackknife_plus_and_cv_plus_as_in_mapie(rows, cv):
    mapie = pytest.importorskip("mapie.regression")
    X, y, X_test = rows
    regressor = lvd.JackknifePlusRegressor(Ridge(), cv=cv, random_state=0).fit(X, y)
    theirs = mapie.CrossConformalRegressor(
        Ridge(), confidence_level=LEVELS, cv=PredefinedSplit(regressor.folds_) if cv else LeaveOneOut()
    )
    _, expected = theirs.fit_conformalize(X, y).predict_interval(X_test)
    _, intervals = regressor.predict_interval(X_test, LEVELS)
    np.testing.assert_allclose(intervals, expected, rtol=1e-12)
