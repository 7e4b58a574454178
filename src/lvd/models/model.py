"""The interface of base models, and what can be asked of a user's estimator without importing its library."""

from __future__ import annotations

import copy
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.base import RegressorMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from lvd._typing import ArrayLike, Float, Int, NDArray
from lvd._validation import InputError, like


class Evaluation(NamedTuple):
    """A model's output for some rows: one column per target, embeddings, and quantiles if it has any.

    `inputs` are the rows with missing numbers filled in; None if none are missing. `spread` is the expected
    error below and above the prediction, for models that estimate it themselves; they should be `trained_once`.
    """

    y_pred: Float[NDArray, "n t"]
    embeddings: Float[NDArray, "n h"]
    quantiles: Float[NDArray, "n 2 l t"] | None = None
    inputs: Float[NDArray, "n p"] | None = None
    spread: Float[NDArray, "n 2 t"] | None = None


class Model(ABC):
    """A base model, with everything that methods and scores may ask of it.

    It defines its own inputs: a matrix, images, strings.
    """

    @property
    def unwrapped(self) -> Model:
        """The model without wrappers that change nothing about its inputs."""
        return self

    @property
    def prefit(self) -> bool:
        """Whether it is already trained, so that `fit` trains nothing."""
        return False

    @property
    def takes_missing_targets(self) -> bool:
        """Whether `y` may have NaN for an unknown one of several targets."""
        return self.prefit

    @property
    def takes_sample_weight(self) -> bool:
        """Whether `fit` takes row weights, ``fit(X, y, sample_weight=...)``."""
        return False

    @property
    def interpolates(self) -> bool:
        """Whether it nearly reproduces the targets of its training rows, as trees do."""
        return False

    @property
    def embeds_predictions(self) -> bool:
        """Whether its embeddings end in its predictions."""
        return False

    @property
    def trained_once(self) -> bool:
        """Whether no fold model is trained unless the user asks for cross calibration: it takes long to train, or
        predicts its own errors (`Evaluation.spread`)."""
        return False

    @property
    def rows_held_out(self) -> Int[NDArray, "v"]:
        """Indices, among the rows given to `fit`, of those it held out of training, if it knows of any."""
        return np.zeros(0, np.int64)

    @abstractmethod
    def check(self, X: ArrayLike) -> Any:
        """`X` as this model's inputs, or an :class:`InputError`; supports ``len`` and row indexing."""

    def same_case(self, X: Any) -> NDArray:
        """A label for each row of checked inputs; rows with equal labels are one case, which no split divides.

        By default each row is its own case: equal numeric rows may be different cases.
        """
        return np.arange(len(X))

    @abstractmethod
    def fit(self, X: Any, y: Float[NDArray, "n t"]) -> Any:
        """Train on checked inputs (a prefit model only learns what its embedding needs)."""

    @abstractmethod
    def evaluate(self, X: Any) -> Evaluation:
        """Predict and embed checked inputs."""

    def untrained(self) -> Model:
        """An untrained copy."""
        fresh: Model = clone(self)
        return fresh

    def lighter(self) -> Model:
        """An untrained copy for learning error sizes on held-out rows; of an ensemble, one member."""
        return self.untrained()

    def with_loss(self, loss: Any) -> Model:
        """An untrained copy with another loss, if the model supports it."""
        raise InputError(
            "estimator must be None, a torch module, or one of lvd's own networks, to be trained with the "
            f"pinball loss, got {self.described}; train a quantile model of another kind first and pass it with "
            "prefit=True, predicting the lower and upper quantile as two columns"
        )

    @property
    def described(self) -> str:
        """The model's name in error messages."""
        return type(self).__name__


