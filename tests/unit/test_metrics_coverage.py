from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from lvd.metrics import binomial_band, calibration_curve, marginal_coverage_rate, tail_coverage_rate

INF = np.inf


def test_closed_intervals_hold_their_ends_and_infinite_ones_everything():
    intervals = [[0, 1], [0, 1], [0, 1], [-INF, INF], [2, INF]]
    assert marginal_coverage_rate([0, 1, 1.1, 1e9, 1], intervals) == 0.6


def test_a_slice_of_one_level_and_tensors_give_the_same():
    y, intervals = torch.tensor([0.0, 2.0]), torch.tensor([[[0.0], [1.0]], [[0.0], [1.0]]])
    assert marginal_coverage_rate(y, intervals) == 0.5


@pytest.mark.parametrize(
    ("n", "tail", "n_low", "n_high"),
    [
        (62, 0.1, 6, 7),
        (10, 0.1, 1, 1),
        (5, 0.1, 0, 1),
        (7, 0.5, 3, 4),
        (100, 0.29, 29, 29),
        (90, 0.3, 27, 27),
    ],
)
def test_the_tails_are_the_floor_of_the_smallest_and_the_rest_above_the_floor(n, tail, n_low, n_high):
    y = np.random.default_rng(n).permutation(n).astype(float)
    below, above = np.array([-INF, n_low - 0.5]), np.array([n - n_high - 0.5, INF])
    low = tail_coverage_rate(y, np.tile(below, (n, 1)), tail=tail)
    high = tail_coverage_rate(y, np.tile(above, (n, 1)), tail=tail)
    assert low == pytest.approx(n_low / (n_low + n_high))
    assert high == pytest.approx(n_high / (n_low + n_high))


def test_the_middle_does_not_enter_the_tail_coverage():
    y = np.arange(100.0)
    intervals = np.where(((y < 10) | (y >= 90))[:, None], [-INF, INF], [-2.0, -1.0])
    assert tail_coverage_rate(y, intervals) == 1.0
    assert marginal_coverage_rate(y, intervals) == 0.2


def test_the_calibration_curve_has_one_point_and_band_per_level():
    y = np.arange(10.0)
    intervals = np.stack([np.tile([0.0, 4.0], (10, 1)), np.tile([-INF, INF], (10, 1))], axis=2)
    curve = calibration_curve(y, intervals, [0.5, 0.9])
    np.testing.assert_array_equal(curve.levels, [0.5, 0.9])
    np.testing.assert_array_equal(curve.coverage, [0.5, 1.0])
    np.testing.assert_allclose(curve.lower, [stats.beta.ppf(0.025, 5, 6), stats.beta.ppf(0.025, 10, 1)])
    np.testing.assert_allclose(curve.upper, [stats.beta.ppf(0.975, 6, 5), 1.0])


@pytest.mark.parametrize("n", [1, 7, 200])
def test_the_band_is_that_of_scipy(n):
    for hits in {0, 1, n // 2, n}:
        expected = stats.binomtest(hits, n).proportion_ci(confidence_level=0.9, method="exact")
        np.testing.assert_allclose(binomial_band(hits, n, significance=0.1), expected, rtol=1e-9)


def test_the_bands_of_the_curve_count_copies_once():
    y = np.tile([0.0, 0.0, 9.0], 100)
    intervals = np.tile([-1.0, 1.0], (300, 1))[:, :, None]
    curve = calibration_curve(y, intervals, [0.5], n_distinct=3)
    assert (curve.lower[0], curve.upper[0]) == tuple(map(float, binomial_band(2, 3)))
    assert curve.coverage[0] == calibration_curve(y, intervals, [0.5]).coverage[0]
