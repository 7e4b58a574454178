"""Split conformal and MADSplit on toys that can be checked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression

import lvd

# Calibration errors 1, 2, ..., 9 of a model that predicts x.
X_CALIB = np.arange(9.0)[:, None]
Y_CALIB = X_CALIB[:, 0] + np.arange(1.0, 10.0) * (-1.0) ** np.arange(9)
ELSEWHERE = np.array([[100.0], [200.0]])
IDENTITY = (lambda X: X[:, 0], lambda X: X)


class Line(LinearRegression):
    """A second model that says the error is x - 4, whatever it is fitted to."""

    def fit(self, X, y):
        return super().fit(X, X[:, 0] - 4.0)


def conformalized(regressor):
    return regressor.fit(ELSEWHERE, ELSEWHERE[:, 0]).conformalize(X_CALIB, Y_CALIB)


@pytest.mark.parametrize(("level", "radius"), [(0.5, 5.0), (0.89, 9.0), (0.9, 9.0), (0.95, np.inf)])
def test_split_takes_the_rank_of_the_errors(level, radius):
    regressor = conformalized(lvd.SplitConformalRegressor(IDENTITY, prefit=True, calib_size=None))
    y_pred, intervals = regressor.predict_interval(np.array([[7.0]]), level)
    assert y_pred == [7.0]
    np.testing.assert_array_equal(intervals[0, :, 0], [7.0 - radius, 7.0 + radius])


def test_the_percentile_is_finite_with_few_rows_and_warns_of_nothing():
    regressor = lvd.SplitConformalRegressor(
        IDENTITY, prefit=True, calib_size=None, quantile="percentile", confidence_level=0.99
    )
    _, intervals = conformalized(regressor).predict_interval(np.array([[0.0]]))
    np.testing.assert_array_equal(intervals[0, 1, 0], np.percentile(np.arange(1.0, 10.0), 99.0))


def test_madsplit_divides_and_multiplies_by_the_predicted_error():
    regressor = lvd.MADSplitRegressor(
        IDENTITY, error_estimator=Line(), errors="in_sample", prefit=True, calib_size=None
    )
    y_pred, intervals = conformalized(regressor).predict_interval(np.array([[1.0], [4.0], [9.0]]), 0.8)
    units = 1e-5 + np.abs(X_CALIB[:, 0] - 4.0)
    radius = np.sort(np.arange(1.0, 10.0) / units)[7]
    expected = radius * (1e-5 + np.array([3.0, 0.0, 5.0]))
    np.testing.assert_allclose(intervals[:, 1, 0] - y_pred, expected, rtol=1e-6)
    np.testing.assert_allclose(y_pred - intervals[:, 0, 0], expected, rtol=1e-6)


def test_madsplit_on_a_given_model_learns_the_error_from_its_embedding(rng, monkeypatch):
    monkeypatch.setattr("lvd.models.regressor.LEAST_BATCHES", 200)
    monkeypatch.setattr("lvd.models.validated.MOST_ROUNDS", 2)
    monkeypatch.setattr("lvd.models.validated.MOST_EPOCHS", 3)
    X = rng.uniform(-1, 1, size=(600, 2))
    y = X[:, 0] + rng.normal(size=600) * np.where(X[:, 1] > 0, 1.0, 0.05)
    regressor = lvd.MADSplitRegressor(IDENTITY, prefit=True, random_state=0).fit(X[:400], y[:400])
    regressor.conformalize(X[400:], y[400:])
    assert regressor.score_.error_model_.on_embeddings
    widths = np.ptp(regressor.predict_interval(X)[1][:, :, 0], axis=1)
    assert np.median(widths[X[:, 1] > 0.2]) > 3 * np.median(widths[X[:, 1] < -0.2])


def test_an_ensemble_can_be_the_second_model(rng):
    X = rng.normal(size=(60, 2))
    forest = RandomForestRegressor(3, random_state=0)  # unfitted, it has no truth value
    regressor = lvd.MADSplitRegressor(LinearRegression(), error_estimator=forest, random_state=0)
    assert np.isfinite(regressor.fit(X, X[:, 0] + rng.normal(size=60)).predict_interval(X)[1]).all()


@pytest.mark.parametrize("method", [lvd.SplitConformalRegressor, lvd.MADSplitRegressor])
def test_an_unknown_quantile_is_refused(method):
    with pytest.raises(
        lvd.InputError, match="quantile must be one of 'finite_sample', 'percentile', got 'x'"
    ):
        method(quantile="x").fit(X_CALIB, Y_CALIB)
