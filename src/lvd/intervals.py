"""Intervals as arrays of shape ``(n, 2, L)``: lower and upper end of each row at each level."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import betaincinv

from lvd._typing import ArrayLike, Bool, Float, NDArray
from lvd._validation import check_fraction, percent_name


def from_radius(
    y_pred: Float[NDArray, "*n"], radius: Float[NDArray, "n *rest"]
) -> Float[NDArray, "n 2 *rest"]:
    """Intervals ``y_pred -+ radius``; an infinite radius gives an infinite interval."""
    centre = y_pred.reshape(y_pred.shape[0], *(1,) * (radius.ndim - y_pred.ndim), *y_pred.shape[1:])
    return np.stack([centre - radius, centre + radius], axis=1)


def widths(intervals: Float[NDArray, "n 2 *rest"]) -> Float[NDArray, "n *rest"]:
    """Upper minus lower end; +inf for an infinite interval."""
    return intervals[:, 1] - intervals[:, 0]


def covered(y: Float[NDArray, "n"], intervals: Float[NDArray, "n 2 *rest"]) -> Bool[NDArray, "n *rest"]:
    """Whether y is in the closed interval."""
    y = y.reshape(-1, *(1,) * (intervals.ndim - 2))
    return (intervals[:, 0] <= y) & (y <= intervals[:, 1])


def binomial_band(
    n_covered: ArrayLike, n: ArrayLike, *, significance: float = 0.05
) -> tuple[Float[NDArray, "*shape"], Float[NDArray, "*shape"]]:
    """The exact (Clopper-Pearson) confidence band of a probability, from `n_covered` successes in `n` draws.

    >>> lower, upper = binomial_band(9, 10)
    >>> print(f"{lower:.3f} {upper:.3f}")
    0.555 0.997
    """
    half = check_fraction(significance, "significance") / 2
    hits, draws = np.asarray(n_covered, dtype=np.float64), np.asarray(n, dtype=np.float64)
    misses = draws - hits
    # The Beta quantile needs positive parameters; with no hit (no miss) the band begins at 0 (ends at 1).
    lower = np.where(hits > 0, betaincinv(np.maximum(hits, 1), misses + 1, half), 0.0)
    upper = np.where(misses > 0, betaincinv(hits + 1, np.maximum(misses, 1), 1 - half), 1.0)
    return lower, upper


def interval_columns(
    y_pred: Float[NDArray, "n t"],
    intervals: Float[NDArray, "n 2 l t"],
    levels: Float[NDArray, "l"],
    targets: Sequence[str] = ("",),
) -> dict[str, Float[NDArray, "n"]]:
    """``y_pred``, then ``lower_90`` and ``upper_90`` for each level; the names end in the targets' names.

    >>> y_pred, intervals = np.zeros((1, 1)), np.array([[-1.0, 1.0]])[..., None, None]
    >>> list(interval_columns(y_pred, intervals, np.array([0.9]), ["_price"]))
    ['y_pred_price', 'lower_90_price', 'upper_90_price']
    """
    columns = {}
    for t, suffix in enumerate(targets):
        columns[f"y_pred{suffix}"] = y_pred[:, t]
        for number, level in enumerate(levels.tolist()):
            for side, name in enumerate(("lower", "upper")):
                columns[f"{name}_{percent_name(level)}{suffix}"] = intervals[:, side, number, t]
    return columns
