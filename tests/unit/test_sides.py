"""Signed errors: ends of their own, and errors measured by what is usual on their side."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import lvd
from lvd.engine.oracle import gaussian_weights, weighted_quantile
from lvd.scores.residuals import BoundSigned, _side_scales
from lvd.scores.score import BoundResidual

LEVELS = [0.5, 0.8, 0.9]


def predict(X):
    return X[:, 0]


def embed(X):
    return X


def plain_kernel():
    return lvd.MahalanobisKernel.from_components(
        np.eye(1), mean=np.zeros(1), scale=np.ones(1), distance="sum", device="cpu"
    )


def column(*numbers):
    return np.array(numbers, dtype=float)[:, None]


ANY = np.array([0.9])


def one_level(bound, *radii):
    """Intervals (n, 2) of radii, a row for each column of scores."""
    radius = np.array(radii, dtype=float).T[:, :, None, None]
    return bound.intervals(radius, ANY)[:, :, 0, 0]


class TestScores:
    def test_signed(self):
        bound = BoundSigned(column(1.0, 2.0), column(1.0, 2.0))
        np.testing.assert_array_equal(bound(column(0.0, 6.0))[..., 0], [[1.0, -1.0], [-2.0, 2.0]])
        np.testing.assert_array_equal(one_level(bound, [1.0, 2.0], [3.0, 0.5]), [[0.0, 4.0], [-2.0, 3.0]])

    def test_signed_scores_of_several_targets(self):
        bound = BoundSigned(np.array([[1.0, 10.0]]), np.array([[1.0, 2.0]]))
        np.testing.assert_array_equal(bound(np.array([[3.0, 6.0]]))[0], [[-2.0, 2.0], [2.0, -2.0]])

    def test_an_empty_set_shrinks_to_the_prediction(self):
        bound = BoundSigned(column(5.0), column(2.0))
        np.testing.assert_array_equal(one_level(bound, [-np.inf], [-np.inf]), [[5.0, 5.0]])
        sided = BoundResidual(column(5.0), column(1.0), column(2.0), column(1.0))
        np.testing.assert_array_equal(one_level(sided, [-np.inf]), [[5.0, 5.0]])

    def test_sided(self):
        bound = BoundResidual(column(0.0, 0.0), column(1.0, 1.0), column(1.0, 1.0), column(4.0, 4.0))
        np.testing.assert_array_equal(bound(column(-2.0, 2.0))[:, 0, 0], [2.0, 0.5])
        np.testing.assert_array_equal(one_level(bound, [2.0, 1.0]), [[-2.0, 8.0], [-1.0, 4.0]])

    def test_past_the_largest_number_an_end_is_infinite(self):
        y_pred, unit = column(0.0), column(1e200)
        for intervals in (
            one_level(BoundResidual(y_pred, unit, unit, unit), [1e200]),
            one_level(BoundSigned(y_pred, unit), [1e200], [1e200]),
        ):
            np.testing.assert_array_equal(intervals, [[-np.inf, np.inf]])

    def test_equal_sides_are_the_error_in_its_unit_bit_for_bit(self, rng):
        y_pred, y, radius = rng.normal(size=50), rng.normal(size=50), rng.gamma(1.0, size=50)
        unit = 1e-5 + rng.gamma(1.0, size=50)
        bound = BoundResidual(*(column(*part) for part in (y_pred, unit, unit, unit)))
        np.testing.assert_array_equal(bound(column(*y))[:, 0, 0], np.abs(y - y_pred) / unit)
        expected = np.stack([y_pred - radius * unit, y_pred + radius * unit], axis=1)
        np.testing.assert_array_equal(one_level(bound, radius), expected)

    def test_scales_by_hand(self):
        points = torch.tensor([[0.0], [1e3]], dtype=torch.float64)
        below, above = _side_scales(points[:1], points, np.array([-3.0, 1.0]))
        # Weight 1 on the near row, whose error is -3, and 1 on the mean squares 4.5 and 0.5 of the two sides.
        assert below == pytest.approx(((9.0 + 4.5) / 2.0) ** 0.5, abs=1e-4)
        assert above == pytest.approx(((0.0 + 0.5) / 2.0) ** 0.5, abs=1e-4)


class TestInterval:
    @pytest.fixture
    def conformal(self, rng):
        return lvd.LocalConformal(plain_kernel()).conformalize(
            rng.normal(size=(150, 1)), rng.gamma(1.0, size=150) - 0.5
        )

    def test_both_ends_are_weighted_quantiles(self, conformal, rng):
        queries = rng.normal(size=(20, 1))
        points, scores = (
            conformal.calibration_.rows.points.numpy(),
            conformal.calibration_.scores[:, 0].numpy(),
        )
        for query, ends in zip(queries, conformal.interval(queries, 0.8), strict=True):
            weights = gaussian_weights(query, points)
            assert ends[0] == -weighted_quantile(-scores, weights, 1.0, 0.9)
            assert ends[1] == weighted_quantile(scores, weights, 1.0, 0.9)

    @pytest.mark.parametrize("choices", [{}, {"guarantee": "randomized"}, {"guarantee": "calibrated"}])
    def test_shapes_and_order(self, conformal, rng, choices):
        queries = rng.normal(size=(20, 1))
        ends = conformal.interval(queries, LEVELS, **choices)
        assert ends.shape == (20, 2, 3)
        assert (ends[:, 0] <= ends[:, 1]).all()
        assert (ends[:, 0, 1:] <= ends[:, 0, :-1]).all()
        assert (ends[:, 1, 1:] >= ends[:, 1, :-1]).all()
        np.testing.assert_array_equal(conformal.interval(queries, 0.8, **choices), ends[..., 1])

    def test_turning_the_scores_round_turns_the_interval_round(self, conformal, rng):
        queries = rng.normal(size=(20, 1))
        turned = conformal.rescored(-conformal.calibration_.scores[:, 0].numpy())
        for choices in ({}, {"guarantee": "randomized"}, {"guarantee": "calibrated"}):
            np.testing.assert_array_equal(
                turned.interval(queries, LEVELS, **choices),
                -conformal.interval(queries, LEVELS, **choices)[:, ::-1],
            )

    def test_symmetric_scores_give_the_interval_of_their_sizes(self):
        scores = np.repeat(np.arange(1.0, 51.0), 2) * np.tile([-1.0, 1.0], 50)
        signed = lvd.LocalConformal(plain_kernel()).conformalize(np.zeros((100, 1)), scores)
        assert signed.interval([[0.0]], 0.8).tolist() == [[-41.0, 41.0]]

    def test_explain_names_both_ends(self, conformal):
        queries = [[0.0], [30.0]]
        ends = conformal.interval(queries, 0.8)
        near, far = conformal.explain(queries, 0.8, two_sided=True)
        assert (-near.lower_radius, near.radius) == tuple(ends[0])
        told = f"at most 10% of which had an error below {ends[0, 0]:.3g}, and at most 10% above {ends[0, 1]:.3g}."
        assert near.sentence.endswith(told)
        assert far.radius == far.lower_radius == math.inf
        assert far.rows_missing == 9


def test_rescored_rows_are_those_of_a_new_calibration(rng):
    X, first, second = rng.normal(size=(80, 1)), rng.gamma(1.0, size=80), rng.gamma(2.0, size=80)
    groups, weights = np.arange(80) % 2, rng.gamma(2.0, size=80)
    old = lvd.LocalConformal(plain_kernel()).conformalize(X, first, groups=groups, weights=weights)
    new = lvd.LocalConformal(plain_kernel()).conformalize(X, second, groups=groups, weights=weights)
    labels = {"groups": groups, "weights": weights}
    before = old.radius(X, LEVELS, **labels)
    np.testing.assert_array_equal(
        old.rescored(second).radius(X, LEVELS, **labels), new.radius(X, LEVELS, **labels)
    )
    np.testing.assert_array_equal(old.radius(X, LEVELS, **labels), before)
    with pytest.raises(lvd.InputError, match="calibration has 80, scores has 79"):
        old.rescored(second[1:])


@pytest.fixture(scope="module")
def skewed():
    """Errors that are never far below and often far above the prediction."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(1500, 1))
    return X, X[:, 0] + rng.gamma(0.5, size=1500) - 0.1


