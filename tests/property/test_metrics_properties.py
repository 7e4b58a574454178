from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lvd.metrics import (
    crps,
    finite_rows,
    marginal_coverage_rate,
    mean_finite_width,
    residual_auroc,
    size_stratified_coverage,
    tail_coverage_rate,
    width_error_correlation,
    winkler_score,
)
from lvd.metrics.conditional import lowest_run
from lvd.metrics.strata import quantile_bins

INF = np.inf
numbers = st.integers(-64, 64).map(lambda k: k / 8)  # exact in binary: no rounding to argue about
radii = st.one_of(st.integers(0, 64).map(lambda k: k / 8), st.just(INF))


@st.composite
def cases(draw):
    """Targets, predictions and intervals around them, some infinite."""
    n = draw(st.integers(2, 30))
    y, y_pred = (draw(hnp.arrays(float, n, elements=numbers)) for _ in range(2))
    radius = draw(hnp.arrays(float, n, elements=radii))
    return y, y_pred, np.stack([y_pred - radius, y_pred + radius], axis=1)


def all_metrics(y, y_pred, intervals):
    return [
        marginal_coverage_rate(y, intervals),
        residual_auroc(y, y_pred, intervals),
        width_error_correlation(y, y_pred, intervals),
        mean_finite_width(intervals),
        winkler_score(y, intervals, 0.75),
    ]


@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(case, random):
    rows = list(range(len(case[0])))
    random.shuffle(rows)
    shuffled = [array[rows] for array in case]
    np.testing.assert_allclose(all_metrics(*shuffled), all_metrics(*case), rtol=1e-12)


@given(cases(), numbers, st.sampled_from([0.25, 2.0, 8.0]))
def test_moving_and_scaling_y_moves_nothing_but_the_widths(case, shift, scale):
    before, after = all_metrics(*case), all_metrics(*(scale * array + shift for array in case))
    np.testing.assert_allclose(after[:3], before[:3], rtol=1e-12)
    np.testing.assert_allclose(after[3:], scale * np.array(before[3:]), rtol=1e-12)


@given(cases(), st.integers(1, 64).map(lambda k: k / 8))
def test_wider_intervals_cover_more(case, extra):
    y, _, intervals = case
    wider = intervals + np.array([-extra, extra])
    assert marginal_coverage_rate(y, wider) >= marginal_coverage_rate(y, intervals)
    assert tail_coverage_rate(y, wider) >= tail_coverage_rate(y, intervals)


@given(cases())
def test_a_huge_width_ranks_as_an_infinite_one(case):
    y, y_pred, intervals = case
    huge = np.where(finite_rows(intervals)[:, None], intervals, [-1e6, 1e6])
    np.testing.assert_equal(residual_auroc(y, y_pred, huge), residual_auroc(y, y_pred, intervals))


@given(cases(), st.integers(1, 8))
def test_the_strata_put_together_are_the_whole(case, n_bins):
    y, _, intervals = case
    rows = size_stratified_coverage(y, intervals, 0.9, n_bins=n_bins)
    assert sum(row.count for row in rows) == len(y)
    assert sum(row.count * row.coverage for row in rows) / len(y) == pytest.approx(
        marginal_coverage_rate(y, intervals)
    )
    assert all(row.lower <= row.coverage <= row.upper for row in rows)
    assert len(rows) <= n_bins + 1


@given(hnp.arrays(float, st.integers(1, 40), elements=numbers), st.integers(1, 12))
def test_bins_follow_the_values_and_keep_equal_ones_together(values, n_bins):
    codes = quantile_bins(values, n_bins)
    order = np.argsort(values, kind="stable")
    assert (np.diff(codes[order]) >= 0).all()
    assert sorted(set(codes)) == list(range(codes.max() + 1))
    assert codes.max() < n_bins
    assert all(len(set(codes[values == value])) == 1 for value in values)


@given(st.permutations(range(23)), st.integers(1, 23))
def test_bins_of_different_values_are_those_of_array_split(values, n_bins):
    codes = quantile_bins(np.array(values, dtype=float), n_bins)
    assert np.bincount(codes).tolist() == [len(part) for part in np.array_split(np.arange(23), n_bins)]


@given(st.data(), st.integers(1, 14))
def test_the_lowest_run_is_that_of_brute_force(data, n_cells):
    counts = data.draw(hnp.arrays(int, n_cells, elements=st.integers(1, 4)))
    hits = np.array([data.draw(st.integers(0, int(count))) for count in counts])
    min_count = data.draw(st.integers(1, int(counts.sum())))
    ratios = {
        (start, stop): hits[start:stop].sum() / counts[start:stop].sum()
        for start in range(n_cells)
        for stop in range(start + 1, n_cells + 1)
        if counts[start:stop].sum() >= min_count
    }
    assert ratios[lowest_run(counts, hits, min_count, (2, 1))] == min(ratios.values())
    lowest = min(ratios, key=ratios.__getitem__)
    bound = int(hits[slice(*lowest)].sum()), int(counts[slice(*lowest)].sum())
    assert lowest_run(counts, hits, min_count, bound) is None


@given(
    hnp.arrays(float, (3, 6), elements=numbers),
    hnp.arrays(float, (3, 6), elements=st.integers(0, 5).map(float)),
    hnp.arrays(float, 3, elements=numbers),
)
def test_crps_is_the_energy_form(samples, weights, y):
    weights[:, 0] += 1.0
    share = weights / weights.sum(axis=1, keepdims=True)
    to_y = (share * np.abs(samples - y[:, None])).sum(axis=1)
    pairs = np.abs(samples[:, :, None] - samples[:, None, :])
    among = (share[:, :, None] * share[:, None, :] * pairs).sum(axis=(1, 2))
    np.testing.assert_allclose(crps(y, samples, weights), to_y - among / 2, atol=1e-12)
