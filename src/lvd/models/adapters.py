"""Models other than torch modules: scikit-learn style regressors, and functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import issparse
from scipy.special import expit
from sklearn.base import BaseEstimator

from lvd._typing import ArrayLike, Float, NDArray
from lvd._validation import InputError, check_matrix, check_targets, is_matrix, is_tensor
from lvd.models.coding import InputCoding, column_means, fill_matrix
from lvd.models.model import (
    Evaluation,
    Model,
    before_last_step,
    check_each_row,
    is_of,
    is_pipeline,
    last_step,
    takes,
    unfitted_copy,
    weight_name,
)
from lvd.models.rows import SparseRows
from lvd.models.scaling import refuse_unknown

Embed = Callable[[Any], ArrayLike]

ACTIVATIONS: dict[str, Callable[[NDArray], NDArray]] = {
    "identity": lambda a: a,
    "logistic": expit,
    "tanh": np.tanh,
    "relu": lambda a: np.maximum(a, 0.0),
}
"""The output activations of scikit-learn's MLPRegressor."""


@dataclass(eq=False, repr=False)
class SklearnModel(Model, BaseEstimator):
    """A scikit-learn style regressor: one of scikit-learn's, a Pipeline, boosted trees of another library, a
    skorch network, or any object with `fit` and `predict`.

    The embedding is the last hidden layer of an ``MLPRegressor`` or a skorch network; for forests and boosted
    trees the (transformed) inputs and the prediction, which work better than the trees' own coordinates;
    otherwise the (transformed) inputs. Non-numeric inputs are coded as numbers: see :class:`InputCoding`.
    `embed` overrides all of these. The estimator itself gets the rows unchanged. If some targets are missing,
    each target gets its own estimator, and the embedding is made from the inputs.
    """

    estimator: Any
    _: KW_ONLY
    prefit: bool = False
    embed: Embed | None = None

    def __sklearn_clone__(self) -> SklearnModel:
        estimator = self.estimator if self.prefit else unfitted_copy(self.estimator)
        return SklearnModel(estimator, prefit=self.prefit, embed=self.embed)

    @property
    def interpolates(self) -> bool:
        """Whether the estimator is made of trees or of its training rows."""
        last = last_step(self.estimator)
        learned = ("apply", "staged_predict", "kneighbors")
        return any(hasattr(last, name) for name in learned) or is_of(last, "lightgbm")

    @property
    def embeds_predictions(self) -> bool:
        """True for estimators that interpolate, unless they have an embedding."""
        own = self.embed is not None or any(hasattr(self._last, name) for name in ("module_", "coefs_"))
        return self.interpolates and not own

    def check(self, X: ArrayLike) -> Any:
        """Keep frames (column transformers need names); convert everything else to a numeric matrix.

        Missing values and sparse matrices pass if the estimator accepts them; text passes only into a Pipeline.
        """
        n_columns = getattr(self, "n_columns_", None)
        if hasattr(X, "columns"):
            return X
        if isinstance(X, SparseRows) or (issparse(X) and takes(self.estimator, "sparse")):
            return SparseRows.of(X, n_columns)
        texts = _as_texts(X) if is_pipeline(self.estimator) else None
        if texts is not None:
            return texts
        return check_matrix(X, n_columns=n_columns, missing=takes(self.estimator, "allow_nan"))

    @property
    def takes_sample_weight(self) -> bool:
        """Whether the estimator's `fit` accepts weights."""
        return weight_name(self.estimator) is not None

    def fit(
        self, X: Any, y: Float[NDArray, "n t"], sample_weight: Float[NDArray, "n"] | None = None
    ) -> SklearnModel:
        """Train a clone, or keep the estimator as it is if it is already fitted."""
        self.n_columns_, self.n_targets_ = X.shape[1] if len(X.shape) == 2 else None, y.shape[1]
        self.x_mean_ = column_means(X) if is_matrix(X) else None
        self.fitted_ = self.estimator if self.prefit else self._trained(X, y, sample_weight)
        self.coding_ = None
        if self.embed is None and not hasattr(self._last, "coefs_") and not hasattr(self._last, "module_"):
            inner = before_last_step(self.fitted_, self._as_given(X))
            if takes(last_step(self.estimator), "allow_nan") or not _is_number_matrix(inner):
                self.coding_ = InputCoding.of(inner)
        return self

    def evaluate(self, X: Any) -> Evaluation:
        """Predict and embed."""
        name = "the estimator's prediction"
        y_pred = check_each_row(check_targets(self.fitted_.predict(self._as_given(X)), name), len(X), name)
        if y_pred.shape[1] != self.n_targets_:
            raise InputError(
                f"the estimator predicts {y_pred.shape[1]} column(s), but y has {self.n_targets_}"
            )
        numbers = None if self.x_mean_ is None else fill_matrix(X, self.x_mean_)
        return Evaluation(y_pred, self._embed(X, y_pred), inputs=numbers)

    def _trained(self, X: Any, y: Float[NDArray, "n t"], weight: Float[NDArray, "n"] | None) -> Any:
        name = weight_name(self.estimator)
        weights = {} if weight is None or name is None else {name: weight}
        if np.isnan(y).any():
            return self._trained_apart(X, y, weights)
        target = own_copy(y[:, 0] if y.shape[1] == 1 else y)
        if self._is_skorch:  # its loss needs outputs and targets of the same shape and type
            target = y.astype(np.float32)
        return unfitted_copy(self.estimator).fit(self._as_given(X), target, **weights)

    def _trained_apart(
        self, X: Any, y: Float[NDArray, "n t"], weights: dict[str, Float[NDArray, "n"]]
    ) -> Any:
        """One estimator per target, each trained on the rows that have it."""
        from sklearn.multioutput import MultiOutputRegressor
        from sklearn.utils import _safe_indexing

        refuse_unknown(y)
        rows, apart = self._as_given(X), MultiOutputRegressor(self.estimator)
        apart.estimators_ = [
            unfitted_copy(self.estimator).fit(
                *(_safe_indexing(rows, np.flatnonzero(known)), column[known]),
                **{name: weight[known] for name, weight in weights.items()},
            )
            for column, known in zip(y.T, ~np.isnan(y.T), strict=True)
        ]
        return apart

    @property
    def takes_missing_targets(self) -> bool:
        """True except for skorch networks, whose loss would have to mask missing targets."""
        return self.prefit or not self._is_skorch

    @property
    def described(self) -> str:
        """The estimator's name in error messages."""
        return type(self.estimator).__name__

    def _embed(self, X: Any, y_pred: Float[NDArray, "n t"]) -> Float[NDArray, "n h"]:
        if self.embed is not None:
            return check_each_row(
                check_matrix(self.embed(own_copy(X)), "the embedding"), len(X), "the embedding"
            )
        inner = before_last_step(self.fitted_, self._as_given(X))
        if hasattr(self._last, "module_"):
            return _module_layer(self._last, inner)
        numbers = (
            check_matrix(inner, "the transformed inputs") if self.coding_ is None else self.coding_(inner)
        )
        if hasattr(self._last, "coefs_"):
            return _hidden_layer(self._last, numbers)
        return np.column_stack([numbers, y_pred]) if self.embeds_predictions else numbers

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = takes(self.estimator, "allow_nan")
        return tags

    @property
    def _is_skorch(self) -> bool:
        return is_of(last_step(self.estimator), "skorch")

    @property
    def _last(self) -> Any:
        """The fitted estimator, or the last step of a Pipeline."""
        return last_step(self.fitted_)

    def _as_given(self, X: Any) -> Any:
        """A copy of the rows in the type the estimator needs: skorch networks compute in float32."""
        if isinstance(X, SparseRows):
            return X.matrix.copy()
        return X.astype(np.float32) if is_matrix(X) and self._is_skorch else own_copy(X)


