"""Standardisation of columns."""

from __future__ import annotations

import numpy as np

from lvd._typing import Float, NDArray
from lvd._validation import constant_columns, mean_and_deviation


def mean_and_scale(
    array: Float[NDArray, "n *p"], scaled: bool = True
) -> tuple[Float[NDArray, "*p"], Float[NDArray, "*p"]]:
    """Mean and standard deviation of each column; a constant column keeps its size, as do all unless `scaled`."""
    if not scaled:
        return np.zeros(array.shape[1:]), np.ones(array.shape[1:])
    constant, (mean, scale) = constant_columns(array), mean_and_deviation(array)
    roundings = np.maximum(1.0, 1e-15 * np.abs(array[0]))
    return np.where(constant, array[0], mean), np.where(constant, roundings, scale)
