"""How often the intervals hold y: overall, in the tails, and level by level."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lvd._typing import ArrayLike, Float, Levels, NDArray
from lvd._validation import check_fraction, check_same_length, check_vector
from lvd.intervals import Region, binomial_band, covered
from lvd.metrics._check import check_hits, check_intervals, check_levels_of, check_targets_and_intervals


@dataclass(frozen=True, eq=False)
class CalibrationCurve:
    """Coverage at each level, with exact 95% binomial bands; a vector of length L each."""

    levels: Float[NDArray, "l"]
    coverage: Float[NDArray, "l"]
    lower: Float[NDArray, "l"]
    upper: Float[NDArray, "l"]


def marginal_coverage_rate(y: ArrayLike, intervals: ArrayLike) -> float:
    """MCR: share of rows whose closed interval holds y.

    >>> marginal_coverage_rate([0, 1, 2, 3], [[0, 1], [0, 1], [0, 1], [-float("inf"), float("inf")]])
    0.75
    """
    return float(covered(*check_targets_and_intervals(y, intervals)).mean())


def joint_coverage_rate(y: ArrayLike, region: Region | ArrayLike) -> float:
    """Share of rows whose region holds all targets: y has shape (n, t).

    `region` is what ``predict_region`` gives, or intervals of shape (n, 2, t) that are to hold together.

    >>> intervals = [[[0, 0], [1, 1]]] * 4
    >>> joint_coverage_rate([[0.5, 0.5], [0.5, 2], [2, 0.5], [1, 1]], intervals)
    0.5
    """
    return float(check_hits(y, region).mean())


def tail_coverage_rate(y: ArrayLike, intervals: ArrayLike, *, tail: float = 0.1) -> float:
    """TCR: coverage of the floor(tail n) smallest and the n - floor((1 - tail) n) largest y.

    Of equal y at the border of a tail, earlier rows come first.

    >>> y = list(range(10))
    >>> tail_coverage_rate(y, [[1, 20]] * 10)
    0.5
    """
    targets, array = check_targets_and_intervals(y, intervals)
    check_fraction(tail, "tail")
    n = len(targets)
    # Products such as 0.29 * 100 fall just short of a whole number.
    n_low, n_rest = math.floor(tail * n + 1e-9), math.floor((1.0 - tail) * n + 1e-9)
    order = np.argsort(targets, kind="stable")
    return float(covered(targets, array)[np.union1d(order[:n_low], order[n_rest:])].mean())


def calibration_curve(
    y: ArrayLike, intervals: ArrayLike, levels: Levels, *, n_distinct: int | None = None
) -> CalibrationCurve:
    """Coverage against level: `intervals` of shape (n, 2, L), one slice per level.

    The bands are those of `n_distinct` rows where some are copies of others.

    >>> y, intervals = [0, 1, 2, 3], [[[0, 0], [1, 3]]] * 4
    >>> curve = calibration_curve(y, intervals, [0.5, 0.9])
    >>> curve.coverage.tolist()
    [0.5, 1.0]
    """
    targets, array = check_vector(y), check_intervals(intervals)
    check_same_length(y=targets, intervals=array)
    vector = check_levels_of(array, levels)
    n_covered = covered(targets, array).sum(axis=0)
    n = len(targets)
    distinct = np.full_like(n_covered, n if n_distinct is None else n_distinct)
    lower, upper = binomial_band(n_covered * distinct / n, distinct)
    return CalibrationCurve(vector, n_covered / len(targets), lower, upper)
