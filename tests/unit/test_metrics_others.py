"""Our values beside those of MAPIE and covmetrics, on finite data."""

from __future__ import annotations

import numpy as np
import pytest

from lvd import metrics
from lvd.metrics.conditional import lowest_run


@pytest.fixture
def case(rng):
    """Features, targets and finite intervals whose widths follow a noise that they get wrong."""
    X = rng.normal(size=(300, 4))
    y = rng.normal(size=300) * (1 + np.abs(X[:, 0]))
    radius = 1 + np.abs(X[:, 1]) + 0.1 * rng.random(300)
    return X, y, np.stack([-radius, radius], axis=1)


def test_mapie(case):
    mapie = pytest.importorskip("mapie.metrics.regression")
    _, y, intervals = case
    stacked = intervals[:, :, None]
    assert metrics.marginal_coverage_rate(y, intervals) == mapie.regression_coverage_score(y, intervals)[0]
    assert metrics.mean_finite_width(intervals) == pytest.approx(
        mapie.regression_mean_width_score(stacked)[0]
    )
    ours = metrics.winkler_score(y, intervals, 0.9)
    assert ours == pytest.approx(mapie.regression_mwi_score(y, stacked, 0.9))
    assert metrics.hsic(y, intervals) == pytest.approx(mapie.hsic(y, stacked)[0] ** 2)
    for n_bins in (2, 3, 7):
        rows = metrics.size_stratified_coverage(y, intervals, 0.9, n_bins=n_bins)
        expected = mapie.regression_ssc(y, intervals, num_bins=n_bins)[0]
        np.testing.assert_allclose([row.coverage for row in rows], expected)


def test_covmetrics(case):
    covmetrics = pytest.importorskip("covmetrics")
    _, y, intervals = case
    hits = (np.abs(y) <= intervals[:, 1]).astype(float)
    width = intervals[:, 1] - intervals[:, 0]
    groups = np.arange(300) % 7
    rows = metrics.group_coverage(y, intervals, groups, 0.9)
    assert min(row.coverage for row in rows) == pytest.approx(covmetrics.FSC().evaluate(groups, hits))
    assert metrics.coverage_gap(rows, 0.9) == pytest.approx(
        covmetrics.CovGap().evaluate(groups, hits, alpha=0.1)
    )
    pearson = covmetrics.PearsonCorrelation().evaluate(width, hits)
    assert metrics.width_coverage_correlation(y, intervals) == pytest.approx(pearson)
    assert metrics.hsic(y, intervals) == pytest.approx(covmetrics.HSIC().evaluate(width, hits))


def test_covmetrics_worst_slab(case, rng):
    slab_metrics = pytest.importorskip("covmetrics.slab_metrics")
    X, y, intervals = case
    hits = np.abs(y) <= intervals[:, 1]
    directions = rng.normal(size=(20, 4))
    expected, _, _ = slab_metrics.wsc_all_numpy(X, hits.astype(float), 0.1, directions)
    ours = []
    for direction in directions:
        ordered = hits[np.argsort(X @ direction)].astype(int)
        start, stop = lowest_run(np.ones(300, dtype=int), ordered, 30, (2, 1))
        ours.append(ordered[start:stop].mean())
    np.testing.assert_allclose(ours, expected)
