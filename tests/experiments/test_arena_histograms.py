from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, expon, norm

from experiments.arena.distributional import Quantiles, distributional
from experiments.arena.histograms import STEPS, bin_edges, histogram_intervals, needed_steps, nested_bins
from experiments.arena.split import ArenaSplit
from experiments.paper.stages import Stages

ORDERS = np.array([0.0, *np.linspace(0.005, 0.995, 100), 1.0])


class KnownSplit(ArenaSplit):
    """A split whose distribution is known already."""

    def __init__(self, ask, y_train, X_calib, y_calib):
        self.stages, self.y_train, self.X_calib, self.y_calib = Stages(), y_train, X_calib, y_calib
        self.stages.once("distribution", lambda: ask)


def around(centres, scales, ends):
    """Normal distributions as the arena's learner gives them, between two ends."""
    inner = np.asarray(centres)[:, None] + np.asarray(scales)[:, None] * norm.ppf(ORDERS[1:-1])
    tails = np.tile(ends, (len(inner), 1))
    return Quantiles(ORDERS, np.column_stack([tails[:, :1], inner.clip(*ends), tails[:, 1:]]))


def test_the_toy_by_hand():
    below, edges = np.array([0.0, 0.1, 0.7, 0.9, 1.0]), np.arange(5.0)
    ends = nested_bins(below, edges, 800)
    assert ends[799].tolist() == [1, 3]
    assert ends[599].tolist() == ends[0].tolist() == [1, 2]
    assert ends[600].tolist() == [1, 3]
    assert ends[999].tolist() == [0, 4]
    y = np.array([1.5, 2.5, 3.5, 9.0])
    steps = needed_steps(np.tile(below, (4, 1)), edges, 800, y)
    assert steps[:2].tolist() == [1, 601]
    assert 801 <= steps[2] <= 901
    assert np.isinf(steps[3])


@pytest.mark.parametrize("start", [1, 500, 900, STEPS])
def test_intervals_are_nested_hold_their_mass_and_are_the_shortest_that_do(rng, start):
    edges = np.unique(rng.normal(size=20))
    masses = rng.dirichlet(np.full(len(edges) - 1, 0.3))
    below = np.array([0.0, *np.cumsum(masses)])
    ends = nested_bins(below, edges, start)
    assert (np.diff(ends[:, 0]) <= 0).all()
    assert (np.diff(ends[:, 1]) >= 0).all()
    steps = np.arange(1, STEPS + 1)
    assert (below[ends[:, 1]] - below[ends[:, 0]] >= steps / STEPS - 1e-8).all()
    for step in steps:
        inner = None if step <= start else ends[step - 2]
        outer = (0, len(edges) - 1) if step >= start else ends[step]
        lengths = [
            edges[last] - edges[first]
            for first in range(outer[0], outer[1] + 1 if inner is None else inner[0] + 1)
            for last in range(first if inner is None else inner[1], outer[1] + 1)
            if below[last] - below[first] >= step / STEPS - 1e-9
        ]
        assert edges[ends[step - 1, 1]] - edges[ends[step - 1, 0]] == min(lengths)


def test_bins_are_narrow_where_training_rows_are_many(rng):
    y = np.array([*rng.normal(size=999), 1000.0])
    known = around(np.zeros(1), np.ones(1), (-100.0, 1100.0))
    edges = bin_edges(y, known)
    assert edges[[0, -1]].tolist() == [-100.0, 1100.0]
    assert ((edges > -1) & (edges < 1)).sum() > 300


def coverages(calibrate_on_training_rows, n_trials=200):
    """Fresh rows covered at 90% where the distribution is overfitted: near training rows, too narrow elsewhere."""
    rng, hits = np.random.default_rng(0), 0
    for _ in range(n_trials):
        y_train, y_calib, y = rng.normal(size=19), rng.normal(size=19), rng.normal(size=1)

        def ask(X, y_train=y_train):
            seen = X[:, 0] >= 0
            centres = np.where(seen, y_train[np.where(seen, X[:, 0], 0).astype(int)], 0.0)
            return around(centres, np.where(seen, 0.1, 0.4), (-8.0, 8.0))

        unseen = np.full((19, 1), -1.0)
        if calibrate_on_training_rows:
            split = KnownSplit(ask, y_train, np.arange(19.0)[:, None], y_train)
        else:
            split = KnownSplit(ask, y_train, unseen, y_calib)
        low, high = histogram_intervals(split, 0.9)(unseen[:1])[0]
        hits += int(low <= y[0] <= high)
    return hits, n_trials


def test_fresh_rows_are_covered():
    hits, n_trials = coverages(calibrate_on_training_rows=False)
    assert binom.cdf(hits, n_trials, 0.9) > 1e-6
    assert binom.sf(hits - 1, n_trials, 0.93) > 1e-6


def test_rows_that_train_cannot_calibrate():
    hits, n_trials = coverages(calibrate_on_training_rows=True)
    assert binom.cdf(hits, n_trials, 0.9) < 1e-6


def test_one_sided_noise_gets_one_sided_intervals():
    """With the exact distribution, lengths are those of the truth: 2.30 for the shortest, 2.94 for equal tails."""
    row = np.array([0.0, *expon.ppf(ORDERS[1:-1]), 12.0])

    def ask(X):
        return Quantiles(ORDERS, np.tile(row, (len(X), 1)))

    y = expon.ppf((np.arange(2000) + 0.5) / 2000)
    split = KnownSplit(ask, y, np.zeros((2000, 1)), y)
    short = histogram_intervals(split, 0.9)(np.zeros((1, 1)))[0]
    equal = distributional(split, 0.9, shortest=False)(np.zeros((1, 1)))[0]
    assert short[0] == pytest.approx(0.0, abs=0.03)
    assert np.ptp(short) == pytest.approx(expon.ppf(0.9), rel=0.07)
    assert np.ptp(short) < 0.85 * np.ptp(equal)


def test_too_few_calibration_rows_give_infinite_intervals():
    def ask(X):
        return around(np.zeros(len(X)), np.ones(len(X)), (-5.0, 5.0))

    split = KnownSplit(ask, np.zeros(20), np.zeros((5, 1)), np.linspace(-1.0, 1.0, 5))
    np.testing.assert_array_equal(histogram_intervals(split, 0.9)(np.zeros((1, 1))), [[-np.inf, np.inf]])
