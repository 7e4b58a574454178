"""Whose estimator it is, and what it takes, without importing the library that it is of."""

from __future__ import annotations

import copy
import sys
from typing import Any

from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter


def is_pipeline(estimator: Any) -> bool:
    """Whether it is a scikit-learn Pipeline; where that was never loaded, nothing can be one."""
    module = sys.modules.get("sklearn.pipeline")
    return module is not None and isinstance(estimator, module.Pipeline)


def last_step(estimator: Any) -> Any:
    """The last step of a Pipeline; any other estimator itself."""
    return estimator[-1] if is_pipeline(estimator) else estimator


def before_last_step(fitted: Any, rows: Any) -> Any:
    """What the last step of a fitted Pipeline gets to see; a frame stays one, for its names."""
    return fitted[:-1].transform(rows) if is_pipeline(fitted) and len(fitted) > 1 else rows


def is_of(estimator: Any, package: str) -> bool:
    """Whether the estimator's class is one of the package, or made of one."""
    return any(base.__module__.split(".")[0] == package for base in type(estimator).__mro__)


def takes(estimator: Any, what: str) -> bool:
    """Whether an estimator accepts such inputs, by scikit-learn's tags; one without tags takes numbers only."""
    if is_of(estimator, "sklearn") and type(estimator).__name__ == "TransformedTargetRegressor":
        estimator = estimator.regressor  # whose tags it does not pass on
    if is_pipeline(estimator) and what == "allow_nan":
        names = [type(step).__name__ for step in estimator]
        fills = [name == "ColumnTransformer" or name.endswith("Imputer") for name in names]
        return all(takes(step, what) for step in estimator[: (*fills, True).index(True) + 1])
    if not hasattr(estimator, "__sklearn_tags__"):
        return is_of(estimator, "lightgbm")  # its native booster
    return bool(getattr(get_tags(estimator).input_tags, what))


def weight_name(estimator: Any) -> str | None:
    """How `fit` calls the weights of rows, that of a Pipeline those of its last step; None where it takes none."""
    if is_pipeline(estimator):
        name = weight_name(estimator[-1])
        return None if name is None else f"{estimator.steps[-1][0]}__{name}"
    return "sample_weight" if has_fit_parameter(estimator, "sample_weight") else None


def is_classifier(estimator: Any) -> bool:
    """Whether it predicts classes, by scikit-learn's tags or, of older libraries, by what it says it is."""
    last = last_step(estimator)
    if hasattr(last, "__sklearn_tags__"):
        return get_tags(last).estimator_type == "classifier"
    return getattr(last, "_estimator_type", None) == "classifier"


def unfitted_copy(estimator: Any) -> Any:
    """A clone; of an object that does not tell its parameters, a copy as it is."""
    if is_of(estimator, "catboost"):  # which copies its lists, so that scikit-learn refuses to clone it
        return type(estimator)(**copy.deepcopy(estimator.get_params()))
    return clone(estimator, safe=False)
