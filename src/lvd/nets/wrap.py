"""From whatever the user calls an estimator to a model with one contract."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from sklearn.base import clone
from torch import nn

from lvd._typing import RandomState
from lvd._validation import InputError
from lvd.nets.adapters import Embed, FunctionModel, SklearnModel
from lvd.nets.model import Fitted, Model
from lvd.nets.molecules.lazy import chemprop_adapter
from lvd.nets.molecules.trained import TrainedMPNN
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
    """The model for `estimator`: None, a torch module, a model of lvd's, scikit-learn, or two functions.

    A network of chemprop's is a torch module too, but takes molecules.
    """
    is_mpnn = "chemprop" in sys.modules and chemprop_adapter().is_mpnn(estimator)
    is_net = not is_mpnn and (estimator is None or isinstance(estimator, nn.Module))
    is_sklearn = not (is_net or is_mpnn or isinstance(estimator, Model)) and hasattr(estimator, "predict")
    if embedding_layer is not None and not is_net:
        raise InputError("embedding_layer= belongs to torch modules; use embed= for other estimators")
    if embed is not None and not is_sklearn:
        raise InputError("embed= belongs to scikit-learn estimators; use embedding_layer= for torch modules")
    if is_mpnn:
        if not prefit:
            raise InputError(
                "a chemprop MPNN must come trained, with prefit=True; to train one, give a ChempropEstimator"
            )
        return TrainedMPNN(estimator)
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
        "estimator must be None, a torch module, a ChempropEstimator, a scikit-learn regressor or a pair of "
        f"functions (predict, embed), got {type(estimator).__name__}"
    )


def came_trained(model: Model) -> bool:
    """Whether the model was given as trained: its `fit` trains nothing."""
    return isinstance(model, Fitted | FunctionModel | TrainedMPNN) or bool(getattr(model, "prefit", False))


def seeded_clone(estimator: Any, seed: RandomState) -> Any:
    """An unfitted copy, in which every `random_state` that was left open is `seed`."""
    fresh = clone(estimator)
    parameters = fresh.get_params()
    names = [name for name in parameters if name.split("__")[-1] == "random_state"]
    return fresh.set_params(**{name: seed for name in names if parameters[name] is None})
