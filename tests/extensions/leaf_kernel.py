"""A kernel of one's own: rows are similar if they share leaves of a boosted model."""

import numpy as np
from sklearn.ensemble import GradientBoostingRegressor

import lvd


class LeafKernel(lvd.kernels.Kernel):
    """``exp(-share of trees in which two rows are in different leaves / width)``."""

    def __init__(self, n_trees=20, width=0.2, random_state=0):
        self.n_trees = n_trees
        self.width = width
        self.random_state = random_state

    def fit(self, embeddings, y):
        trees = GradientBoostingRegressor(
            n_estimators=self.n_trees, max_leaf_nodes=6, min_samples_leaf=10, random_state=self.random_state
        )
        self.trees_ = trees.fit(np.asarray(embeddings), np.asarray(y))
        self.leaves_ = [np.unique(column) for column in self._leaves(embeddings).T]
        self.train_points_ = self.coordinates(embeddings)
        return self

    def coordinates(self, embeddings):
        found = self._leaves(embeddings)
        shares = [column[:, None] == known for column, known in zip(found.T, self.leaves_, strict=True)]
        # Two indicators differ in two places, so that squared distances count trees.
        return np.concatenate(shares, axis=1) / np.sqrt(2.0 * self.n_trees * self.width)

    def _leaves(self, embeddings):
        return self.trees_.apply(np.asarray(embeddings)).astype(np.int64)
