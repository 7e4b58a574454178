"""Whether coverage depends on width; it does not where coverage holds at every x (Feldman et al. 2021)."""

from __future__ import annotations

import math

import numpy as np

from lvd._typing import ArrayLike, Float, NDArray
from lvd._validation import InputError, check_positive
from lvd.intervals import covered
from lvd.metrics._check import check_targets_and_intervals
from lvd.metrics._statistics import pearson
from lvd.metrics.width import finite_rows, tied_widths

_BLOCK = 256  # rows of the n x n kernel matrix held at once


def width_coverage_correlation(y: ArrayLike, intervals: ArrayLike) -> float:
    """Pearson's correlation between width and "y is covered", over the rows with finite intervals.

    NaN when all widths are equal, or all rows are covered, or none is.

    >>> round(width_coverage_correlation([0, 0, 0, 9], [[-1, 1], [-2, 2], [-1, 1], [-2, 2]]), 3)
    -0.577
    """
    targets, array = check_targets_and_intervals(y, intervals)
    finite = finite_rows(array)
    return pearson(tied_widths(array)[finite], covered(targets, array)[finite].astype(np.float64))


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
    for start in range(0, len(points), _BLOCK):
        block = slice(start, start + _BLOCK)
        kernel = np.exp(-np.square(points[block, None] - points) / scale)
        form += float(vector[block] @ kernel @ vector)
    return form
