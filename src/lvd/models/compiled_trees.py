"""Compiled tree traversal."""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from numba import njit

from lvd._validation import InputError, check_of_arrays, checked

check_trees = check_of_arrays(
    (
        *("int64 r", "int64 t", "float64 t", "int64 t", "int64 t", "bool t", "bool t", "float64 t"),
        *("int64 t", "?bool c l"),
    )
)
"""The arrays of a :class:`TreeEnsemble`, in order."""


@checked(rows="float64 n p", baseline="number", trees=check_trees, result=">float64 n")
@no_type_check
@njit(nogil=True, cache=True)
def sum_leaves(rows, baseline, trees, result):
    """For each row, the baseline plus the leaf value of every tree; a category is a column index of `lefts`.

    Children come after their parents, so every traversal ends.
    """
    roots, features, thresholds, left, right, missing_left, leaves, values, cuts, lefts = trees
    n_nodes, inside = len(leaves), True
    for node in range(n_nodes):
        if not leaves[node]:
            inside &= 0 <= features[node] < rows.shape[1] and cuts[node] < len(lefts)
            inside &= node < left[node] < n_nodes and node < right[node] < n_nodes
    for root in roots:
        inside &= 0 <= root < n_nodes
    if not inside:
        raise InputError(
            "trees refer to nodes, columns or categories that they do not have; fit the model again"
        )
    for i in range(len(rows)):
        total = baseline
        for root in roots:
            node = root
            while not leaves[node]:
                x = rows[i, features[node]]
                if np.isnan(x) or (cuts[node] >= 0 and not 0 <= x < lefts.shape[1]):
                    to_left = missing_left[node]
                elif cuts[node] < 0:
                    to_left = x <= thresholds[node]
                else:
                    to_left = lefts[cuts[node], int(x)]
                node = left[node] if to_left else right[node]
            total += values[node]
        result[i] = total
