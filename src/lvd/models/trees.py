"""Boosted trees as plain arrays: those of scikit-learn's histogram boosting, and those of several quantiles.

Scikit-learn's are read from private attributes because arrays are safe to save, while skops does not trust the
trees' class, and because they predict a single row about eight times as fast as scikit-learn, bit for bit the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, no_type_check

import numpy as np

from lvd._parallel import in_chunks
from lvd._typing import Bool, Float, Int, NDArray
from lvd._validation import Checked, InputError, check_of_arrays, checked

check_trees = check_of_arrays(
    (
        *("int64 r", "int64 t", "float64 t", "int64 t", "int64 t", "bool t", "bool t", "float64 t"),
        *("int64 t", "?bool c l"),
    )
)
"""The arrays of a :class:`TreeEnsemble`, in order."""


@dataclass(frozen=True, eq=False)
class TreeEnsemble:
    """A sum of trees. All trees' nodes are in one list, and `roots` holds the index of each tree's first node.

    At an inner node a row goes left if its feature is at most the threshold or, at a categorical split, if the
    row of `lefts` given by `cuts` (-1: none) contains its category; NaN goes where it went in training.
    """

    baseline: float
    roots: Int[NDArray, "r"]
    features: Int[NDArray, "m"]
    thresholds: Float[NDArray, "m"]
    left: Int[NDArray, "m"]
    right: Int[NDArray, "m"]
    missing_left: Bool[NDArray, "m"]
    leaves: Bool[NDArray, "m"]
    values: Float[NDArray, "m"]
    cuts: Int[NDArray, "m"] | None = None
    lefts: Bool[NDArray, "c k"] | None = None

    @classmethod
    def of(cls, model: Any) -> TreeEnsemble:
        """The trees of a fitted HistGradientBoostingRegressor; integer categorical columns come first."""
        trees = [predictors[0].nodes for predictors in model._predictors]
        sizes = [len(tree) for tree in trees]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        offsets = np.repeat(starts[:-1], sizes)
        nodes = np.concatenate(trees)
        return cls(
            float(np.ravel(model._baseline_prediction)[0]),
            starts[:-1].astype(np.int64),
            nodes["feature_idx"].astype(np.int64),
            nodes["num_threshold"].astype(np.float64),
            nodes["left"].astype(np.int64) + offsets,
            nodes["right"].astype(np.int64) + offsets,
            nodes["missing_go_to_left"].astype(bool),
            nodes["is_leaf"].astype(bool),
            nodes["value"].astype(np.float64),
            *_category_cuts(model, nodes),
        )

    def predict(self, X: Float[NDArray, "n p"]) -> Float[NDArray, "n"]:
        """The sum of each row's leaf values."""
        loop, rows, result = compiled_sum(), np.ascontiguousarray(X, dtype=np.float64), np.empty(len(X))
        in_chunks(
            lambda part: loop(rows[part], self.baseline, self._arrays, result[part]),
            len(rows),
            50 * len(self.roots),
        )
        return result

    @cached_property
    def _arrays(self) -> tuple[NDArray, ...]:
        """All arrays, as the compiled code takes them."""
        return (
            *(
                self.roots,
                self.features,
                self.thresholds,
                self.left,
                self.right,
                self.missing_left,
                self.leaves,
            ),
            self.values,
            np.full(len(self.values), -1, np.int64) if self.cuts is None else self.cuts,
            np.zeros((0, 0), bool) if self.lefts is None else self.lefts,
        )

    def _check_parameters(self) -> None:
        """Raise unless the arrays are trees: each node's children come after it, so every traversal ends."""
        roots, features, _, left, right, _, leaves, _, cuts, lefts = self._arrays
        check_trees(self._arrays, {})
        nodes = np.arange(len(leaves))
        forward = (left > nodes) & (right > nodes) & (np.maximum(left, right) < len(nodes))
        named = (features >= 0) & (cuts < len(lefts))
        if not ((forward & named) | leaves).all() or not ((roots >= 0) & (roots < len(nodes))).all():
            raise InputError("the trees refer to nodes, columns or categories that they do not have")


def _category_cuts(model: Any, nodes: NDArray) -> tuple[()] | tuple[Int[NDArray, "m"], Bool[NDArray, "c k"]]:
    """The index of each node's categorical split, -1 if it has none, and the categories that go left at each split.

    Scikit-learn numbers the categories it has seen; an unseen one goes where NaN goes.
    """
    cut = nodes["is_categorical"].astype(bool) & ~nodes["is_leaf"].astype(bool)
    if not cut.any():
        return ()
    known = model._preprocessor.named_transformers_["encoder"].categories_
    n_levels = 1 + int(max(np.nanmax(levels) for levels in known))
    bitsets = [predictors[0].raw_left_cat_bitsets for predictors in model._predictors]
    starts = np.cumsum([0, *map(len, bitsets)])[:-1]
    own = np.repeat(starts, [len(predictors[0].nodes) for predictors in model._predictors])
    sets = np.concatenate(bitsets)[(nodes["bitset_idx"] + own)[cut]]
    lefts = np.repeat(nodes["missing_go_to_left"][cut].astype(bool)[:, None], n_levels, axis=1)
    for row, (bits, feature) in enumerate(zip(sets, nodes["feature_idx"][cut], strict=True)):
        levels = known[feature][~np.isnan(known[feature])].astype(np.int64)
        numbers = np.arange(len(levels))
        lefts[row, levels] = (bits[numbers // 32] >> (numbers % 32).astype(np.uint32)) & 1
    return np.where(cut, np.cumsum(cut) - 1, -1), lefts


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
        rows = np.ascontiguousarray(X, dtype=np.float64)
        if rows.shape[1] < self._n_columns:
            raise InputError(
                f"the trees of quantiles ask for {self._n_columns} columns, and there are {rows.shape[1]}: parts "
                "of a model that do not belong together; fit it again"
            )
        loop, result = compiled_addition(), np.tile(self.baseline, (len(rows), 1))
        trees = self.roots, self.features, self.thresholds, self.left, self.right, self.values
        in_chunks(lambda part: loop(rows[part], trees, result[part]), len(rows), 100 * len(self.roots))
        return result

    @cached_property
    def _n_columns(self) -> int:
        """How many columns the nodes refer to."""
        return int(self.features.max(initial=-1)) + 1


@cache
def compiled_sum() -> Checked:
    """:func:`sum_leaves`, compiled when first asked for: numba takes long to load, and few models have trees."""
    from numba import njit

    check = checked(rows="float64 n p", baseline="number", trees=check_trees, result=">float64 n")
    return check(njit(nogil=True, cache=True)(sum_leaves))


@cache
def compiled_addition() -> Any:
    """:func:`add_leaves`, compiled when first asked for."""
    from numba import njit

    return njit(nogil=True, cache=True)(add_leaves)


@no_type_check
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


@no_type_check
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
