"""Walking down trees, compiled."""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from numba import njit


@no_type_check
@njit(nogil=True, cache=True)
def sum_leaves(rows, baseline, trees, result):
    """The baseline plus the value of the leaf of every tree, for each row; a category is a column of `lefts`."""
    roots, features, thresholds, left, right, missing_left, leaves, values, cuts, lefts = trees
    for i in range(len(rows)):
        total = baseline
        for root in roots:
            node = root
            while not leaves[node]:
                x = rows[i, features[node]]
                if np.isnan(x) or (cuts[node] >= 0 and x >= lefts.shape[1]):
                    to_left = missing_left[node]
                elif cuts[node] < 0:
                    to_left = x <= thresholds[node]
                else:
                    to_left = lefts[cuts[node], int(x)]
                node = left[node] if to_left else right[node]
            total += values[node]
        result[i] = total
