"""The weighted quantile by its definition. Every engine is tested against these functions."""

from __future__ import annotations

import numpy as np

from lvd._parallel import chunk_slices
from lvd._typing import Float, NDArray

ROWS_AT_ONCE = 2**14
"""Differences of this many rows fit into the cache; the number does not change the result."""


def gaussian_weights(
    query: Float[NDArray, "k"], points: Float[NDArray, "m k"], precision: float | Float[NDArray, "m"] = 1.0
) -> Float[NDArray, "m"]:
    """``K(query, point) = exp(-||query - point||^2 / h^2)`` in scaled coordinates; `precision` is ``1 / h^2``."""
    squared = np.empty(len(points))
    with np.errstate(over="ignore"):
        for rows in chunk_slices(len(points), ROWS_AT_ONCE):
            np.square(points[rows] - query).sum(axis=1, out=squared[rows])
        return np.exp(-(squared * precision))


def weighted_quantile(
    scores: Float[NDArray, "m"],
    weights: Float[NDArray, "m"],
    self_weight: float,
    level: float,
    below: float = 0.0,
) -> float:
    """The smallest score at which the cumulative weight reaches `level` (the paper's Eq. 8).

    The query's own weight is at +inf, as its score is unknown. So the answer is +inf if the calibration rows
    together carry less than `level` of the weight, in particular if there are none or all weights are zero.
    Weight `below` is at -inf, which is the answer if it alone reaches the level.
    """
    order = np.argsort(scores, kind="stable")
    cumulative = below + np.cumsum(weights[order])
    total = self_weight + (cumulative[-1] if len(cumulative) else below)
    if total == 0.0:
        return float("inf")
    if below >= level * total:
        return -float("inf")
    rank = int(np.searchsorted(cumulative, level * total, side="left"))
    return float(scores[order[rank]]) if rank < len(scores) else float("inf")
