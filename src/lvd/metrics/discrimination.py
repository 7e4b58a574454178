"""Whether wide intervals stand where the errors are large."""

from __future__ import annotations

import math

import numpy as np

from lvd._typing import ArrayLike, Float, NDArray
from lvd._validation import check_same_length, check_vector
from lvd.metrics._check import check_targets_and_intervals
from lvd.metrics._statistics import average_ranks, pearson
from lvd.metrics.width import tied_widths


def residual_auroc(y: ArrayLike, y_pred: ArrayLike, intervals: ArrayLike) -> float:
    """AUROC of the width as a detector of large errors, those above the median of |y - y_pred|.

    Infinite widths rank highest, tied. NaN when no error is above the median (all errors equal): there is
    nothing to detect.

    >>> intervals = [[-1, 1], [-1, 1], [-4, 4], [-float("inf"), float("inf")]]
    >>> residual_auroc([0, 0.5, 3, 9], [0, 0, 0, 0], intervals)
    1.0
    """
    errors, width = _errors_and_widths(y, y_pred, intervals)
    large = errors > np.median(errors)
    n_large, n_small = int(large.sum()), int((~large).sum())
    if n_large == 0:
        return math.nan
    # The Mann-Whitney statistic: pairs (large, small) in which the large error has the wider interval.
    won = average_ranks(width)[large].sum() - n_large * (n_large + 1) / 2
    return float(won / (n_large * n_small))


def width_error_correlation(y: ArrayLike, y_pred: ArrayLike, intervals: ArrayLike) -> float:
    """Spearman's rank correlation between width and |y - y_pred|.

    Ranks, so that infinite widths take part: highest, tied. NaN when all widths or all errors are equal.

    >>> intervals = [[-1, 1], [-2, 2], [-4, 4], [-float("inf"), float("inf")]]
    >>> width_error_correlation([0, 0.5, 3, 9], [0, 0, 0, 0], intervals)
    1.0
    """
    errors, width = _errors_and_widths(y, y_pred, intervals)
    return pearson(average_ranks(errors), average_ranks(width))


def _errors_and_widths(
    y: ArrayLike, y_pred: ArrayLike, intervals: ArrayLike
) -> tuple[Float[NDArray, "n"], Float[NDArray, "n"]]:
    targets, array = check_targets_and_intervals(y, intervals)
    predictions = check_vector(y_pred, "y_pred")
    check_same_length(y=targets, y_pred=predictions)
    return np.abs(targets - predictions), tied_widths(array)
