"""Depths in a distribution that training rows have fixed keep every promise; in one that the calibration rows have
shaped they do not.

X ~ N(0, 1), the error given x is 0.3 + |x| times a lognormal number less its median. The distribution in which
depths are measured is another one, of another shape, centre and scale: coverage does not rest on its being right.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import lvd
from lvd.calibration.guarantees import calibrated_radius, randomized_radius, standing
from lvd.engine import Queries, SortedRows, local_quantile
from lvd.scores.distributional import GRID, BoundDistribution, kept_apart
from lvd.scores.score import BoundResidual

LEVEL, N_CALIB = np.array([0.9]), 120
CENTRES = np.array([-1.5, 0.0, 1.5])


def draw(rng, x):
    """The errors of rows at x."""
    return (0.3 + np.abs(x)) * (np.exp(rng.normal(size=len(x))) - 1.0)


def fixed(x, calibration):
    """Quantiles of exponential errors around a mistaken centre, twice as large as they are on one side."""
    return (0.5 + np.maximum(x, 0.0))[:, None] * (-np.log1p(-GRID) - 0.2)


def peeking(x, calibration):
    """The mutant: quantiles of the errors of the seven nearest calibration rows."""
    known, errors = calibration
    nearest = np.argsort(np.abs(x[:, None] - known), axis=1)[:, :7]
    return kept_apart(np.quantile(errors[nearest], GRID, axis=1).T, 1e-3)


def bound_to(quantiles):
    zeros, ones = np.zeros((len(quantiles), 1)), np.ones((len(quantiles), 1))
    return BoundDistribution(zeros, ones, BoundResidual(zeros, ones, ones, ones), (quantiles,))


def short_of(level, shares):
    """By how many standard errors the mean of trials, each with calibration rows of its own, is below the level."""
    return (level - np.mean(shares)) / (np.std(shares) / np.sqrt(len(shares)))


def covered(rng, shape, draw_rows, radius):
    """One trial: a fresh calibration set, and the share of new rows that their intervals cover."""
    x = rng.normal(size=N_CALIB)
    new = draw_rows(rng)
    errors, error = draw(rng, x), draw(rng, new)
    scores = bound_to(shape(x, (x, errors)))(errors[:, None])[:, 0, 0]
    calibration = SortedRows.of(torch.as_tensor(x[:, None]), torch.as_tensor(scores))
    found = radius(torch.as_tensor(new[:, None]), calibration).numpy()
    lower, upper = bound_to(shape(new, (x, errors))).intervals(found[:, None, :, None], LEVEL)[:, :, 0, 0].T
    return np.mean((lower <= error) & (error <= upper))


def short_in_trials(shape, draw_rows, radius, n_trials):
    """By how much the level is missed."""
    return short_of(
        0.9, [covered(np.random.default_rng(i), shape, draw_rows, radius) for i in range(n_trials)]
    )


def near(centre):
    """Rows with a density proportional to N(0, 1) times the kernel at the centre."""
    return lambda rng: 2.0 * centre / 3.0 + rng.normal(size=50) / 3.0**0.5


def at(centre):
    """The radius at the centre, as for a row there."""
    return lambda query, rows: local_quantile(Queries(torch.full_like(query, centre)), rows, LEVEL).radius


@pytest.mark.parametrize("centre", CENTRES)
def test_the_local_promise(centre):
    assert short_in_trials(fixed, near(centre), at(centre), 100) < 5.0
    assert short_in_trials(peeking, near(centre), at(centre), 100) > 5.0


GUARANTEES = {
    "randomized": lambda query, rows: randomized_radius(Queries(query), rows, LEVEL, seed=0),
    "calibrated": lambda query, rows: calibrated_radius(Queries(query), rows, standing(rows), LEVEL),
}


@pytest.mark.parametrize("radius", GUARANTEES.values(), ids=GUARANTEES)
def test_the_promise_on_average(radius):
    def anywhere(rng):
        return rng.normal(size=50)

    assert short_in_trials(fixed, anywhere, radius, 40) < 5.0
    assert short_in_trials(peeking, anywhere, radius, 40) > 5.0


class TestShift:
    """Calibrated where few rows are on the right, for a population most of which is there; since training the
    errors on the right have doubled, so that the learned shape is wrong, and the weights matter."""

    @staticmethod
    def homes(rng, n_rows, share_right, factor=2.0):
        right = rng.random(n_rows) < share_right
        X = np.column_stack([np.where(right, 1, -1) * rng.uniform(size=n_rows), rng.normal(size=n_rows)])
        return X, np.where(right, factor, 1.0) * (np.exp(0.8 * rng.normal(size=n_rows)) - 1.0)

    def test_likelihood_ratios_go_with_a_learned_shape(self):
        """Beside it the version without weights, which fails."""
        reg = lvd.LVDRegressor(
            (lambda rows: 0.0 * rows[:, 0], lambda rows: rows),
            prefit=True,
            bandwidth=1e3,
            conformity_score=lvd.scores.DistributionalResidual(("boosted",)),
            when_unknown="widen",
            random_state=0,
        ).fit(*self.homes(np.random.default_rng(0), 600, 0.5, 1.0))
        assert reg.score_.shapes_[0] is not None
        ratios, kept, broken = np.array([0.25, 4.0]), [], []
        for trial in range(40):
            rng = np.random.default_rng(trial + 1)
            (X, y), (X_new, y_new) = self.homes(rng, 200, 0.2), self.homes(rng, 200, 0.8)
            of_rows, of_new = ratios[(X[:, 0] > 0) * 1], ratios[(X_new[:, 0] > 0) * 1]
            for shares, known, new in ((kept, of_rows, of_new), (broken, None, None)):
                intervals = reg.conformalize(X, y, weights=known).predict_interval(X_new, 0.9, weights=new)[1]
                shares.append(lvd.metrics.marginal_coverage_rate(y_new, intervals))
        assert short_of(0.9, kept) < 5.0 < short_of(0.9, broken)


class TestSkewedTown:
    """In one town of five prices scatter six times as much, and upwards."""

    @staticmethod
    def homes(n, seed):
        rng = np.random.default_rng(seed)
        X, town = rng.normal(size=(n, 3)), rng.random(n) < 0.2
        noise = np.where(town, 1.2, 0.2) * np.exp(0.8 * rng.normal(size=n))
        return np.column_stack([X, town]), 2.0 * X[:, 0] + noise, town

    def misses(self, score):
        """The shares of homes below and above their intervals, in the town and elsewhere."""
        X, y, town = self.homes(8000, 0)
        reg = lvd.LVDRegressor("trees", conformity_score=score, when_unknown="widen", random_state=0)
        lower, upper = reg.fit(X[:4000], y[:4000]).predict_interval(X[4000:], 0.9)[1][:, :, 0].T
        sides = np.stack([y[4000:] < lower, y[4000:] > upper], axis=1)
        there = town[4000:]
        return sides[there].mean(0), sides[~there].mean(0)

    def test_a_twentieth_is_missed_on_either_side(self, full_training):
        there, elsewhere = self.misses(lvd.scores.DistributionalResidual(("boosted",)))
        assert (np.abs(there - 0.05) < 0.025).all()
        assert (np.abs(elsewhere - 0.05) < 0.025).all()

    def test_a_symmetric_score_misses_on_one_side(self, full_training):
        there, _ = self.misses(lvd.scores.ScaledResidual(("boosted",)))
        assert there[1] > 0.07
        assert there[0] < 0.02
