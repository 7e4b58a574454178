"""Checks of intervals: infinite ends are results; NaN, crossed ends and empty sets are refused."""

from __future__ import annotations

import numpy as np

from lvd._typing import ArrayLike, Bool, Float, Levels, NDArray
from lvd._validation import (
    InputError,
    check_levels,
    check_matrix,
    check_same_length,
    check_vector,
    to_numpy,
)
from lvd.intervals import Region, covered, in_box


def check_intervals(intervals: ArrayLike) -> Float[NDArray, "n 2 l"]:
    """`intervals` of shape (n, 2) or (n, 2, L) as an array of shape (n, 2, L).

    float32 stays float32: the rounding of the ends decides which widths count as tied (`tied_widths`).
    """
    array = to_numpy(intervals)
    if array.dtype.kind not in "fiu":
        raise InputError(f"intervals must hold numbers, got dtype {array.dtype}; convert them to float first")
    if array.dtype != np.float32:
        array = array.astype(np.float64)
    if array.ndim not in (2, 3) or array.shape[1] != 2 or array.size == 0:
        raise InputError(
            f"intervals must have shape (n, 2) or (n, 2, n_levels) with n > 0, got {array.shape}; "
            "stack lower and upper ends along axis 1"
        )
    array = array.reshape(len(array), 2, -1)
    lower, upper = array[:, 0], array[:, 1]
    _refuse_intervals(
        np.isnan(lower) | np.isnan(upper), "hold NaN", "an unbounded end is -inf or +inf, not NaN"
    )
    _refuse_intervals(
        lower > upper,
        "have the lower end above the upper end",
        "if they are empty sets, as those of smoothed=True may be, pass both ends at the prediction, as "
        "LVDRegressor.predict_interval does, which gives them width 0; if not, check the order of the columns",
    )
    _refuse_intervals(
        (lower == np.inf) | (upper == -np.inf), "hold no number", "an unbounded interval is (-inf, +inf)"
    )
    return array


def check_one_level(intervals: ArrayLike) -> Float[NDArray, "n 2"]:
    """`intervals` of shape (n, 2) or (n, 2, 1) as an array of shape (n, 2)."""
    array = check_intervals(intervals)
    if array.shape[2] != 1:
        raise InputError(
            f"intervals must be those of one level, got {array.shape[2]} levels; "
            "pass one of them, for instance intervals[:, :, 0]"
        )
    return array[:, :, 0]


def check_targets_and_intervals(
    y: ArrayLike, intervals: ArrayLike
) -> tuple[Float[NDArray, "n"], Float[NDArray, "n 2"]]:
    """Targets and their intervals at one level, of the same length."""
    targets, array = check_vector(y), check_one_level(intervals)
    check_same_length(y=targets, intervals=array)
    return targets, array


def check_boxes(intervals: ArrayLike) -> Float[NDArray, "n 2 t"]:
    """Intervals of several targets at one level, of shape (n, 2, t) or (n, 2, 1, t)."""
    array = to_numpy(intervals)
    if array.ndim == 4 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim != 3:
        raise InputError(
            f"intervals of several targets at one level must have shape (n, 2, n_targets), got {array.shape}; pass "
            "one level, for instance intervals[:, :, 0]"
        )
    return check_intervals(array)


def check_hits(y: ArrayLike, intervals: Region | ArrayLike) -> Bool[NDArray, "n"]:
    """Whether each row is covered: y by its interval, or all targets of a row, y of shape (n, t), by its region.

    `intervals` may also be the answer itself, a boolean for each row; y is then not looked at.
    """
    if isinstance(intervals, Region):
        return intervals.contains(y)
    array = to_numpy(intervals)
    if array.dtype == np.bool_ and array.ndim == 1:
        return array
    if np.ndim(y) == 2 and np.shape(y)[1] > 1:
        targets, boxes = check_matrix(y, "y"), check_boxes(array)
        check_same_length(y=targets, intervals=boxes)
        if boxes.shape[2] != targets.shape[1]:
            raise InputError(
                f"y has {targets.shape[1]} targets, but intervals {boxes.shape[2]}; give the same ones"
            )
        return in_box(targets, boxes)
    return covered(*check_targets_and_intervals(y, array))


def check_level(confidence_level: Levels) -> float:
    """One confidence level, strictly between 0 and 1."""
    levels = check_levels(confidence_level)
    if len(levels) != 1:
        raise InputError(f"confidence_level must be one number here, got {len(levels)}; call once per level")
    return float(levels[0])


def check_levels_of(intervals: Float[NDArray, "n 2 l"], levels: Levels) -> Float[NDArray, "l"]:
    """Levels, one for each slice of `intervals`."""
    vector = check_levels(levels)
    if len(vector) != intervals.shape[2]:
        raise InputError(
            f"levels must name every level of intervals, got {len(vector)} for {intervals.shape[2]}; "
            "pass the list that predict_interval was given"
        )
    return vector


def _refuse_intervals(bad: NDArray, what: str, remedy: str) -> None:
    rows = np.flatnonzero(bad.any(axis=1))
    if rows.size:
        first = ", ".join(map(str, rows[:5]))
        raise InputError(f"intervals {what} in {rows.size} rows (first at row {first}); {remedy}")
