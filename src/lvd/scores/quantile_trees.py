"""Boosted trees that predict several quantiles at once: one tree structure, one value per quantile in every leaf.

The quantiles of `GRID` describe the distribution of errors at a row; trees predict the fewer ones of `COARSE`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np

from lvd._parallel import in_chunks
from lvd._typing import Float, Int, NDArray
from lvd._validation import InputError

GRID = np.array([0.01, 0.025, 0.05, 0.1, 0.175, 0.25, 0.375, 0.5, 0.625, 0.75, 0.825, 0.9, 0.95, 0.975, 0.99])
COARSE = np.array([0.025, 0.1, 0.3, 0.5, 0.7, 0.9, 0.975])
"""The boosted quantiles; their differences from the quantiles of all rows are interpolated to all of `GRID`."""
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


@dataclass(frozen=True, eq=False)
class QuantileTrees:
    """A sum of trees with a column of values per quantile; the nodes of all trees are in one list.

    At a node a row goes left if its feature is at most the threshold; a leaf is its own left and right.
    """

    baseline: Float[NDArray, "k"]
    roots: Int[NDArray, "r"]
    features: Int[NDArray, "m"]
    thresholds: Float[NDArray, "m"]
    left: Int[NDArray, "m"]
    right: Int[NDArray, "m"]
    values: Float[NDArray, "m k"]

    def _check_parameters(self) -> None:
        """Refuse nodes at which a row would leave the trees or never reach a leaf."""
        n_nodes, numbers = len(self.features), np.arange(len(self.features))
        shapes = {len(part) for part in (self.thresholds, self.left, self.right, self.values)}
        sides = np.stack([self.left, self.right]) if shapes <= {n_nodes} else np.full((2, 1), -1)
        leaves = (sides == numbers).all(axis=0) if shapes <= {n_nodes} else np.array([False])
        fine = shapes <= {n_nodes} and bool(
            (leaves | ((sides > numbers) & (sides < n_nodes)).all(axis=0)).all()
            and (self.features >= 0).all()
            and ((self.roots >= 0) & (self.roots < n_nodes)).all()
            and self.values.shape[1:] == self.baseline.shape
        )
        if not fine:
            raise InputError(
                "the nodes of the trees of quantiles do not belong together; save the model again"
            )

    def predict(self, X: Float[NDArray, "n p"]) -> Float[NDArray, "n k"]:
        """The sum of the leaves that each row reaches."""
        from lvd.scores.compiled_quantile_trees import add_leaves

        rows = np.ascontiguousarray(X, dtype=np.float64)
        if rows.shape[1] < self._n_columns:
            raise InputError(
                f"the trees of quantiles ask for {self._n_columns} columns, and there are {rows.shape[1]}: parts "
                "of a model that do not belong together; fit it again"
            )
        result = np.tile(self.baseline, (len(rows), 1))
        trees = self.roots, self.features, self.thresholds, self.left, self.right, self.values
        in_chunks(lambda part: add_leaves(rows[part], trees, result[part]), len(rows), 100 * len(self.roots))
        return result

    @cached_property
    def _n_columns(self) -> int:
        """How many columns the nodes refer to."""
        return int(self.features.max(initial=-1)) + 1


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
    from lvd.scores.compiled_quantile_trees import grow_tree, leaf_quantiles, pinball_gradients

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


def pinball(z: Float[NDArray, "n"], quantiles: Float[NDArray, "*_ k"], taus: Float[NDArray, "k"]) -> NDArray:
    """``max(tau (z - q), (tau - 1) (z - q))`` of each row and quantile."""
    rest = z[:, None] - quantiles
    return np.maximum(taus * rest, (taus - 1.0) * rest)


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


def _carrying() -> Float[NDArray, "c k"]:
    """The weights that interpolate changes of the boosted quantiles to `GRID`, linearly in normal quantiles."""
    at, known = ([NormalDist().inv_cdf(tau) for tau in taus.tolist()] for taus in (GRID, COARSE))
    return np.stack([np.interp(at, known, unit) for unit in np.eye(len(COARSE))])


CARRIED = _carrying()


class BoostedQuantiles:
    """Boosted quantiles of `COARSE`, interpolated to those of `GRID`."""

    trees_: QuantileTrees

    def fit(
        self,
        features: Float[NDArray, "n f"],
        z: Float[NDArray, "n"],
        weights: Float[NDArray, "n"],
        folds: Int[NDArray, "n"],
        seed: int,
        *,
        blind: bool = False,
    ) -> Float[NDArray, "n k"]:
        """Fit; returns out-of-fold quantiles of the training rows. If `blind`, a row's fold does not stop its
        trees either."""
        self.constant_ = np.quantile(z, GRID) - np.quantile(z, COARSE) @ CARRIED
        self.trees_, crossed = boosted_quantiles(features, z, weights, folds, COARSE, seed=seed, blind=blind)
        return crossed @ CARRIED + self.constant_

    def predict(self, features: Float[NDArray, "n f"]) -> Float[NDArray, "n k"]:
        """The quantiles of each row."""
        return self.trees_.predict(features) @ CARRIED + self.constant_
