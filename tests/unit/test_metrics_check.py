from __future__ import annotations

import numpy as np
import pytest
import torch

from lvd import InputError
from lvd._validation import check_fraction
from lvd.intervals import check_intervals, check_level, check_levels_of
from lvd.metrics import marginal_coverage_rate, winkler_score

INF = np.inf


def test_infinite_ends_are_accepted_and_two_axes_become_three():
    checked = check_intervals([[-INF, INF], [0, INF], [-INF, 1]])
    assert checked.shape == (3, 2, 1)


def test_float32_stays_and_integers_become_float64():
    assert check_intervals(torch.zeros(4, 2)).dtype == np.float32
    assert check_intervals([[0, 1]]).dtype == np.float64


def test_pandas_frames_are_accepted():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"lower": [0.0, 0.0], "upper": [1.0, 2.0]})
    assert marginal_coverage_rate(pd.Series([0.5, 3.0]), frame) == 0.5


@pytest.mark.parametrize(
    ("intervals", "message"),
    [
        ([["a", "b"]], "must hold numbers, got dtype <U1"),
        ([0.0, 1.0], r"must have shape \(n, 2\) or \(n, 2, n_levels\) with n > 0, got \(2,\)"),
        (np.zeros((3, 3)), r"got \(3, 3\); stack lower and upper ends along axis 1"),
        (np.zeros((0, 2)), r"got \(0, 2\)"),
        ([[0, 1], [np.nan, 1]], r"hold NaN in 1 rows \(first at row 1\); an unbounded end is -inf or \+inf"),
        (
            [[1, 0], [0, 1], [3, 2]],
            r"lower end above the upper end in 2 rows \(first at row 0, 2\); if they are",
        ),
        ([[INF, INF]], r"hold no number in 1 rows \(first at row 0\)"),
        ([[-INF, -INF]], "hold no number"),
    ],
)
def test_bad_intervals_are_refused_with_a_remedy(intervals, message):
    with pytest.raises(InputError, match=message):
        check_intervals(intervals)


def test_several_levels_are_refused_where_one_is_needed():
    with pytest.raises(InputError, match=r"those of one level, got 2 levels; pass one of them"):
        marginal_coverage_rate(np.zeros(3), np.zeros((3, 2, 2)))


def test_lengths_must_agree():
    with pytest.raises(InputError, match="y has 2, intervals has 3"):
        marginal_coverage_rate(np.zeros(2), np.zeros((3, 2)))


def test_levels_must_be_one_or_as_many_as_the_intervals():
    with pytest.raises(InputError, match=r"did you mean 0\.9"):
        winkler_score([0], [[0, 1]], 90.0)
    with pytest.raises(InputError, match="must be one number here, got 2; call once per level"):
        check_level([0.5, 0.9])
    with pytest.raises(InputError, match="must name every level of intervals, got 1 for 2"):
        check_levels_of(np.zeros((3, 2, 2)), 0.9)


@pytest.mark.parametrize("value", [0.0, 1.0, 25.0, np.nan])
def test_a_fraction_lies_strictly_between_0_and_1(value):
    with pytest.raises(InputError, match=r"delta must lie in \(0, 1\), got"):
        check_fraction(value, "delta")
