"""What every base model offers to the methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from sklearn.base import RegressorMixin, clone

from lvd._typing import ArrayLike, Float, Int, NDArray
from lvd._validation import InputError, like


class Evaluation(NamedTuple):
    """A model's answer for some rows: one column per target, embeddings, and quantiles where it has any.

    `inputs` are the rows with numbers in place of what is missing; None where nothing is. `spread` is the size of
    errors to expect below and above the prediction, of models that tell it themselves.
    """

    y_pred: Float[NDArray, "n t"]
    embeddings: Float[NDArray, "n h"]
    quantiles: Float[NDArray, "n 2 l t"] | None = None
    inputs: Float[NDArray, "n p"] | None = None
    spread: Float[NDArray, "n 2 t"] | None = None


@runtime_checkable
class Model(Protocol):
    """A base model. Its inputs are whatever it accepts: a matrix, images, strings."""

    def check(self, X: ArrayLike) -> Any:
        """`X` as this model's inputs, or an :class:`InputError`; supports ``len`` and row indexing."""
        ...

    def same_case(self, X: Any) -> NDArray:
        """A label for each row of checked inputs; rows of equal labels are one case, which no split divides."""
        ...

    def fit(self, X: Any, y: Float[NDArray, "n t"]) -> Any:
        """Train on checked inputs (a model given as fitted only learns what its embedding needs)."""
        ...

    def evaluate(self, X: Any) -> Evaluation:
        """Predict and embed checked inputs."""
        ...


class RowwiseModel:
    """A model to which each row is a case of its own: equal rows of numbers may be different cases."""

    def same_case(self, X: Any) -> NDArray:
        """A label for each row, all different."""
        return np.arange(len(X))


class EvaluatingRegressor(RowwiseModel, RegressorMixin, ABC):
    """What a regressor of scikit-learn's kind offers, made of `evaluate`; whether y was a vector, `fit` notes."""

    _flat: bool

    @abstractmethod
    def evaluate(self, X: Any) -> Evaluation:
        """Predictions (n, t) and embeddings (n, h) in one pass."""

    def predict(self, X: ArrayLike) -> Any:
        """Predictions, (n,) or (n, t) as y was in `fit`."""
        y_pred = self.evaluate(X).y_pred
        return like(y_pred[:, 0] if self._flat else y_pred, X)

    def embed(self, X: ArrayLike) -> Any:
        """The embeddings, (n, h)."""
        return like(self.evaluate(X).embeddings, X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def check_each_row(answer: NDArray, n_rows: int, name: str) -> NDArray:
    """What a user's estimator gives for so many rows, if it gives one row for each of them."""
    if len(answer) != n_rows:
        raise InputError(
            f"{name} must have one row for each row of X, got {len(answer)} for {n_rows} rows; check what the "
            "estimator returns"
        )
    return answer


def came_trained(model: Any) -> bool:
    """Whether the model was given as trained: its `fit` trains nothing."""
    return bool(getattr(model, "prefit", False))


def lighter(model: Any) -> Any:
    """An untrained model like this one, to learn how large its errors are; an ensemble gives one of its members."""
    return model.lighter() if hasattr(model, "lighter") else clone(model)


def rows_held_out(model: Any) -> Int[NDArray, "v"]:
    """Positions, among the rows given to `fit`, of those that the model was not trained on, where it tells."""
    return getattr(model, "held_out_rows_", np.zeros(0, np.int64))


def takes_missing_targets(model: Any) -> bool:
    """Whether NaN among several targets is to the model a target that is not known."""
    return came_trained(model) or bool(getattr(model, "takes_missing_targets", False))


@dataclass(frozen=True)
class Fitted:
    """A model that is trained already: `fit` only looks whether it predicts as many columns as `y` has."""

    model: Model
    prefit: ClassVar[bool] = True

    def check(self, X: ArrayLike) -> Any:
        """What the model accepts."""
        return self.model.check(X)

    def same_case(self, X: Any) -> NDArray:
        """As the model has it."""
        return self.model.same_case(X)

    def fit(self, X: Any, y: Float[NDArray, "n t"]) -> Fitted:
        """Nothing to train."""
        n_predicted = self.model.evaluate(X[:1]).y_pred.shape[1]
        if n_predicted != y.shape[1]:
            raise InputError(f"the estimator predicts {n_predicted} column(s), but y has {y.shape[1]}")
        return self

    def evaluate(self, X: Any) -> Evaluation:
        """The model's answer."""
        return self.model.evaluate(X)
