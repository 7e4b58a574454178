"""Models that are not torch: scikit-learn regressors and pairs of functions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, clone

from lvd._typing import ArrayLike, Float, Int, NDArray
from lvd._validation import InputError, check_matrix, check_targets
from lvd.models.model import Evaluation, each_its_own

Embed = Callable[[Any], ArrayLike]

ACTIVATIONS: dict[str, Callable[[NDArray], NDArray]] = {
    "identity": lambda a: a,
    "logistic": expit,
    "tanh": np.tanh,
    "relu": lambda a: np.maximum(a, 0.0),
}
"""Of scikit-learn's MLPRegressor."""


class SklearnModel(BaseEstimator):
    """A scikit-learn regressor or Pipeline.

    Embedding: the last hidden layer of an ``MLPRegressor``; for forests and boosted trees the (transformed)
    inputs and the prediction, which serve better than the trees' own coordinates; where inputs are not all
    numbers, one coordinate for each tree, the mean training target of the leaf that a row falls into, or its
    share of the prediction; else the (transformed) inputs. `embed` replaces all of these.
    """

    def __init__(self, estimator: BaseEstimator, *, prefit: bool = False, embed: Embed | None = None) -> None:
        self.estimator = estimator
        self.prefit = prefit
        self.embed = embed

    @property
    def remembers(self) -> bool:
        """Whether the estimator, as trees do, nearly reproduces the targets of its training rows."""
        last = self.estimator[-1] if _is_pipeline(self.estimator) else self.estimator
        return hasattr(last, "apply") or hasattr(last, "staged_predict") or hasattr(last, "kneighbors")

    def check(self, X: ArrayLike) -> Any:
        """Frames stay frames (column transformers need names); all else becomes a matrix of numbers."""
        if hasattr(X, "columns"):
            return X
        return check_matrix(X, n_columns=getattr(self, "n_columns_", None))

    def same_case(self, X: Any) -> NDArray:
        """Each row is a case of its own."""
        return each_its_own(X)

    def fit(self, X: Any, y: Float[NDArray, "n t"]) -> SklearnModel:
        """Train a clone, or take the estimator as it is when it is fitted already."""
        target = y[:, 0] if y.shape[1] == 1 else y
        self.n_columns_, self.n_targets_ = X.shape[1], y.shape[1]
        self.fitted_ = self.estimator if self.prefit else clone(self.estimator).fit(X, target)
        self.embeds_inputs_ = self.remembers and _all_numbers(self._transformed(X)[0])
        leaves = None if self.embeds_inputs_ else self._leaves(X)
        if leaves is not None:
            self.leaf_means_ = [_leaf_means(column, y.mean(1)) for column in leaves.T]
        return self

    def evaluate(self, X: Any) -> Evaluation:
        """Predict and embed."""
        y_pred = check_targets(self.fitted_.predict(X), "the estimator's prediction")
        if y_pred.shape[1] != self.n_targets_:
            raise InputError(
                f"the estimator predicts {y_pred.shape[1]} column(s), but y has {self.n_targets_}"
            )
        if self.embed is not None:
            return Evaluation(y_pred, check_matrix(self.embed(X), "the embedding"))
        inner = self._transformed(X)[0]
        # Models saved by version 0.1 know no such choice.
        if getattr(self, "embeds_inputs_", False):
            return Evaluation(
                y_pred, np.column_stack([check_matrix(inner, "the transformed inputs"), y_pred])
            )
        return Evaluation(y_pred, self._embed(X))

    def _embed(self, X: Any) -> Float[NDArray, "n h"]:
        leaves = self._leaves(X)
        if leaves is not None:
            return np.stack([_look_up(m, c) for m, c in zip(self.leaf_means_, leaves.T, strict=True)], axis=1)
        inner, last = self._transformed(X)
        if hasattr(last, "staged_predict"):  # histogram boosting tells no leaves, but each tree's share
            stages = np.stack(list(last.staged_predict(inner)), axis=1)
            return np.diff(stages, axis=1, prepend=0.0)
        if hasattr(last, "coefs_"):
            return _hidden_layer(last, check_matrix(inner, "the transformed inputs"))
        return check_matrix(inner, "the transformed inputs")

    def _leaves(self, X: Any) -> Int[NDArray, "n trees"] | None:
        inner, last = self._transformed(X)
        if self.embed is not None or not hasattr(last, "apply"):
            return None
        return np.asarray(last.apply(inner)).reshape(len(inner), -1).astype(np.int64)

    def _transformed(self, X: Any) -> tuple[Any, Any]:
        """What the last step of a Pipeline gets to see, and that step; a frame stays one, for its names."""
        if not _is_pipeline(self.fitted_):
            return X, self.fitted_
        inner = self.fitted_[:-1].transform(X) if len(self.fitted_) > 1 else X
        return inner.toarray() if hasattr(inner, "toarray") else inner, self.fitted_[-1]


