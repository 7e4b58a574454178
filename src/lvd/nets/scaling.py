"""Standardisation of columns."""

from __future__ import annotations

import numpy as np

from lvd._typing import Float, NDArray


def mean_and_scale(array: Float[NDArray, "n *p"]) -> tuple[Float[NDArray, "*p"], Float[NDArray, "*p"]]:
    """Mean and standard deviation of each column; a constant column keeps its size."""
    mean, scale = array.mean(0), array.std(0)
    return mean, np.where(scale > 1e-12 * np.maximum(1.0, np.abs(mean)), scale, 1.0)
