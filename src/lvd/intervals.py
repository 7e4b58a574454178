"""Intervals as arrays of shape ``(n, 2, L)``: lower and upper end of each row at each level."""

from __future__ import annotations

import numpy as np

from lvd._typing import Bool, Float, NDArray


def from_radius(
    y_pred: Float[NDArray, "*n"], radius: Float[NDArray, "n *rest"]
) -> Float[NDArray, "n 2 *rest"]:
    """Intervals ``y_pred -+ radius``; an infinite radius gives an infinite interval."""
    centre = y_pred.reshape(y_pred.shape[0], *(1,) * (radius.ndim - y_pred.ndim), *y_pred.shape[1:])
    return np.stack([centre - radius, centre + radius], axis=1)


def clip(
    intervals: Float[NDArray, "n 2 *rest"], y_min: float | None, y_max: float | None
) -> Float[NDArray, "n 2 *rest"]:
    """Intervals cut to the known range of y, which cannot lose a y of that range."""
    if y_min is None and y_max is None:
        return intervals
    return np.clip(intervals, y_min, y_max)


def widths(intervals: Float[NDArray, "n 2 *rest"]) -> Float[NDArray, "n *rest"]:
    """Upper minus lower end; +inf for an infinite interval."""
    return intervals[:, 1] - intervals[:, 0]


def covered(y: Float[NDArray, "n"], intervals: Float[NDArray, "n 2 *rest"]) -> Bool[NDArray, "n *rest"]:
    """Whether y lies in the closed interval."""
    y = y.reshape(-1, *(1,) * (intervals.ndim - 2))
    return (intervals[:, 0] <= y) & (y <= intervals[:, 1])
