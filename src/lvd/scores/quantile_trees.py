"""Growing boosted trees that predict several quantiles at once: one tree structure, one value per quantile in every
leaf. Only fitting imports this file, as numba takes long to load."""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from numba import njit

from lvd._typing import Float, Int, NDArray
from lvd.engine.quantiles import pinball
from lvd.models.trees import QuantileTrees

MOST_TREES, PATIENCE, RATE = 100, 15, 0.1
MOST_LEAVES, LEAST_SHARE = 8, 40
"""A leaf holds at least a 40th of the rows."""
N_BINS = 64
MOST_COLUMNS = 64
"""A tree sees at most this many columns, drawn at random."""
MOST_TREE_ROWS = 20_000
"""Trees grow on at most this many rows, drawn at random: more hardly change a tree of few leaves."""
OUTER = 0.2
"""Outer quantiles, below this share or above its complement, are stopped separately from the middle ones."""


def boosted_quantiles(
    X: Float[NDArray, "n p"],
    z: Float[NDArray, "n"],
    weights: Float[NDArray, "n"],
    folds: Int[NDArray, "n"],
    taus: Float[NDArray, "k"],
    *,
    seed: int,
    blind: bool = False,
) -> tuple[QuantileTrees, Float[NDArray, "n k"]]:
    """The mean of boosted quantiles, one ensemble per left-out fold, and the rows' out-of-fold quantiles.

    Every tree takes a step along the pinball loss of all quantiles. The lower, middle and upper ones each keep
    the number of trees, perhaps none, with the lowest weighted loss on the left-out rows. If `blind`, the other
    folds' losses decide instead, so that a row's own loss has no part in its out-of-fold quantiles. Trees grow on
    at most `MOST_TREE_ROWS` rows; all rows get out-of-fold quantiles.
    """
    generator, n_columns = np.random.default_rng(seed), X.shape[1]
    every, every_fold = X, folds
    if len(z) > MOST_TREE_ROWS:
        some = np.sort(generator.permutation(len(z))[:MOST_TREE_ROWS])
        X, z, weights, folds = X[some], z[some], weights[some], folds[some]
    edges = [_edges(column) for column in X.T]
    bins = np.stack([np.searchsorted(*pair) for pair in zip(edges, X.T, strict=True)], 1).astype(np.uint8)
    inside = [np.flatnonzero(folds != fold) for fold in range(folds.max() + 1)]
    baselines = np.array([np.quantile(z[rows], taus) for rows in inside])
    current = [np.tile(baseline, (len(z), 1)) for baseline in baselines]
    forests: list[list[tuple[NDArray, ...]]] = [[] for _ in inside]
    losses = [_losses_of_folds(z, weights, folds, np.stack(current), taus)]
    best = np.zeros((len(inside), 3), np.int64)
    for number in range(1, MOST_TREES + 1):
        columns = np.sort(generator.permutation(n_columns)[:MOST_COLUMNS])
        for rows, quantiles, forest in zip(inside, current, forests, strict=True):
            gradients = pinball_gradients(z, quantiles, taus)
            limits = N_BINS, MOST_LEAVES, max(10, len(rows) // LEAST_SHARE)
            tree, leaf = grow_tree(bins, rows.copy(), gradients, columns, limits)
            values = RATE * leaf_quantiles(z[:, None] - quantiles, rows, leaf, taus, len(tree[0]))
            np.add(quantiles, values[leaf], out=quantiles)
            forest.append((*tree, values))
        losses.append(_losses_of_folds(z, weights, folds, np.stack(current), taus))
        own = np.array(losses)
        best = (own.sum(axis=1, keepdims=True) - (own if blind else 0.0 * own)).argmin(axis=0)
        if number - best.max() >= PATIENCE:
            break
    forests = [
        [
            (*tree[:-1], tree[-1] * (number < most[_thirds(taus)]))
            for number, tree in enumerate(forest[: most.max()])
        ]
        for forest, most in zip(forests, best, strict=True)
    ]
    crossed = np.empty((len(every), len(taus)))
    for fold, (baseline, forest) in enumerate(zip(baselines, forests, strict=True)):
        left_out = every_fold == fold
        crossed[left_out] = _joined(baseline, forest, edges).predict(every[left_out])
    together = [(*tree[:-1], tree[-1] / len(forests)) for forest in forests for tree in forest]
    return _joined(baselines.mean(axis=0), together, edges), crossed


def _losses_of_folds(
    z: Float[NDArray, "n"],
    weights: Float[NDArray, "n"],
    folds: Int[NDArray, "n"],
    quantiles: Float[NDArray, "f n k"],
    taus: Float[NDArray, "k"],
) -> Float[NDArray, "f 3"]:
    """The pinball loss of the lower, middle and upper quantiles on each fold."""
    losses = weights[:, None] * pinball(z, quantiles[folds, np.arange(len(z))], taus)
    thirds = np.stack([losses[:, _thirds(taus) == third].sum(axis=1) for third in range(3)], axis=1)
    return np.stack([thirds[folds == fold].sum(axis=0) for fold in range(len(quantiles))])


def _thirds(taus: Float[NDArray, "k"]) -> Int[NDArray, "k"]:
    return np.digitize(taus, [OUTER, 1.0 - OUTER])


def _edges(column: Float[NDArray, "n"]) -> Float[NDArray, "e"]:
    """Where a column may be cut: at its quantiles, except the largest value."""
    probabilities = np.linspace(0.0, 1.0, N_BINS + 1)[1:]
    return np.unique(np.quantile(column, probabilities, method="lower"))[:-1]


def _joined(
    baseline: Float[NDArray, "k"], forest: list[tuple[NDArray, ...]], edges: list[NDArray]
) -> QuantileTrees:
    """The trees as one list of nodes, with thresholds instead of bins."""
    if not forest:
        none = np.empty(0, np.int64)
        return QuantileTrees(baseline, none, none, np.empty(0), none, none, np.empty((0, len(baseline))))
    starts = np.cumsum([0, *(len(tree[0]) for tree in forest)])[:-1]
    offsets = np.repeat(starts, [len(tree[0]) for tree in forest])
    features, bins, left, right, values = (np.concatenate(parts) for parts in zip(*forest, strict=True))
    thresholds = np.array([edges[f][b] if b >= 0 else 0.0 for f, b in zip(features, bins, strict=True)])
    return QuantileTrees(baseline, starts, features, thresholds, left + offsets, right + offsets, values)


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
