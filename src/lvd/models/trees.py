"""Boosted trees as plain arrays: what scikit-learn's histogram boosting has learned, in a form that is safe
to save."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lvd._parallel import in_chunks
from lvd._typing import Bool, Float, Int, NDArray


@dataclass(frozen=True, eq=False)
class TreeEnsemble:
    """A sum of trees: the nodes of all of them in one list, and where in it each tree begins.

    At a node that is no leaf a row goes left if its feature is at most the threshold; NaN goes where it went
    in training.
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

    @classmethod
    def of(cls, model: Any) -> TreeEnsemble:
        """The trees of a fitted HistGradientBoostingRegressor without categories."""
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
        )

    def predict(self, X: Float[NDArray, "n p"]) -> Float[NDArray, "n"]:
        """The sum of the leaves that each row reaches."""
        from lvd.models.compiled_trees import sum_leaves

        rows, result = np.ascontiguousarray(X, dtype=np.float64), np.empty(len(X))
        trees = (
            self.roots, self.features, self.thresholds, self.left, self.right, self.missing_left, self.leaves,
            self.values,
        )  # fmt: skip
        in_chunks(
            lambda part: sum_leaves(rows[part], self.baseline, *trees, result[part]),
            len(rows),
            50 * len(self.roots),
        )
        return result
