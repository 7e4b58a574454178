"""Regions of several targets: how often they hold all of them, and how large they are."""

from __future__ import annotations

import numpy as np

from lvd._typing import ArrayLike
from lvd._validation import InputError, check_same_length, to_numpy
from lvd.metrics._check import check_boxes, check_hits
from lvd.regions import Bounds, Region, log_box_volume


def joint_coverage_rate(y: ArrayLike, region: Region | ArrayLike) -> float:
    """Share of rows whose region holds all targets: y has shape (n, t).

    `region` is what ``predict_region`` gives, or intervals of shape (n, 2, t) that are to hold together.

    >>> intervals = [[[0, 0], [1, 1]]] * 4
    >>> joint_coverage_rate([[0.5, 0.5], [0.5, 2], [2, 0.5], [1, 1]], intervals)
    0.5
    """
    return float(check_hits(y, region).mean())


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


def _check_bounds(y_range: Bounds) -> Bounds:
    low, high = (np.asarray(to_numpy(end), dtype=np.float64) for end in y_range)
    if low.ndim and high.ndim:
        check_same_length(lowest=low, highest=high)
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
        raise InputError(f"y_range must hold finite numbers, (lowest, highest), got {y_range!r}")
    return low, high
