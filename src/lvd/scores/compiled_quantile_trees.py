"""Compiled loops that grow and evaluate trees of several quantiles."""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from numba import njit


@no_type_check
@njit(nogil=True, cache=True)
def pinball_gradients(z, quantiles, taus):
    """The negative gradient of the pinball loss in each quantile, and a column of ones."""
    n, k = quantiles.shape
    result = np.ones((n, k + 1))
    for i in range(n):
        for j in range(k):
            below = 1.0 if z[i] < quantiles[i, j] else 0.0
            result[i, j] = taus[j] - below
    return result


@no_type_check
@njit(nogil=True, cache=True)
def _add_up(bins, rows, gradients, columns, sums):
    """Add up the gradients and count the rows in each bin of each column."""
    width = gradients.shape[1]
    for i in rows:
        for c in range(len(columns)):
            cell = sums[c, bins[i, columns[c]]]
            for j in range(width):
                cell[j] += gradients[i, j]


@no_type_check
@njit(nogil=True, cache=True)
def _best_cut(sums, least):
    """The column and bin of the best cut, and its gain, the sum over quantiles of G^2 / n; column -1 for none."""
    n_columns, n_bins, width = sums.shape
    total = np.zeros(width)
    for b in range(n_bins):
        for j in range(width):
            total[j] += sums[0, b, j]
    before = 0.0
    for j in range(width - 1):
        before += total[j] * total[j] / total[-1]
    best, column, cut = 1e-12 * total[-1], -1, -1
    below = np.empty(width)
    for c in range(n_columns):
        for j in range(width):
            below[j] = 0.0
        for b in range(n_bins - 1):
            if sums[c, b, -1] == 0.0:
                continue
            for j in range(width):
                below[j] += sums[c, b, j]
            above = total[-1] - below[-1]
            if below[-1] < least:
                continue
            if above < least:
                break
            gain = -before
            for j in range(width - 1):
                rest = total[j] - below[j]
                gain += below[j] * below[j] / below[-1] + rest * rest / above
            if gain > best:
                best, column, cut = gain, c, b
    return best, column, cut


@no_type_check
@njit(nogil=True, cache=True)
def grow_tree(bins, order, gradients, columns, limits):
    """A tree grown best cut first on the rows in `order`, which is permuted, and the leaf of each row.

    `limits`: the number of bins, the most leaves, and the fewest rows in a leaf.
    """
    n_bins, most_leaves, least = limits
    width, n_nodes = gradients.shape[1], 2 * most_leaves - 1
    features, cuts = np.zeros(n_nodes, np.int64), np.full(n_nodes, -1, np.int64)
    left, right = np.arange(n_nodes), np.arange(n_nodes)
    starts, ends = np.zeros(n_nodes, np.int64), np.zeros(n_nodes, np.int64)
    gains, found = np.zeros(n_nodes), np.zeros((n_nodes, 2), np.int64)
    sums = np.zeros((n_nodes, len(columns), n_bins, width))
    ends[0], made = len(order), 1
    _add_up(bins, order, gradients, columns, sums[0])
    gains[0], found[0, 0], found[0, 1] = _best_cut(sums[0], least)
    buffer = np.empty_like(order)
    while made + 1 < n_nodes:
        node, best = -1, 0.0
        for candidate in range(made):
            if cuts[candidate] < 0 and found[candidate, 0] >= 0 and gains[candidate] > best:
                node, best = candidate, gains[candidate]
        if node < 0:
            break
        feature, cut = columns[found[node, 0]], found[node, 1]
        features[node], cuts[node] = feature, cut
        left[node], right[node] = made, made + 1
        low, n_above = starts[node], 0
        for place in range(starts[node], ends[node]):
            row = order[place]
            if bins[row, feature] <= cut:
                order[low] = row
                low += 1
            else:
                buffer[n_above] = row
                n_above += 1
        for place in range(n_above):
            order[low + place] = buffer[place]
        starts[made], ends[made] = starts[node], low
        starts[made + 1], ends[made + 1] = low, ends[node]
        small, large = (made, made + 1) if low - starts[node] <= n_above else (made + 1, made)
        _add_up(bins, order[starts[small] : ends[small]], gradients, columns, sums[small])
        _subtract(sums[node], sums[small], sums[large])
        for child in (made, made + 1):
            gains[child], found[child, 0], found[child, 1] = _best_cut(sums[child], least)
        made += 2
    tree = features[:made], cuts[:made], left[:made], right[:made]
    return tree, _leaves_of(bins, tree)


@no_type_check
@njit(nogil=True, cache=True)
def _subtract(whole, one, other):
    for c in range(whole.shape[0]):
        for b in range(whole.shape[1]):
            for j in range(whole.shape[2]):
                other[c, b, j] = whole[c, b, j] - one[c, b, j]


@no_type_check
@njit(nogil=True, cache=True)
def _leaves_of(bins, tree):
    """The leaf of each row."""
    features, cuts, left, right = tree
    leaf = np.empty(len(bins), np.int64)
    for i in range(len(bins)):
        node = 0
        while left[node] != node:
            node = left[node] if bins[i, features[node]] <= cuts[node] else right[node]
        leaf[i] = node
    return leaf


@no_type_check
@njit(nogil=True, cache=True)
def _smallest(values, count, rank):
    """The value of this rank among the first `count` values, which are reordered (Hoare's selection)."""
    low, high = 0, count - 1
    while low < high:
        pivot, i, j = values[(low + high) // 2], low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while pivot < values[j]:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if rank <= j:
            high = j
        elif rank >= i:
            low = i
        else:
            return values[rank]
    return values[rank]


@no_type_check
@njit(nogil=True, cache=True)
def leaf_quantiles(errors, rows, leaf, taus, n_nodes):
    """The quantiles of the errors in each leaf, column by column."""
    result = np.zeros((n_nodes, len(taus)))
    ends = np.zeros(n_nodes, np.int64)
    for i in rows:
        ends[leaf[i]] += 1
    for node in range(1, n_nodes):
        ends[node] += ends[node - 1]
    ordered, begin = np.empty(len(rows), np.int64), ends.copy()
    for i in rows:
        begin[leaf[i]] -= 1
        ordered[begin[leaf[i]]] = i
    own = np.empty(len(rows))
    for node in range(n_nodes):
        first, count = begin[node], ends[node] - begin[node]
        if count == 0:
            continue
        for j in range(len(taus)):
            for place in range(count):
                own[place] = errors[ordered[first + place], j]
            result[node, j] = _smallest(own, count, int(taus[j] * (count - 1) + 0.5))
    return result


@no_type_check
@njit(nogil=True, cache=True)
def add_leaves(rows, trees, result):
    """Add the values of the leaf of every tree to each row."""
    roots, features, thresholds, left, right, values = trees
    for root in roots:  # tree by tree, so that its nodes stay in the cache for all rows
        for i in range(len(rows)):
            node = root
            while left[node] != node:
                node = left[node] if rows[i, features[node]] <= thresholds[node] else right[node]
            for j in range(values.shape[1]):
                result[i, j] += values[node, j]
