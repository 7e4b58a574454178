from __future__ import annotations

import math

import numpy as np
import pytest

from lvd import InputError
from lvd.intervals import from_radius
from lvd.metrics import finite_fraction, finite_rows, mean_finite_width, winkler_score
from lvd.metrics.interval_metrics import tied_widths

INF = np.inf
MIXED = [[0, 1], [0, 3], [-INF, INF], [0, INF]]


def test_half_infinite_intervals_count_as_infinite():
    assert finite_rows(MIXED).tolist() == [True, True, False, False]
    assert finite_fraction(MIXED) == 0.5
    assert mean_finite_width(MIXED) == 2.0


def test_rows_finite_for_all_methods_and_levels():
    other = np.zeros((4, 2, 2))
    other[1, 1, 1] = INF
    assert finite_rows(MIXED, other).tolist() == [True, False, False, False]
    with pytest.raises(InputError, match="intervals 1 has 4, intervals 2 has 1"):
        finite_rows(MIXED, [[0, 1]])


def test_no_finite_interval_has_no_mean_width():
    assert math.isnan(mean_finite_width([[-INF, INF]]))
    assert finite_fraction([[-INF, INF]]) == 0.0


def test_winkler_by_hand():
    # Inside: the width 2. Half a unit above and one below at level 0.9: 2 + 20 * 0.5 and 2 + 20 * 1.
    assert winkler_score([1, 2.5, -1], [[0, 2]] * 3, 0.9) == pytest.approx((2 + 12 + 22) / 3)


def test_an_infinite_interval_has_an_infinite_winkler_score_unless_left_out():
    y = [0, 0, 0, -1]
    assert winkler_score(y, MIXED, 0.5) == INF
    assert winkler_score(y, MIXED, 0.5, where=finite_rows(MIXED)) == 2.0
    assert math.isnan(winkler_score(y, MIXED, 0.5, where=np.zeros(4, dtype=bool)))


@pytest.mark.parametrize("where", [[0, 1], [True, False]])
def test_where_is_one_boolean_per_row(where):
    with pytest.raises(InputError, match="where must be 4 booleans, one per row, got"):
        winkler_score([0] * 4, MIXED, 0.5, where=where)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_constant_radius_gives_tied_widths_whatever_the_rounding(rng, dtype):
    y_pred = (1e3 * rng.normal(size=500)).astype(dtype)
    intervals = from_radius(y_pred, np.full(500, 0.1, dtype=dtype))
    assert len(np.unique(intervals[:, 1] - intervals[:, 0])) > 1
    assert len(np.unique(tied_widths(intervals))) == 1


def test_widths_that_differ_stay_apart_in_their_order(rng):
    radius = np.append(rng.uniform(size=1000), [INF, INF])
    tied = tied_widths(from_radius(rng.normal(size=1002), radius))
    np.testing.assert_allclose(tied, 2 * radius)
    assert len(np.unique(tied)) == 1001


def test_winkler_counts_infinity_as_a_range():
    y, intervals = [0.0, 2.0, 9.0], [[-np.inf, np.inf], [-1.0, 100.0], [0.0, 1.0]]
    # cut to (-1, 5): 6 wide, 6 wide, and 1 wide with 8 missed at 2 / 0.1 each
    assert winkler_score(y, intervals, 0.9, y_range=(-1.0, 5.0)) == pytest.approx((6 + 6 + 1 + 160) / 3)


@pytest.mark.parametrize("y_range", [(0.0, np.inf), (np.nan, 1.0), (2.0, 1.0)])
def test_winkler_refuses_a_range_that_is_none(y_range):
    with pytest.raises(InputError, match="y_range must hold finite numbers"):
        winkler_score([0.0], [[0.0, 1.0]], 0.9, y_range=y_range)
