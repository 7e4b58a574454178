"""What version 0.1 embedded the rows of scikit-learn's estimators by; models that it saved keep it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse

from lvd._typing import Float, Int, NDArray
from lvd._validation import check_matrix
from lvd.models.kinds import is_pipeline, last_step

LeafMeans = tuple[Int[NDArray, "leaves"], Float[NDArray, "leaves"], float]


@dataclass(frozen=True, eq=False)
class EarlierEmbedding:
    """The mean training targets of a forest's leaves, the steps of boosting, or the transformed inputs alone."""

    fitted: Any
    leaf_means: list[LeafMeans] | None = None

    def __call__(self, X: Any) -> Float[NDArray, "n h"]:
        """The embeddings of the rows."""
        last, several = last_step(self.fitted), is_pipeline(self.fitted) and len(self.fitted) > 1
        inner = self.fitted[:-1].transform(X) if several else X
        dense = inner.toarray() if issparse(inner) else inner
        if self.leaf_means is not None:
            return _leaf_coordinates(last, self.leaf_means, dense)
        if hasattr(last, "staged_predict"):
            return np.diff(np.stack(list(last.staged_predict(inner)), axis=1), axis=1, prepend=0.0)
        return check_matrix(dense, "the transformed inputs")


def _leaf_coordinates(trees: Any, means: list[LeafMeans], inner: Any) -> Float[NDArray, "n trees"]:
    """The mean training target of each tree's leaf; of a leaf without training rows, the overall one."""
    leaves = np.asarray(trees.apply(inner)).reshape(len(inner), -1).astype(np.int64)
    columns = []
    for (numbers, values, overall), column in zip(means, leaves.T, strict=True):
        at = np.searchsorted(numbers, column).clip(max=len(numbers) - 1)
        columns.append(np.where(numbers[at] == column, values[at], overall))
    return np.stack(columns, axis=1)
