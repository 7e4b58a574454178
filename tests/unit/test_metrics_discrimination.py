from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from lvd.intervals import from_radius
from lvd.metrics import (
    hsic,
    mean_absolute_deviation,
    residual_auroc,
    width_coverage_correlation,
    width_error_correlation,
)

INF = np.inf


@pytest.fixture
def case(rng):
    """Targets, predictions and intervals whose widths know something about the error; a fifth is infinite."""
    y, y_pred = rng.normal(size=200), rng.normal(size=200)
    radius = np.round(np.abs(y - y_pred) + rng.exponential(size=200), 1)
    radius[rng.random(200) < 0.2] = INF
    return y, y_pred, from_radius(y_pred, radius), radius


def test_mean_absolute_deviation_by_hand():
    assert mean_absolute_deviation([0, 0, 3], [1, -1, 0]) == pytest.approx(5 / 3)


def test_auroc_is_that_of_scikit_learn_with_infinity_above_everything(case):
    y, y_pred, intervals, radius = case
    errors = np.abs(y - y_pred)
    score = np.where(np.isinf(radius), 1e9, radius)
    expected = roc_auc_score(errors > np.median(errors), score)
    assert residual_auroc(y, y_pred, intervals) == pytest.approx(expected)


def test_auroc_counts_ties_half():
    # Errors 0, 1, 2, 3: the last two are large. Pairs: (4 against 2, 4) = 1.5, (inf against 2, 4) = 2.
    intervals = [[-1, 1], [-2, 2], [-2, 2], [-INF, INF]]
    assert residual_auroc([0, 1, 2, 3], [0] * 4, intervals) == 3.5 / 4


def test_constant_and_all_infinite_widths_do_not_discriminate(rng):
    y, y_pred = rng.normal(size=101), 1e3 * rng.normal(size=101)
    assert residual_auroc(y, y_pred, from_radius(y_pred, np.full(101, 0.1))) == 0.5
    assert residual_auroc(y, y_pred, from_radius(y_pred, np.full(101, INF))) == 0.5


def test_equal_errors_leave_nothing_to_detect():
    assert math.isnan(residual_auroc([1, 1], [0, 0], [[0, 1], [0, 2]]))
    assert math.isnan(width_error_correlation([1, 1], [0, 0], [[0, 1], [0, 2]]))


def test_width_error_correlation_is_spearman_with_infinity_on_top(case):
    y, y_pred, intervals, radius = case
    score = np.where(np.isinf(radius), 1e9, radius)
    expected = stats.spearmanr(np.abs(y - y_pred), score).statistic
    assert width_error_correlation(y, y_pred, intervals) == pytest.approx(expected)


def test_width_coverage_correlation_is_pearson_over_finite_rows(rng):
    y, radius = rng.normal(size=200), rng.uniform(0.5, 2, size=200)
    radius[::5] = INF
    intervals = from_radius(np.zeros(200), radius)
    finite = np.isfinite(radius)
    expected = stats.pearsonr(radius[finite], np.abs(y[finite]) <= radius[finite]).statistic
    assert width_coverage_correlation(y, intervals) == pytest.approx(expected)


def test_width_coverage_correlation_is_undefined_where_nothing_varies():
    assert math.isnan(width_coverage_correlation([0, 0], [[0, 1], [0, 2]]))
    assert math.isnan(width_coverage_correlation([0, 5], [[0, 1], [0, 1]]))
    assert math.isnan(width_coverage_correlation([0, 5], [[0, 1], [-INF, INF]]))


def hsic_by_definition(width, hits, width_scale, covered_scale):
    def gram(values, scale):
        same = values[:, None] == values
        distance = np.subtract.outer(values, values, where=~same, out=np.zeros(same.shape))
        return np.exp(-(distance**2) / scale)

    n = len(width)
    H = np.eye(n) - 1 / n
    return np.trace(gram(width, width_scale) @ H @ gram(hits, covered_scale) @ H) / (n - 1) ** 2


@pytest.mark.parametrize("scales", [(1.0, 1.0), (0.3, 2.0)])
def test_hsic_is_its_definition_and_infinite_widths_are_one_far_value(rng, scales):
    y, radius = rng.normal(size=300), rng.uniform(0.2, 2, size=300)
    radius[::7] = INF
    expected = hsic_by_definition(2 * radius, (np.abs(y) <= radius).astype(float), *scales)
    intervals = from_radius(np.zeros(300), radius)
    assert hsic(y, intervals, width_scale=scales[0], covered_scale=scales[1]) == pytest.approx(expected)


def test_hsic_needs_two_rows():
    with pytest.raises(ValueError, match="at least 2 rows, got 1"):
        hsic([0], [[0, 1]])
