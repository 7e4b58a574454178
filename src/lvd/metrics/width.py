"""How wide the intervals are, how many are finite, and how large regions are."""

from __future__ import annotations

import math

import numpy as np

from lvd._typing import ArrayLike, Bool, Float, NDArray
from lvd._validation import InputError, check_same_length, to_numpy
from lvd.intervals import Bounds, Region, log_box_volume, widths
from lvd.metrics._check import (
    check_boxes,
    check_intervals,
    check_level,
    check_one_level,
    check_targets_and_intervals,
)


def finite_rows(intervals: ArrayLike, *others: ArrayLike) -> Bool[NDArray, "n"]:
    """Which rows are finite in all of the given intervals: those on which the widths can be compared.

    >>> split, local = [[0, 1], [0, 1]], [[0, 1], [-float("inf"), float("inf")]]
    >>> finite_rows(split, local).tolist()
    [True, False]
    """
    arrays = [check_intervals(one) for one in (intervals, *others)]
    check_same_length(**{f"intervals {number}": array for number, array in enumerate(arrays, start=1)})
    finite: NDArray = np.isfinite(np.concatenate(arrays, axis=2)).all(axis=(1, 2))
    return finite


def finite_fraction(intervals: ArrayLike) -> float:
    """Share of rows whose interval is finite.

    >>> finite_fraction([[0, 1], [0, 3], [2, 3], [-float("inf"), float("inf")]])
    0.75
    """
    return float(finite_rows(check_one_level(intervals)).mean())


def mean_finite_width(intervals: ArrayLike) -> float:
    """Mean width of the finite intervals, to be read beside `finite_fraction`; NaN when none is finite.

    >>> mean_finite_width([[0, 1], [0, 3], [-float("inf"), float("inf")]])
    2.0
    """
    array = check_one_level(intervals)
    width = widths(array)[finite_rows(array)]
    return float(width.mean(dtype=np.float64)) if width.size else math.nan


def winkler_score(
    y: ArrayLike,
    intervals: ArrayLike,
    confidence_level: float,
    *,
    where: ArrayLike | None = None,
    y_range: tuple[float, float] | None = None,
) -> float:
    """Mean Winkler score: (u - l) + (2 / alpha) ((l - y)+ + (y - u)+) with alpha = 1 - confidence_level.

    An infinite interval has an infinite score, and so has a mean that contains it. To compare methods on all rows,
    give a `y_range`, to which intervals are cut, so that infinity counts as that range; or give the rows on which
    all methods are finite as `where` and report `finite_fraction` beside it. NaN when `where` selects no row.

    >>> intervals = [[0, 2], [0, 2], [-float("inf"), float("inf")]]
    >>> winkler_score([1, 3, 0], intervals, 0.5)
    inf
    >>> winkler_score([1, 3, 0], intervals, 0.5, where=finite_rows(intervals))
    4.0
    >>> winkler_score([1, 3, 0], intervals, 0.5, y_range=(-1, 6))
    5.0
    """
    scores = winkler_scores(y, intervals, confidence_level, y_range=y_range)
    if where is not None:
        scores = scores[_check_mask(where, len(scores))]
    return float(scores.mean()) if scores.size else math.nan


def winkler_scores(
    y: ArrayLike, intervals: ArrayLike, confidence_level: float, *, y_range: tuple[float, float] | None = None
) -> Float[NDArray, "n"]:
    """The Winkler score of each row; see :func:`winkler_score`."""
    targets, array = check_targets_and_intervals(y, intervals)
    penalty = 2.0 / (1.0 - check_level(confidence_level))
    if y_range is not None:
        array = np.clip(array, *_check_bounds(y_range))
    lower, upper = array[:, 0], array[:, 1]
    misses = np.maximum(lower - targets, 0.0) + np.maximum(targets - upper, 0.0)
    return widths(array) + penalty * misses


def mean_log_volume(region: Region | ArrayLike, *, y_range: Bounds | None = None) -> float:
    """Mean of the natural logarithms of the volumes; +inf where one of the regions is infinite.

    To count infinity, give the `y_range` to which regions are cut, ``(lowest, highest)``, each a number or one for
    each target: an infinite region then counts as that box, and an ellipsoid as no more than the box of its
    projections within it.

    >>> intervals = [[[0, 0], [1, 1]], [[-float("inf"), 0], [float("inf"), 1]]]
    >>> mean_log_volume(intervals)
    inf
    >>> print(round(mean_log_volume(intervals, y_range=([-2, -2], [2, 2])), 3))
    0.693
    """
    bounds = None if y_range is None else _check_bounds(y_range)
    if isinstance(region, Region):
        return float((region if bounds is None else region.within(bounds)).log_volume().mean())
    boxes = check_boxes(region)
    return float(log_box_volume(boxes if bounds is None else np.clip(boxes, *bounds)).mean())


def widened_range(y: Float[NDArray, "n"]) -> tuple[float, float]:
    """What an infinite interval counts as: the range of these y, a tenth wider on each side."""
    margin = 0.1 * float(np.ptp(y))
    return float(y.min()) - margin, float(y.max()) + margin


def tied_widths(intervals: Float[NDArray, "n 2"]) -> Float[NDArray, "n"]:
    """Widths for ranking: those that differ by no more than the rounding of their ends are made equal.

    The ends y_pred - r and y_pred + r are rounded, so one constant radius r gives widths that differ in their
    last digits; a ranking must not read anything into that. Infinite widths stay +inf.
    """
    width = widths(intervals).astype(np.float64)
    finite = np.isfinite(width)
    ends = np.where(finite[:, None], intervals, 0.0)
    noise = np.finfo(intervals.dtype).eps * np.abs(ends).sum(axis=1)
    order = np.argsort(width, kind="stable")
    width, noise = width[order], noise[order]
    steps = width[1:] > width[:-1] + noise[1:] + noise[:-1]
    starts = np.flatnonzero(np.concatenate([[True], steps]))
    tied = np.empty_like(width)
    tied[order] = np.repeat(width[starts], np.diff(starts, append=len(width)))
    return tied


def _check_mask(where: ArrayLike, n: int) -> Bool[NDArray, "n"]:
    mask = to_numpy(where)
    if mask.dtype != np.bool_ or mask.shape != (n,):
        raise InputError(
            f"where must be {n} booleans, one per row, got shape {mask.shape} of {mask.dtype}; "
            "use finite_rows(...) or a comparison"
        )
    return mask


def _check_bounds(y_range: Bounds) -> Bounds:
    low, high = (np.asarray(to_numpy(end), dtype=np.float64) for end in y_range)
    if low.ndim and high.ndim:
        check_same_length(lowest=low, highest=high)
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
        raise InputError(f"y_range must hold finite numbers, (lowest, highest), got {y_range!r}")
    return low, high
