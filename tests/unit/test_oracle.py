"""The weighted quantile, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lvd.engine.oracle import gaussian_weights, weighted_quantile

INF = math.inf


def quantile(scores, weights, level, self_weight=1.0, below=0.0):
    return weighted_quantile(np.array(scores, float), np.array(weights, float), self_weight, level, below)


def test_gaussian_weights_are_exp_of_minus_the_squared_distance():
    points = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 2.0], [100.0, 0.0]])
    weights = gaussian_weights(np.zeros(2), points)
    np.testing.assert_allclose(weights, [1.0, math.exp(-1.0), math.exp(-5.0), 0.0], rtol=1e-15)


@pytest.mark.parametrize(
    "precision", [0.25, np.array([0.25, 0.25, 4.0])], ids=["of the query", "of each row"]
)
def test_the_precision_divides_by_the_squared_bandwidth(precision):
    points = np.array([[0.0], [2.0], [0.5]])
    expected = [1.0, math.exp(-1.0), math.exp(-0.25 * np.broadcast_to(precision, 3)[2])]
    np.testing.assert_allclose(gaussian_weights(np.zeros(1), points, precision), expected, rtol=1e-15)


@pytest.mark.parametrize(
    ("level", "expected"), [(0.1, -INF), (0.25, -INF), (0.26, 1.0), (0.5, 1.0), (0.75, 2.0), (0.76, INF)]
)
def test_mass_below_all_scores_is_counted_first(level, expected):
    # One quarter each at -inf, 1, 2 and +inf.
    assert quantile([2.0, 1.0], [1.0, 1.0], level, below=1.0) == expected


def test_mass_at_the_two_ends_alone():
    assert quantile([], [], 0.5, self_weight=1.0, below=1.0) == -INF
    assert quantile([], [], 0.6, self_weight=1.0, below=1.0) == INF


@pytest.mark.parametrize(
    ("level", "expected"),
    [(0.1, 1.0), (0.2, 1.0), (0.21, 2.0), (0.4, 2.0), (0.6, 5.0), (0.8, 9.0), (0.81, INF), (0.99, INF)],
)
def test_equal_weights_share_the_mass_with_the_query(level, expected):
    # Four rows and the query carry a fifth each: the cumulative weights are 0.2, 0.4, 0.6, 0.8.
    assert quantile([5.0, 1.0, 9.0, 2.0], [1.0, 1.0, 1.0, 1.0], level) == expected


def test_the_score_at_which_the_level_is_reached_exactly_is_taken():
    # Cumulative weights 0.5 and 0.75 of the total 4, both without rounding.
    assert quantile([3.0, 7.0], [2.0, 1.0], 0.5) == 3.0
    assert quantile([3.0, 7.0], [2.0, 1.0], np.nextafter(0.5, 1.0)) == 7.0
    assert quantile([3.0, 7.0], [2.0, 1.0], 0.75) == 7.0
    assert quantile([3.0, 7.0], [2.0, 1.0], np.nextafter(0.75, 1.0)) == INF


def test_tied_scores_count_together():
    assert quantile([4.0, 4.0, 4.0, 8.0], [1.0, 1.0, 1.0, 1.0], 0.6) == 4.0
    assert quantile([4.0, 4.0, 4.0, 8.0], [1.0, 1.0, 1.0, 1.0], 0.61) == 8.0


def test_a_row_without_weight_is_never_the_answer():
    assert quantile([1.0, 2.0, 3.0], [0.0, 1.0, 0.0], 0.5) == 2.0
    assert quantile([1.0, 2.0, 3.0], [0.0, 1.0, 0.0], 0.51) == INF


@pytest.mark.parametrize("level", [0.01, 0.5, 0.99])
def test_nothing_known_is_infinite(level):
    assert quantile([], [], level) == INF
    assert quantile([1.0, 2.0], [0.0, 0.0], level) == INF
    assert quantile([], [], level, self_weight=0.0) == INF
    assert quantile([1.0, 2.0], [0.0, 0.0], level, self_weight=0.0) == INF


def test_the_mass_at_infinity_decides():
    assert quantile([1.0, 2.0], [1.0, 1.0], 0.9, self_weight=0.0) == 2.0
    assert quantile([1.0, 2.0], [1.0, 1.0], 0.9, self_weight=0.2) == 2.0
    assert quantile([1.0, 2.0], [1.0, 1.0], 0.9, self_weight=0.3) == INF


def test_scores_may_be_negative_and_infinite():
    assert quantile([-3.0, 2.0], [1.0, 1.0], 0.3) == -3.0
    assert quantile([-3.0, INF], [1.0, 1.0], 0.5) == INF
