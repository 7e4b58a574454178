"""Marginal coverage with a fresh calibration set and one test row per trial, so that counts are binomial.

A trial is a target: trial j has its own inputs and its own y, both in column j, so that one call runs them all.
Each promise stands beside a version with a broken rank, which must fail.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.base import BaseEstimator
from sklearn.dummy import DummyRegressor

import lvd
from lvd.calibration import GlobalConformal
from lvd.engine import conformal_quantile, jackknife_plus_intervals
from lvd.intervals import covered

REJECT = 1e-6
TRIALS, TARGETS = 10_000, 4_000
M, LEVEL = 19, 0.9


def broken_quantile(scores, levels, *, quantile="finite_sample"):
    """The rank floor(m level): the new score is forgotten."""
    return np.sort(scores, axis=0)[np.floor(len(scores) * levels).astype(int) - 1]


def draw_rows(rng, n_rows):
    """Skewed errors whose size depends on x."""
    X = rng.normal(size=(n_rows, TARGETS))
    return X, X + (0.1 + X**2) * (rng.exponential(size=X.shape) - 1.0)


def draw_quantiles(X):
    """Lower and upper quantiles, far from the true ones and crossed for large x."""
    return np.concatenate([X - 0.4, 0.2 + 0.5 * X], axis=1)


class ErrorModel(BaseEstimator):
    """What a second model says of the errors: roughly right."""

    def fit(self, X, y):
        return self

    def predict(self, X):
        return 0.3 + np.abs(X)


def first_columns(X):
    return X[:, :2]


GIVEN = {"prefit": True, "calib_size": None, "confidence_level": LEVEL, "random_state": 0}
METHODS = {
    "split": lambda: lvd.SplitConformalRegressor((np.asarray, first_columns), **GIVEN),
    "MADSplit": lambda: lvd.MADSplitRegressor(
        (np.asarray, first_columns), error_estimator=ErrorModel(), **GIVEN
    ),
    "CQR": lambda: lvd.ConformalizedQuantileRegressor((draw_quantiles, first_columns), **GIVEN),
    "asymmetric CQR": lambda: lvd.ConformalizedQuantileRegressor(
        (draw_quantiles, first_columns), symmetric=False, **GIVEN
    ),
}


def count_covered(regressor):
    rng = np.random.default_rng(0)
    regressor.fit(*draw_rows(rng, 2)).conformalize(*draw_rows(rng, M))
    X, y = draw_rows(rng, 1)
    _, intervals = regressor.predict_interval(X)
    return int(covered(y[0], intervals[0, :, 0].T).sum())


def falls_short(n_covered, n_trials=TARGETS, level=LEVEL):
    return binomtest(n_covered, n_trials, level, alternative="less").pvalue < REJECT


@pytest.mark.parametrize("name", METHODS)
def test_the_level_is_reached(name):
    assert not falls_short(count_covered(METHODS[name]()))


@pytest.mark.parametrize("name", METHODS)
def test_a_broken_rank_falls_short(name, monkeypatch):
    monkeypatch.setattr(f"{GlobalConformal.__module__}.conformal_quantile", broken_quantile)
    assert falls_short(count_covered(METHODS[name]()))


@pytest.mark.parametrize("name", ["split", "MADSplit", "CQR"])
def test_the_percentile_falls_short(name):
    assert falls_short(count_covered(METHODS[name]().set_params(quantile="percentile")))


@pytest.mark.parametrize(("m", "level"), [(9, 0.9), (19, 0.9), (30, 0.5), (99, 0.95)])
def test_coverage_is_exactly_the_rank_over_m_plus_1(m, level):
    *calib, test = np.random.default_rng(1).exponential(size=(m + 1, 2 * TRIALS))
    exact = np.ceil(level * (m + 1)) / (m + 1)
    right, broken = (
        int((test <= quantile(np.stack(calib), np.array([level]))[0]).sum())
        for quantile in (conformal_quantile, broken_quantile)
    )
    assert binomtest(right, 2 * TRIALS, exact).pvalue > REJECT
    assert binomtest(broken, 2 * TRIALS, exact).pvalue < REJECT


def count_covered_by_jackknife_plus(n):
    rng = np.random.default_rng(3)
    X, y = np.zeros((n + 1, 1)), rng.standard_t(3, size=(n + 1, TRIALS))
    regressor = lvd.JackknifePlusRegressor(DummyRegressor(), confidence_level=LEVEL).fit(X[:n], y[:n])
    _, intervals = regressor.predict_interval(X[n:])
    return int(covered(y[n], intervals[0, :, 0].T).sum())


def test_jackknife_plus_covers_at_least_1_minus_2a(monkeypatch):
    promised = 1.0 - 2.0 * (1.0 - LEVEL)
    assert not falls_short(count_covered_by_jackknife_plus(11), TRIALS, promised)
    monkeypatch.setattr("lvd.engine.quantiles.conformal_quantile", broken_quantile)
    assert falls_short(count_covered_by_jackknife_plus(11), TRIALS, promised)


def test_jackknife_plus_holds_for_an_unstable_model_where_the_plain_jackknife_fails():
    n, n_trials, level = 20, 300, np.array([LEVEL])
    rng = np.random.default_rng(4)
    # Least squares with as many columns as rows swings wildly; with one row less it is far calmer.
    X, y = rng.normal(size=(n_trials, n + 1, n)), rng.normal(size=(n_trials, n + 1))
    others = np.stack([np.delete(np.arange(n), i) for i in range(n)])
    left_out = (np.linalg.pinv(X[:, others]) @ y[:, others, None])[..., 0]
    residuals = np.abs(y[:, :n] - (X[:, :n] * left_out).sum(-1)).T
    predictions = np.einsum("tip,tp->it", left_out, X[:, n])[:, None]
    intervals = jackknife_plus_intervals(predictions, residuals, level)
    assert not falls_short(int(covered(y[:, n], intervals[0, :, 0].T).sum()), n_trials, 0.8)

    of_all_rows = (X[:, n] * np.linalg.solve(X[:, :n], y[:, :n, None])[..., 0]).sum(-1)
    plain = np.abs(y[:, n] - of_all_rows) <= conformal_quantile(residuals, level)[0]
    assert falls_short(int(plain.sum()), n_trials, 0.8)