class FunctionModel:
    """A trained model given as two functions: `predict` and `embed`, each from rows to an array."""

    prefit: ClassVar[bool] = True

    def __init__(self, predict: Embed, embed: Embed) -> None:
        self.predict = predict
        self.embed = embed

    def check(self, X: ArrayLike) -> Any:
        """Inputs are the functions' own affair; only rows must be countable."""
        if not hasattr(X, "__len__"):
            raise InputError("X must have rows that can be counted; pass an array, a frame or a list")
        return X

    def same_case(self, X: Any) -> NDArray:
        """Each row is a case of its own."""
        return each_its_own(X)

    def fit(self, X: Any, y: Float[NDArray, "n t"]) -> FunctionModel:
        """Nothing to train."""
        self.n_targets_ = y.shape[1]
        return self

    def evaluate(self, X: Any) -> Evaluation:
        """Call both functions."""
        y_pred = check_targets(self.predict(X), "the output of predict")
        embeddings = check_matrix(self.embed(X), "the output of embed")
        if not len(y_pred) == len(embeddings) == len(X) or y_pred.shape[1] != self.n_targets_:
            raise InputError(
                f"predict and embed must give one row per row of X and {self.n_targets_} target(s); "
                f"got {y_pred.shape} and {embeddings.shape} for {len(X)} rows"
            )
        return Evaluation(y_pred, embeddings)


def _is_pipeline(estimator: Any) -> bool:
    """Whether it is a scikit-learn Pipeline; where that was never loaded, nothing can be one."""
    module = sys.modules.get("sklearn.pipeline")
    return module is not None and isinstance(estimator, module.Pipeline)


def _all_numbers(inputs: Any) -> bool:
    """Whether the inputs are a matrix of finite numbers."""
    try:
        check_matrix(inputs)
    except InputError:
        return False
    return True


def _hidden_layer(mlp: Any, inputs: Float[NDArray, "n p"]) -> Float[NDArray, "n h"]:
    """The activations that enter the output layer of a fitted scikit-learn MLPRegressor."""
    hidden = inputs
    for weights, bias in zip(mlp.coefs_[:-1], mlp.intercepts_[:-1], strict=True):
        hidden = ACTIVATIONS[mlp.activation](hidden @ weights + bias)
    return hidden


def _leaf_means(
    leaves: Int[NDArray, "n"], y: Float[NDArray, "n"]
) -> tuple[Int[NDArray, "leaves"], Float[NDArray, "leaves"], float]:
    """Leaf numbers, the mean target in each, and the overall mean for a leaf that no row reached."""
    numbers, inverse = np.unique(leaves, return_inverse=True)
    return numbers, np.bincount(inverse, weights=y) / np.bincount(inverse), float(y.mean())


def _look_up(
    means: tuple[Int[NDArray, "leaves"], Float[NDArray, "leaves"], float], leaves: Int[NDArray, "n"]
) -> Float[NDArray, "n"]:
    numbers, values, overall = means
    at = np.searchsorted(numbers, leaves).clip(max=len(numbers) - 1)
    return np.where(numbers[at] == leaves, values[at], overall)
