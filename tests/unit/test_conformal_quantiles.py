"""Finite-sample ranks on toys that can be checked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from lvd import InputError
from lvd.engine import conformal_quantile, jackknife_plus_intervals
from lvd.scores.quantile import BoundQuantiles

SCORES = np.array([3.0, 1.0, 2.0, 5.0, 4.0, 9.0, 7.0, 8.0, 6.0])


@pytest.mark.parametrize(
    ("level", "expected"), [(0.05, 1.0), (0.1, 1.0), (0.11, 2.0), (0.5, 5.0), (0.9, 9.0), (0.91, np.inf)]
)
def test_the_rank_is_the_ceiling_of_m_plus_1_times_the_level(level, expected):
    assert conformal_quantile(SCORES, np.array([level])) == [expected]


def test_further_axes_are_kept():
    scores = np.stack([SCORES, 10.0 * SCORES], axis=1)
    np.testing.assert_array_equal(
        conformal_quantile(scores, np.array([0.5, 0.99])), [[5.0, 50.0], [np.inf, np.inf]]
    )


def test_no_scores_at_all_mean_infinity():
    assert conformal_quantile(np.empty(0), np.array([0.01])) == [np.inf]


def test_the_percentile_interpolates_and_is_never_infinite():
    levels = np.array([0.5, 0.9, 0.999])
    np.testing.assert_array_equal(
        conformal_quantile(SCORES, levels, quantile="percentile"), np.percentile(SCORES, [50.0, 90.0, 99.9])
    )


def test_another_kind_of_quantile_is_refused():
    with pytest.raises(InputError, match="quantile must be one of 'finite_sample', 'percentile', got 'mean'"):
        conformal_quantile(SCORES, np.array([0.5]), quantile="mean")


def test_jackknife_plus_by_its_definition(rng):
    predictions, residuals = rng.normal(size=(19, 4)), rng.exponential(size=19)
    alpha, n = 0.1, 19
    intervals = jackknife_plus_intervals(predictions, residuals, np.array([1.0 - alpha]))
    lower = np.sort(predictions - residuals[:, None], axis=0)[int(np.floor(alpha * (n + 1) + 1e-9)) - 1]
    upper = np.sort(predictions + residuals[:, None], axis=0)[int(np.ceil((1 - alpha) * (n + 1) - 1e-9)) - 1]
    np.testing.assert_array_equal(intervals[:, :, 0], np.stack([lower, upper], axis=1))


def test_jackknife_plus_is_infinite_when_the_rank_exceeds_the_rows():
    intervals = jackknife_plus_intervals(np.zeros((8, 1)), np.ones(8), np.array([0.9]))
    np.testing.assert_array_equal(intervals[0, :, 0], [-np.inf, np.inf])


def test_jackknife_plus_ends_never_cross():
    # Spread-out predictions with no error: at a low level the lower end would pass the upper one.
    intervals = jackknife_plus_intervals(
        np.linspace(-1, 1, 9)[:, None], np.full(9, 0.01), np.array([0.1, 0.5])
    )
    np.testing.assert_allclose(intervals[0, :, 0], [0.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(intervals[0, :, 1], [-0.01, 0.01], atol=1e-12)


def test_an_emptied_quantile_interval_shrinks_to_its_middle():
    quantiles = np.array([0.0, 2.0])[None, :, None, None]
    bound = BoundQuantiles(np.ones((1, 1)), np.ones((1, 1)), quantiles, np.array([0.9]), symmetric=True)

    def moved(*radii):
        return bound.intervals(np.array(radii)[None, :, None, None], np.array([0.9])).ravel()

    np.testing.assert_array_equal(moved(-3.0), [1.0, 1.0])
    np.testing.assert_array_equal(moved(1.0, -0.5), [-1.0, 1.5])
