"""Walking down trees, compiled."""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from numba import njit


@no_type_check
@njit(nogil=True, cache=True)
def sum_leaves(  # noqa: PLR0917
    rows, baseline, roots, features, thresholds, left, right, missing_left, leaves, values, result
):
    """The baseline plus the value of the leaf of every tree, for each row."""
    for i in range(len(rows)):
        total = baseline
        for root in roots:
            node = root
            while not leaves[node]:
                x = rows[i, features[node]]
                to_left = missing_left[node] if np.isnan(x) else x <= thresholds[node]
                node = left[node] if to_left else right[node]
            total += values[node]
        result[i] = total
