"""The few statistics that several metrics share."""

from __future__ import annotations

import math

import numpy as np

from lvd._typing import Float, NDArray


def average_ranks(values: Float[NDArray, "n"]) -> Float[NDArray, "n"]:
    """Ranks from 1 to n; equal values, infinite ones too, share the mean of their ranks."""
    _, position, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray = (np.cumsum(counts) - (counts - 1) / 2)[position]
    return ranks


def pearson(a: Float[NDArray, "n"], b: Float[NDArray, "n"]) -> float:
    """Pearson's correlation; NaN where a side does not vary."""
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return math.nan
    return float(np.corrcoef(a, b)[0, 1])
