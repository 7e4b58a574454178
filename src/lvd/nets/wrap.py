"""From whatever the user calls an estimator to a model with one contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sklearn.base import clone
from torch import nn

from lvd._typing import RandomState
from lvd._validation import InputError
from lvd.nets.adapters import Embed, FunctionModel, SklearnModel
from lvd.nets.model import Fitted, Model
from lvd.nets.regressor import NetRegressor


def as_model(
    estimator: Any,
    *,
    prefit: bool = False,
    embedding_layer: str | None = None,
    embed: Embed | None = None,
    device: str = "auto",
    random_state: RandomState = None,
) -> Model:
    """The model for `estimator`: None, a torch module, a NetRegressor, scikit-learn, or two functions."""
    is_net = estimator is None or isinstance(estimator, nn.Module)
    is_sklearn = not (is_net or isinstance(estimator, Model)) and hasattr(estimator, "predict")
    if embedding_layer is not None and not is_net:
        raise InputError("embedding_layer= belongs to torch modules; use embed= for other estimators")
    if embed is not None and not is_sklearn:
        raise InputError("embed= belongs to scikit-learn estimators; use embedding_layer= for torch modules")
    if is_net:
        if estimator is None and prefit:
            raise InputError("prefit=True needs a trained estimator; pass it as the first argument")
        return NetRegressor(
            estimator,
            embedding_layer=embedding_layer,
            prefit=prefit,
            device=device,
            random_state=random_state,
        )
    if isinstance(estimator, Sequence) and len(estimator) == 2 and all(callable(part) for part in estimator):
        return FunctionModel(*estimator)
    if isinstance(estimator, Model):
        return Fitted(estimator) if prefit else seeded_clone(estimator, random_state)
    if is_sklearn:
        fresh = estimator if prefit else seeded_clone(estimator, random_state)
        return SklearnModel(fresh, prefit=prefit, embed=embed)
    raise InputError(
        "estimator must be None, a torch module, a scikit-learn regressor or a pair of functions "
        f"(predict, embed), got {type(estimator).__name__}"
    )


def came_trained(model: Model) -> bool:
    """Whether the model was given as trained: its `fit` trains nothing."""
    return isinstance(model, Fitted | FunctionModel) or bool(getattr(model, "prefit", False))


def seeded_clone(estimator: Any, seed: RandomState) -> Any:
    """An unfitted copy, in which every `random_state` that was left open is `seed`."""
    fresh = clone(estimator)
    parameters = fresh.get_params()
    names = [name for name in parameters if name.split("__")[-1] == "random_state"]
    return fresh.set_params(**{name: seed for name in names if parameters[name] is None})
