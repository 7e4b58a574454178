"""Which library an estimator comes from and what it supports, without importing that library."""

from __future__ import annotations

import copy
import sys
from typing import Any

from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter


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