@dataclass(eq=False, repr=False)
class FunctionModel(Model):
    """A trained model given as functions from rows to arrays: `predict`, and `embed` or None.

    Without `embed`, the embedding is the inputs as numbers (:class:`InputCoding`) and the predictions.
    """

    predict: Embed
    embed: Embed | None = None
    prefit: ClassVar[bool] = True

    def check(self, X: ArrayLike) -> Any:
        """Accept any inputs with a length; the functions decide the rest."""
        if not hasattr(X, "__len__"):
            raise InputError("X must have rows that can be counted; pass an array, a frame or a list")
        return X

    def fit(self, X: Any, y: Float[NDArray, "n t"]) -> FunctionModel:
        """Check the outputs; there is nothing to train."""
        self.n_targets_ = y.shape[1]
        if self.embed is None:
            self.coding_ = InputCoding.of(X)
        return self

    def evaluate(self, X: Any) -> Evaluation:
        """Call the functions."""
        y_pred = check_targets(self.predict(own_copy(X)), "the output of predict")
        embeddings = (
            self.coding_(X)
            if self.embed is None
            else check_matrix(self.embed(own_copy(X)), "the output of embed")
        )
        if not len(y_pred) == len(embeddings) == len(X) or y_pred.shape[1] != self.n_targets_:
            raise InputError(
                f"predict and embed must give one row per row of X and {self.n_targets_} target(s); "
                f"got {y_pred.shape} and {embeddings.shape} for {len(X)} rows"
            )
        return Evaluation(y_pred, np.column_stack([embeddings, y_pred]) if self.embed is None else embeddings)


def _as_texts(X: Any) -> NDArray | None:
    """A column of strings, as scikit-learn's vectorizers expect; None for any other input."""
    rows = X if isinstance(X, list | tuple) or np.ndim(X) == 1 else ()
    if not len(rows) or not all(isinstance(text, str) for text in rows):
        return None
    return np.array(rows, dtype=object)


def _is_number_matrix(inputs: Any) -> bool:
    """Whether the inputs are a dense matrix of finite numbers."""
    try:
        check_matrix(inputs)
    except InputError:
        return False
    return True


def _module_layer(net: Any, inputs: Float[NDArray, "n p"]) -> Float[NDArray, "n h"]:
    """The input of the Linear layer that a fitted skorch network calls last."""
    import torch

    from lvd.models.torch_modules import evaluating, find_last_linear, forward_with_embedding

    rows = torch.as_tensor(np.asarray(inputs, np.float32), device=net.device)
    with evaluating(net.module_):
        layer = find_last_linear(net.module_, rows[:2])
        embedding = forward_with_embedding(net.module_, layer, rows)[1]
    return embedding.double().cpu().numpy()


def _hidden_layer(mlp: Any, inputs: Float[NDArray, "n p"]) -> Float[NDArray, "n h"]:
    """The input of the output layer of a fitted scikit-learn MLPRegressor."""
    hidden = inputs
    for weights, bias in zip(mlp.coefs_[:-1], mlp.intercepts_[:-1], strict=True):
        hidden = ACTIVATIONS[mlp.activation](hidden @ weights + bias)
    return hidden


def own_copy(rows: Any) -> Any:
    """A copy for an estimator that may modify its input."""
    if is_tensor(rows):
        return rows.clone()
    return rows.copy() if hasattr(rows, "copy") else rows
