"""How far predictions are off, and whether the width of an interval depends on the error, and coverage on it."""

from __future__ import annotations

import math

import numpy as np

from lvd._parallel import chunk_slices
from lvd._typing import ArrayLike, Float, NDArray
from lvd._validation import InputError, check_positive, check_same_length, check_vector
from lvd.intervals import covered
from lvd.metrics._check import check_targets_and_intervals
from lvd.metrics.width import finite_rows, tied_widths

_BLOCK = 256  # rows of the n x n kernel matrix held at once


def mean_absolute_deviation(y: ArrayLike, y_pred: ArrayLike) -> float:
    """MAD: mean of |y - y_pred|.

    >>> mean_absolute_deviation([1, 2, 3], [1, 3, 5])
    1.0
    """
    return float(_absolute_errors(y, y_pred).mean())


def residual_auroc(y: ArrayLike, y_pred: ArrayLike, intervals: ArrayLike) -> float:
    """AUROC of the width as a detector of large errors, those above the median of |y - y_pred|.

    Infinite widths rank highest, tied. NaN when no error is above the median (all errors equal): there is
    nothing to detect.

    >>> intervals = [[-1, 1], [-1, 1], [-4, 4], [-float("inf"), float("inf")]]
    >>> residual_auroc([0, 0.5, 3, 9], [0, 0, 0, 0], intervals)
    1.0
    """
    from scipy.stats import rankdata

    errors, width = _errors_and_widths(y, y_pred, intervals)
    large = errors > np.median(errors)
    n_large, n_small = int(large.sum()), int((~large).sum())
    if n_large == 0:
        return math.nan
    # The Mann-Whitney statistic: pairs (large, small) in which the large error has the wider interval.
    won = rankdata(width)[large].sum() - n_large * (n_large + 1) / 2
    return float(won / (n_large * n_small))


def width_error_correlation(y: ArrayLike, y_pred: ArrayLike, intervals: ArrayLike) -> float:
    """Spearman's rank correlation between width and |y - y_pred|.

    Ranks, so that infinite widths take part: highest, tied. NaN when all widths or all errors are equal.

    >>> intervals = [[-1, 1], [-2, 2], [-4, 4], [-float("inf"), float("inf")]]
    >>> width_error_correlation([0, 0.5, 3, 9], [0, 0, 0, 0], intervals)
    1.0
    """
    from scipy.stats import rankdata

    errors, width = _errors_and_widths(y, y_pred, intervals)
    return _pearson(rankdata(errors), rankdata(width))


def width_coverage_correlation(y: ArrayLike, intervals: ArrayLike) -> float:
    """Pearson's correlation between width and "y is covered", over the rows with finite intervals.

    Where coverage holds at every x it is 0 (Feldman et al. 2021). NaN when all widths are equal, or all rows are
    covered, or none is.

    >>> round(width_coverage_correlation([0, 0, 0, 9], [[-1, 1], [-2, 2], [-1, 1], [-2, 2]]), 3)
    -0.577
    """
    targets, array = check_targets_and_intervals(y, intervals)
    finite = finite_rows(array)
    return _pearson(tied_widths(array)[finite], covered(targets, array)[finite].astype(np.float64))


def hsic(
    y: ArrayLike, intervals: ArrayLike, *, width_scale: float = 1.0, covered_scale: float = 1.0
) -> float:
    """Hilbert-Schmidt independence criterion tr(K H L H) / (n - 1)^2 between width and "y is covered".

    K and L are the Gaussian kernels exp(-d^2 / scale) of the widths and of the cover indicator, H = I - 1/n.
    Infinite widths are at distance 0 from each other and infinitely far from all others. The scale of the
    widths is in squared units of y. O(n^2) time, O(n) memory.

    >>> round(hsic([0, 0, 0, 9], [[-1, 1], [-2, 2], [-1, 1], [-2, 2]]), 4)
    0.0689
    """
    targets, array = check_targets_and_intervals(y, intervals)
    check_positive(width_scale, "width_scale")
    check_positive(covered_scale, "covered_scale")
    n = len(targets)
    if n < 2:
        raise InputError("hsic needs at least 2 rows, got 1; give more rows")
    hits = covered(targets, array).astype(np.float64)
    width = tied_widths(array)
    centred, finite = hits - hits.mean(), np.isfinite(width)
    form = _gaussian_form(width[finite], centred[finite], width_scale) + centred[~finite].sum() ** 2
    # The indicator has two values, so H L H is 2 (1 - exp(-1 / scale)) times the outer square of `centred`.
    return float(2.0 * -math.expm1(-1.0 / covered_scale) * form / (n - 1) ** 2)


def _gaussian_form(points: Float[NDArray, "n"], vector: Float[NDArray, "n"], scale: float) -> float:
    """The quadratic form v' K v with K_ij = exp(-(p_i - p_j)^2 / scale), a block of rows at a time."""
    form = 0.0
    for block in chunk_slices(len(points), _BLOCK):
        kernel = np.exp(-np.square(points[block, None] - points) / scale)
        form += float(vector[block] @ kernel @ vector)
    return form


def _absolute_errors(y: ArrayLike, y_pred: ArrayLike) -> Float[NDArray, "n"]:
    targets, predictions = check_vector(y), check_vector(y_pred, "y_pred")
    check_same_length(y=targets, y_pred=predictions)
    return np.abs(targets - predictions)


def _errors_and_widths(
    y: ArrayLike, y_pred: ArrayLike, intervals: ArrayLike
) -> tuple[Float[NDArray, "n"], Float[NDArray, "n"]]:
    _, array = check_targets_and_intervals(y, intervals)
    return _absolute_errors(y, y_pred), tied_widths(array)


def _pearson(a: Float[NDArray, "n"], b: Float[NDArray, "n"]) -> float:
    """Pearson's correlation; NaN where a side does not vary."""
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return math.nan
    return float(np.corrcoef(a, b)[0, 1])
