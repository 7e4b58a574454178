"""From whatever the user calls an estimator to a model with one contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sklearn.base import clone
from torch import nn

from lvd._typing import RandomState
from lvd._validation import InputError
from lvd.nets.adapters import Embed, FunctionModel, SklearnModel
from lvd.nets.model import Model
from lvd.nets.regressor import NetRegressor


def as_model(
    estimator: Any,
    *,
    prefit: bool,
    embedding_layer: str | None,
    embed: Embed | None,
    device: str,
    random_state: RandomState,
) -> Model:
    """The model for `estimator`: None, a torch module, a NetRegressor, scikit-learn, or two functions."""
    if estimator is None or isinstance(estimator, nn.Module):
        if estimator is None and prefit:
            raise InputError("prefit=True needs a trained estimator; pass it as the first argument")
        return NetRegressor(
            estimator,
            embedding_layer=embedding_layer,
            prefit=prefit,
            device=device,
            random_state=random_state,
        )
    if embedding_layer is not None:
        raise InputError("embedding_layer= belongs to torch modules; use embed= for other estimators")
    if isinstance(estimator, NetRegressor):
        return estimator if prefit else clone(estimator)
    if isinstance(estimator, Sequence) and len(estimator) == 2 and all(callable(part) for part in estimator):
        return FunctionModel(*estimator)
    if isinstance(estimator, Model):
        return estimator if prefit else clone(estimator)
    if hasattr(estimator, "fit") and hasattr(estimator, "predict"):
        return SklearnModel(estimator, prefit=prefit, embed=embed)
    raise InputError(
        "estimator must be None, a torch module, a scikit-learn regressor or a pair of functions "
        f"(predict, embed), got {type(estimator).__name__}"
    )
