"""Jackknife+ and CV+: which rows are left out, how often the model is trained, and what is said of it."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import lvd
from lvd.methods import jackknife_plus


@pytest.fixture
def rows(rng):
    X = rng.normal(size=(31, 2))
    return X, X[:, 0] + rng.normal(size=31)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def left_out_predictions(X, y, folds, X_test):
    """By definition, one fit per row."""
    models = [Ridge().fit(X[folds != folds[i]], y[folds != folds[i]]) for i in range(len(y))]
    residuals = [abs(y[i] - model.predict(X[i : i + 1])[0]) for i, model in enumerate(models)]
    return np.stack([model.predict(X_test) for model in models]), np.array(residuals)


@pytest.mark.parametrize("cv", [None, 4])
def test_the_intervals_are_those_of_the_definition(rows, cv):
    X, y = rows
    regressor = lvd.JackknifePlusRegressor(Ridge(), cv=cv, random_state=0).fit(X, y)
    predictions, residuals = left_out_predictions(X, y, regressor.folds_, X[:5])
    y_pred, intervals = regressor.predict_interval(X[:5], 0.75)
    # Of 31 rows the 24th from either side: ceil(0.75 * 32) = 24, floor(0.25 * 32) = 8.
    np.testing.assert_allclose(intervals[:, 0, 0], np.sort(predictions - residuals[:, None], axis=0)[7])
    np.testing.assert_allclose(intervals[:, 1, 0], np.sort(predictions + residuals[:, None], axis=0)[23])
    np.testing.assert_allclose(y_pred, Ridge().fit(X, y).predict(X[:5]))


def test_folds_are_even_and_drawn_by_the_seed(rows):
    folds = lvd.JackknifePlusRegressor(Ridge(), cv=4, random_state=0).fit(*rows).folds_
    assert sorted(np.bincount(folds)) == [7, 8, 8, 8]
    assert (folds != np.sort(folds)).any()
    other = lvd.JackknifePlusRegressor(Ridge(), cv=4, random_state=1).fit(*rows).folds_
    assert (folds != other).any()


def test_threads_and_chunks_change_nothing(rows, monkeypatch):
    X, y = rows
    net = lvd.NetRegressor(hidden_sizes=(4,), n_batches=5)
    expected = lvd.JackknifePlusRegressor(net, cv=5, n_jobs=1, random_state=0).fit(X, y).predict_interval(X)
    monkeypatch.setattr(jackknife_plus, "PREDICTIONS_AT_ONCE", 31 * 7)
    result = lvd.JackknifePlusRegressor(net, cv=5, n_jobs=3, random_state=0).fit(X, y).predict_interval(X)
    np.testing.assert_array_equal(result[0], expected[0])
    # Networks see 7 rows at once instead of 31: their sums may round differently.
    np.testing.assert_allclose(result[1], expected[1], rtol=1e-5, atol=1e-6)


def test_frames_and_pipelines(rows):
    pandas = pytest.importorskip("pandas")
    X, y = rows
    frame = pandas.DataFrame(X, columns=["a", "b"])
    regressor = lvd.JackknifePlusRegressor(make_pipeline(StandardScaler(), Ridge()), cv=3).fit(frame, y)
    assert regressor.predict_interval(frame)[1].shape == (31, 2, 1)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"cv": 1}, "cv must be None or lie between 2 and the number of rows"),
        ({"cv": 32}, r"got cv=32 and 31 sample\(s\)"),
        ({"cv": 0}, "cv must be a positive integer, got 0"),
        ({"n_jobs": 0}, "n_jobs must be a positive integer, got 0"),
        ({"estimator": (lambda X: X[:, 0], lambda X: X)}, "fitted again without .* use a post hoc method"),
    ],
)
def test_bad_parameters(rows, parameters, message):
    with pytest.raises(lvd.InputError, match=message):
        lvd.JackknifePlusRegressor(**parameters).fit(*rows)


def test_a_long_computation_is_announced_in_a_terminal(rows, monkeypatch):
    monkeypatch.setattr(jackknife_plus, "LONG_WAIT_SECONDS", 0.0)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    lvd.JackknifePlusRegressor(LinearRegression(), n_jobs=2).fit(*rows)
    assert "Jackknife+ trains 31 models of about" in terminal.getvalue()
    assert "100%" in terminal.getvalue()
    said = len(terminal.getvalue())
    lvd.JackknifePlusRegressor(LinearRegression(), progress=False).fit(*rows)
    assert len(terminal.getvalue()) == said


def test_elsewhere_nothing_is_said(rows, monkeypatch, capsys):
    monkeypatch.setattr(jackknife_plus, "LONG_WAIT_SECONDS", 0.0)
    lvd.JackknifePlusRegressor(LinearRegression()).fit(*rows)
    assert capsys.readouterr() == ("", "")