class EvaluatingRegressor(Model, RegressorMixin):
    """A model with scikit-learn's `predict`, built on `evaluate`; `_flat` is whether y was a vector in `fit`."""

    _flat: bool

    def predict(self, X: ArrayLike) -> Any:
        """Predictions, (n,) or (n, t), matching y in `fit`."""
        y_pred = self.evaluate(X).y_pred
        return like(y_pred[:, 0] if self._flat and y_pred.shape[1] == 1 else y_pred, X)

    def embed(self, X: ArrayLike) -> Any:
        """The embeddings, (n, h)."""
        return like(self.evaluate(X).embeddings, X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def check_each_row(answer: NDArray, n_rows: int, name: str) -> NDArray:
    """The output of a user's estimator, checked to have one row for each row of X."""
    if len(answer) != n_rows:
        raise InputError(
            f"{name} must have one row for each row of X, got {len(answer)} for {n_rows} rows; check what the "
            "estimator returns"
        )
    return answer


@dataclass(frozen=True)
class Fitted(Model):
    """An already trained model; `fit` only checks that it predicts as many columns as `y` has."""

    model: Model
    prefit: ClassVar[bool] = True

    @property
    def unwrapped(self) -> Model:
        """The wrapped model."""
        return self.model.unwrapped

    @property
    def interpolates(self) -> bool:
        """Whether the wrapped model interpolates."""
        return self.model.interpolates

    @property
    def embeds_predictions(self) -> bool:
        """Whether the wrapped model embeds its predictions."""
        return self.model.embeds_predictions

    def check(self, X: ArrayLike) -> Any:
        """Check the inputs as the wrapped model does."""
        return self.model.check(X)

    def same_case(self, X: Any) -> NDArray:
        """The case labels of the wrapped model."""
        return self.model.same_case(X)

    def fit(self, X: Any, y: Float[NDArray, "n t"]) -> Fitted:
        """Check the number of targets; there is nothing to train."""
        n_predicted = self.model.evaluate(X[:1]).y_pred.shape[1]
        if n_predicted != y.shape[1]:
            raise InputError(f"the estimator predicts {n_predicted} column(s), but y has {y.shape[1]}")
        return self

    def evaluate(self, X: Any) -> Evaluation:
        """The wrapped model's evaluation."""
        return self.model.evaluate(X)


def is_pipeline(estimator: Any) -> bool:
    """Whether this is a scikit-learn Pipeline; it cannot be one if scikit-learn's was never imported."""
    module = sys.modules.get("sklearn.pipeline")
    return module is not None and isinstance(estimator, module.Pipeline)


def last_step(estimator: Any) -> Any:
    """The last step of a Pipeline, or the estimator itself."""
    return estimator[-1] if is_pipeline(estimator) else estimator


def before_last_step(fitted: Any, rows: Any) -> Any:
    """The input of the last step of a fitted Pipeline; a frame stays a frame, to keep its names."""
    return fitted[:-1].transform(rows) if is_pipeline(fitted) and len(fitted) > 1 else rows


def is_of(estimator: Any, package: str) -> bool:
    """Whether the estimator's class comes from this package or derives from one that does."""
    return any(base.__module__.split(".")[0] == package for base in type(estimator).__mro__)


def takes(estimator: Any, what: str) -> bool:
    """Whether an estimator accepts such inputs, by scikit-learn's tags; without tags, only numbers."""
    if is_of(estimator, "sklearn") and type(estimator).__name__ == "TransformedTargetRegressor":
        estimator = estimator.regressor  # whose tags the wrapper does not pass on
    if is_pipeline(estimator) and what == "allow_nan":
        names = [type(step).__name__ for step in estimator]
        fills = [name == "ColumnTransformer" or name.endswith("Imputer") for name in names]
        return all(takes(step, what) for step in estimator[: (*fills, True).index(True) + 1])
    if not hasattr(estimator, "__sklearn_tags__"):
        return is_of(estimator, "lightgbm")  # its native booster
    return bool(getattr(get_tags(estimator).input_tags, what))


def weight_name(estimator: Any) -> str | None:
    """The name of `fit`'s row weights, in a Pipeline those of its last step; None if it takes none."""
    if is_pipeline(estimator):
        name = weight_name(estimator[-1])
        return None if name is None else f"{estimator.steps[-1][0]}__{name}"
    return "sample_weight" if has_fit_parameter(estimator, "sample_weight") else None


def is_classifier(estimator: Any) -> bool:
    """Whether it predicts classes, by scikit-learn's tags or, in older libraries, its estimator type."""
    last = last_step(estimator)
    if hasattr(last, "__sklearn_tags__"):
        return get_tags(last).estimator_type == "classifier"
    return getattr(last, "_estimator_type", None) == "classifier"


def unfitted_copy(estimator: Any) -> Any:
    """A clone, or a plain copy of an object without `get_params`."""
    if is_of(estimator, "catboost"):  # it copies its lists, so scikit-learn refuses to clone it
        return type(estimator)(**copy.deepcopy(estimator.get_params()))
    return clone(estimator, safe=False)