def regressor(**changes):
    kernel = lvd.MahalanobisKernel(1, max_iter=5, device="cpu")
    settings = {"estimator": (predict, embed), "prefit": True, "kernel": kernel}
    return lvd.LVDRegressor(**settings | {"device": "cpu", "random_state": 0} | changes)


def calibrated(X, y, n_train, **changes):
    return regressor(**changes).fit(X[:n_train], y[:n_train]).conformalize(X[n_train:], y[n_train:])


class TestRegressor:
    def test_narrower_on_skewed_errors(self, skewed):
        X, y = skewed
        fit, test = slice(1000), slice(1000, None)
        widths = {}
        for score in ("absolute", "signed", "sided"):
            reg = calibrated(X[fit], y[fit], 500, conformity_score=score)
            _, intervals = reg.predict_interval(X[test], 0.9)
            covered = (intervals[:, 0, 0] <= y[test]) & (y[test] <= intervals[:, 1, 0])
            assert 0.85 < covered.mean() < 0.96
            widths[score] = np.median(intervals[:, 1, 0] - intervals[:, 0, 0])
        assert widths["signed"] < 0.85 * widths["absolute"]
        assert widths["sided"] < 0.85 * widths["absolute"]

    def test_symmetric_errors_are_not_made_skewed(self, rng):
        X = rng.uniform(-1.0, 1.0, size=(1500, 1))
        y = X[:, 0] + rng.normal(size=1500)
        for score in ("signed", "sided"):
            y_pred, intervals = calibrated(X, y, 750, conformity_score=score).predict_interval(X, 0.8)
            assert np.median(intervals[:, 1, 0] - y_pred) == pytest.approx(
                np.median(y_pred - intervals[:, 0, 0]), rel=0.3
            )

    @pytest.mark.parametrize("score", ["signed", "sided"])
    def test_all_choices_go_together(self, skewed, score):
        X, y = skewed[0][:300], np.stack([skewed[1], -2.0 * skewed[1]], axis=1)[:300]
        net = lvd.NetRegressor(hidden_sizes=(5,), n_batches=20, device="cpu")
        reg = regressor(estimator=net, prefit=False, conformity_score=score)
        groups = np.where(X[:, 0] > 0, "right", "left")
        reg.fit(X, y, groups=groups)
        for choices in ({}, {"guarantee": "calibrated"}, {"guarantee": "randomized", "smoothed": True}):
            _, intervals = reg.predict_interval(X[:40], LEVELS, groups=groups[:40], **choices)
            assert intervals.shape == (40, 2, 3, 2)
            assert (intervals[:, 0] <= intervals[:, 1]).all()
        explained = reg.explain(X[:3], 0.8, groups=groups[:3])
        _, intervals = reg.predict_interval(X[:3], 0.8, groups=groups[:3])
        for e in explained:
            assert (e.lower, e.upper) == tuple(intervals[e.row, :, 0, e.target])
            assert (e.evidence.lower_radius is None) == (score == "sided")

    def test_each_side_needs_its_own_rows(self, skewed):
        X, y = skewed[0][:60], skewed[1][:60]
        with pytest.warns(lvd.CalibrationWarning, match="at least 19 calibration rows, and there are 15"):
            calibrated(X, y, 45, conformity_score="signed")

    def test_the_watch_looks_at_the_size_of_signed_errors(self, skewed):
        X, y = skewed
        watch = calibrated(X, y, 750, conformity_score="signed").monitor(random_state=0)
        rng = np.random.default_rng(1)
        assert watch.take(X[:300], X[:300, 0] + 5.0 * rng.choice([-1.0, 1.0], size=300)).alarm

    def test_an_unknown_choice(self, skewed):
        with pytest.raises(lvd.InputError, match=r"conformity_score must be one of .*got 'both'"):
            regressor(conformity_score="both").fit(*skewed)
