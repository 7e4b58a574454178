"""A model that takes no missing numbers, for rows in which some are missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sklearn.base import BaseEstimator, clone

from lvd._typing import ArrayLike, Float, NDArray
from lvd._validation import check_matrix
from lvd.models.coding import InputCoding
from lvd.models.model import Evaluation, RowwiseModel, takes_missing_targets


@dataclass(eq=False, repr=False)
class FilledModel(RowwiseModel, BaseEstimator):
    """The model sees the column's mean in place of what is missing and, where training rows lack it, a flag that
    tells so (:class:`InputCoding`)."""

    model: Any

    def check(self, X: ArrayLike) -> Float[NDArray, "n p"]:
        """A matrix in which numbers may be missing, with the columns of `fit`."""
        return check_matrix(X, n_columns=getattr(self, "n_features_in_", None), missing=True)

    @property
    def takes_missing_targets(self) -> bool:
        """As the model has it."""
        return takes_missing_targets(self.model)

    def fit(self, X: Any, y: Float[NDArray, "n t"]) -> FilledModel:
        """Learn what to fill in, and train the model on it."""
        self.n_features_in_, self.coding_ = X.shape[1], InputCoding.of(X)
        self.model_ = clone(self.model).fit(self.coding_(X), y)
        return self

    def evaluate(self, X: Any) -> Evaluation:
        """The model's answer to the rows as it sees them."""
        found: Evaluation = self.model_.evaluate(self.coding_(X))
        return found._replace(inputs=self.coding_.filled_inputs(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
