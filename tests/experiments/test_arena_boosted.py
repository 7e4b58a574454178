from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from scipy.stats import binom

from experiments.arena import boosted
from experiments.arena.boosted import (
    BinnedRows,
    Cut,
    LocalScore,
    best_rounds,
    boosted_local,
    boosting,
    length_gradients,
    log_length,
    quantile_weights,
)
from experiments.arena.split import ArenaSplit
from experiments.paper.stages import Stages
from lvd.models.candidates import held_out_folds


class KnownSplit(ArenaSplit):
    """A split whose model and held-out start are known already."""

    def __init__(self, predict, train, calib):
        self.stages, self.seed, self._predict = Stages(), 0, predict
        (self.X_train, self.y_train), (self.X_calib, self.y_calib) = train, calib
        self.stages.once("boosted start", lambda: flat_start(len(self.y_train)))

    @property
    def predict(self):
        return self._predict


def flat_start(n):
    return LocalScore(np.zeros(n), np.ones(n), np.ones(n))


def skewed_rows(rng, n):
    """Noise three times as large where the first input is positive, and a centre that depends on the second."""
    X = rng.normal(size=(n, 3))
    return X, np.where(X[:, 0] > 0, 3.0, 1.0) * rng.normal(size=n) + 2.0 * (X[:, 1] > 0)


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_the_gradient_is_that_of_finite_differences(rng, level):
    y, weights = rng.normal(size=40), quantile_weights(40, level)
    score = LocalScore(rng.normal(size=40), rng.uniform(0.5, 2.0, 40), rng.uniform(0.5, 2.0, 40))
    found = length_gradients(y, score, weights)
    for change, gradient in zip((score.scaled, score.shifted), found, strict=True):
        for row in range(0, 40, 7):
            step = np.where(np.arange(40) == row, 1e-6, 0.0)
            slope = (log_length(y, change(step), weights) - log_length(y, change(-step), weights)) / 2e-6
            assert gradient[row] == pytest.approx(40 * slope, abs=1e-4)


def test_the_length_does_not_depend_on_the_unit_of_sigma(rng):
    y, weights = rng.normal(size=30), quantile_weights(30, 0.9)
    score = flat_start(30)
    assert log_length(y, score.scaled(np.full(30, 2.0)), weights) == pytest.approx(
        log_length(y, score, weights)
    )
    assert length_gradients(y, score, weights)[0].sum() == pytest.approx(0.0, abs=1e-9)


def test_the_smooth_quantile_is_near_the_quantile(rng):
    scores = np.sort(rng.random(2001))
    for level in (0.5, 0.9, 0.95):
        weights = quantile_weights(2001, level)
        assert weights.sum() == pytest.approx(1.0)
        assert scores @ weights == pytest.approx(np.quantile(scores, level), abs=0.01)


def test_the_best_cut_is_where_the_gradient_changes(rng):
    X = np.column_stack([rng.normal(size=640), np.arange(640.0)])
    cut = BinnedRows.of(X).best_cut(np.where(X[:, 1] < 320, -1.0, 2.0))
    assert cut.feature == 1
    assert cut.at == pytest.approx(319.5)
    assert cut.values == pytest.approx((boosted.RATE, -2.0 * boosted.RATE))
    np.testing.assert_array_equal(cut.added(X)[[0, 639]], cut.values)


@pytest.mark.parametrize("X", [np.zeros((100, 2)), np.arange(15.0)[:, None]])
def test_no_cut_is_allowed_where_a_side_has_too_few_rows(X):
    assert BinnedRows.of(X).best_cut(np.arange(len(X)) - 3.0) == Cut(0, 0.0, (0.0, 0.0))


def test_a_rare_value_is_not_cut_off(rng):
    X = np.column_stack([np.arange(400) < 9, rng.normal(size=400)]).astype(float)
    assert BinnedRows.of(X).best_cut(np.where(X[:, 0] == 1, 50.0, 0.0)).feature == 1


def test_fresh_rows_get_shorter_intervals(rng):
    """Both the noise and the centre are found; the shortest mean length at 90% here is below 0.8 of the first."""
    (X, y), (fresh, y_fresh) = skewed_rows(rng, 1500), skewed_rows(rng, 4000)
    start, score = flat_start(1500), flat_start(4000)
    n_rounds = best_rounds(X, y, start, 0.9, held_out_folds(1500, 1))
    for cuts in islice(boosting(X, y, start, 0.9), n_rounds):
        score = score.after(cuts, fresh)
    weights = quantile_weights(4000, 0.9)
    shorter = np.exp(log_length(y_fresh, score, weights) - log_length(y_fresh, flat_start(4000), weights))
    assert n_rounds > 10
    assert shorter < 0.85
    noisy = fresh[:, 0] > 0
    assert np.mean(score.sigma[noisy]) > 1.4 * np.mean(score.sigma[~noisy])
    high = fresh[:, 1] > 0
    assert np.mean(score.mu[high]) > np.mean(score.mu[~high]) + 0.5


def test_where_there_is_nothing_to_find_little_changes(rng):
    X, y, fresh = rng.normal(size=(800, 5)), rng.normal(size=800), rng.normal(size=(4000, 5))
    y_fresh = rng.normal(size=4000)
    score, start = flat_start(4000), flat_start(800)
    for cuts in islice(boosting(X, y, start, 0.9), best_rounds(X, y, start, 0.9, held_out_folds(800, 1))):
        score = score.after(cuts, fresh)
    weights = quantile_weights(4000, 0.9)
    longer = log_length(y_fresh, score, weights) - log_length(y_fresh, flat_start(4000), weights)
    assert abs(longer) < 0.03


def covered_trials(monkeypatch, calibrate_on_training_rows, n_trials=200):
    """Fresh rows covered at 90% by a model that knows the training rows by heart."""
    monkeypatch.setattr(boosted, "best_rounds", lambda *_: 3)
    rng, hits = np.random.default_rng(0), 0
    for _ in range(n_trials):
        train, calib, (X, y) = skewed_rows(rng, 60), skewed_rows(rng, 19), skewed_rows(rng, 1)
        by_heart = dict(zip(train[0][:, 0].tolist(), (0.95 * train[1]).tolist(), strict=True))

        def predict(X, by_heart=by_heart):
            return np.array([by_heart.get(one, 0.0) for one in X[:, 0].tolist()])

        split = KnownSplit(predict, train, train if calibrate_on_training_rows else calib)
        ((low, high),) = boosted_local(split, 0.9, lambda X: np.ones(len(X)))(X)
        hits += int(low <= y[0] <= high)
    return hits, n_trials


def test_fresh_rows_are_covered(monkeypatch):
    hits, n_trials = covered_trials(monkeypatch, calibrate_on_training_rows=False)
    assert binom.cdf(hits, n_trials, 0.9) > 1e-6
    assert binom.sf(hits - 1, n_trials, 0.9) > 1e-6


def test_rows_that_train_cannot_calibrate(monkeypatch):
    hits, n_trials = covered_trials(monkeypatch, calibrate_on_training_rows=True)
    assert binom.cdf(hits, n_trials, 0.9) < 1e-6
