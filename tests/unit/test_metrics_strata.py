from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from lvd import InputError
from lvd.intervals import binomial_band
from lvd.metrics import (
    coverage_gap,
    feature_stratified_coverage,
    group_coverage,
    size_stratified_coverage,
)
from lvd.metrics.strata import holm, quantile_bins

INF = np.inf


def intervals_that_cover(hits):
    """Intervals that hold y = 0 where `hits` is true."""
    return np.where(np.asarray(hits)[:, None], [-1.0, 1.0], [1.0, 2.0])


def test_each_group_has_its_count_coverage_band_and_p_value():
    hits = [True] * 18 + [False] * 2 + [True] * 5
    small, large = group_coverage(np.zeros(25), intervals_that_cover(hits), [2] * 20 + [1] * 5, 0.95)
    assert (small.group, small.count, small.coverage, small.p_value) == (1, 5, 1.0, 1.0)
    expected = stats.binomtest(18, 20, 0.95, alternative="less")
    assert (large.group, large.count, large.coverage) == (2, 20, 0.9)
    assert large.p_value == pytest.approx(expected.pvalue)
    exact = stats.binomtest(18, 20).proportion_ci(method="exact")
    assert (large.lower, large.upper) == pytest.approx((exact.low, exact.high))
    assert not small.below_level
    assert not large.below_level


def test_the_flag_is_corrected_for_the_number_of_groups():
    # 15 of 20 at level 0.9: p = 0.043, enough alone, not as one of three.
    hits = [True] * 15 + [False] * 5 + [True] * 40
    y, intervals, groups = np.zeros(60), intervals_that_cover(hits), np.repeat(["a", "b", "c"], 20)
    alone = group_coverage(y[:20], intervals[:20], groups[:20], 0.9)
    among_three = group_coverage(y, intervals, groups, 0.9)
    assert [row.below_level for row in alone] == [True]
    assert [row.below_level for row in among_three] == [False, False, False]
    assert among_three[0].p_value == alone[0].p_value


@pytest.mark.parametrize(
    "groups",
    [
        ["a", "b", "b"],
        np.array(["a", None, None], dtype=object),
        torch.tensor([0, 1, 1]),
        np.array([0.5, np.nan, np.nan]),
        np.array([False, True, True]),
        np.array(["2020-01-01", "2021-01-01", "2021-01-01"], dtype="datetime64[D]"),
    ],
)
def test_groups_are_names_or_numbers_and_a_missing_name_is_a_group(groups):
    rows = group_coverage([0, 0, 9], [[-1, 1]] * 3, groups, 0.9)
    assert sorted((row.count, row.coverage) for row in rows) == [(1, 1.0), (2, 0.5)]


def test_groups_must_be_one_column_of_the_same_length():
    with pytest.raises(InputError, match=r"groups must be 1-d, one name per row, got shape \(1, 2\)"):
        group_coverage([0, 0], [[-1, 1]] * 2, [["a", "b"]], 0.9)
    with pytest.raises(InputError, match="y has 2, groups has 1"):
        group_coverage([0, 0], [[-1, 1]] * 2, ["a"], 0.9)


def test_holm_by_hand():
    # 0.01 <= 0.05 / 3 and 0.02 <= 0.05 / 2, then 0.06 > 0.05; in the second case the first step fails.
    assert holm(np.array([0.02, 0.06, 0.01]), 0.05).tolist() == [True, False, True]
    assert holm(np.array([0.02, 0.02, 0.02]), 0.05).tolist() == [False, False, False]


def test_the_gap_counts_each_group_once():
    rows = group_coverage(np.zeros(8), intervals_that_cover([1, 0, 1, 1, 1, 1, 1, 1]), [0, 0] + [1] * 6, 0.9)
    assert coverage_gap(rows, 0.9) == pytest.approx((0.4 + 0.1) / 2)


@pytest.mark.parametrize(
    ("values", "n_bins", "expected"),
    [
        ([3, 1, 2, 4, 0], 2, [1, 0, 0, 1, 0]),  # as array_split: the first part is the longer one
        ([5, 5, 5], 3, [0, 0, 0]),  # nothing to cut between
        ([0] * 19 + [1], 10, [0] * 19 + [1]),  # a rare value keeps its own bin, above
        ([0] + [1] * 19, 10, [0] + [1] * 19),  # and below
        ([1, 2], 5, [0, 1]),
        ([1, 2, 3], 1, [0, 0, 0]),
    ],
)
def test_bins_are_equal_parts_cut_at_the_nearest_gap(values, n_bins, expected):
    assert quantile_bins(np.array(values, dtype=float), n_bins).tolist() == expected


def test_feature_bins_are_named_by_their_ends_with_digits_enough():
    feature = 1.7e9 + np.arange(4)
    rows = feature_stratified_coverage(np.zeros(4), [[-1, 1]] * 4, feature, 0.9, n_bins=2)
    assert [row.group for row in rows] == ["1700000000 to 1700000001", "1700000002 to 1700000003"]


def test_infinite_widths_are_a_bin_of_their_own():
    intervals = [[-2, 2], [-INF, INF], [-1, 1], [0, INF], [-2, 2], [-1, 1]]
    rows = size_stratified_coverage([3, 0, 0, -1, 0, 0], intervals, 0.9, n_bins=2)
    assert [(row.group, row.count, row.coverage) for row in rows] == [
        ("2", 2, 1.0),
        ("4", 2, 0.5),
        ("infinite", 2, 0.5),
    ]


def test_all_widths_infinite_is_one_bin():
    (row,) = size_stratified_coverage([0, 0], [[-INF, INF]] * 2, 0.9)
    assert (row.group, row.count) == ("infinite", 2)


def test_the_number_of_bins_is_a_positive_integer():
    with pytest.raises(InputError, match="n_bins must be a positive integer, got 0"):
        size_stratified_coverage([0, 0], [[-1, 1]] * 2, 0.9, n_bins=0)


def test_copies_count_once_in_bands_and_tests():
    y, groups = np.tile([0.0, 9.0, 0.0, 9.0], 50), np.tile(["a", "a", "b", "b"], 50)
    intervals, ids = np.tile([-1.0, 1.0], (200, 1)), np.tile(np.arange(4), 50)
    once = group_coverage(y[:4], intervals[:4], groups[:4], 0.9)
    often = group_coverage(y, intervals, groups, 0.9, row_ids=ids)
    assert [replace(one, count=2) for one in often] == list(once)
    assert [one.count for one in often] == [100, 100]
    assert all(one.below_level for one in group_coverage(y, intervals, groups, 0.9))
    by_width = size_stratified_coverage(y, intervals, 0.9, row_ids=ids)
    by_feature = feature_stratified_coverage(y, intervals, np.zeros(200), 0.9, row_ids=ids)
    for (row,) in (by_width, by_feature):
        assert (row.lower, row.upper) == tuple(map(float, binomial_band(2, 4)))
    with pytest.raises(InputError, match="row_ids"):
        group_coverage(y, intervals, groups, 0.9, row_ids=ids[1:])


def test_a_row_in_two_groups_counts_in_each():
    rows = group_coverage([0, 0], [[-1, 1]] * 2, ["a", "b"], 0.9, row_ids=[5, 5])
    assert [(row.lower, row.upper) for row in rows] == [tuple(map(float, binomial_band(1, 1)))] * 2
