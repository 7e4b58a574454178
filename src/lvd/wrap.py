"""Wraps whatever the user passes as an estimator into a :class:`Model`."""

from __future__ import annotations

from typing import Any

from torch import nn

from lvd._typing import RandomState
from lvd._validation import InputError, check_choice
from lvd.models.adapters import FunctionModel, SklearnModel
from lvd.models.boosted import TreesRegressor
from lvd.models.model import Fitted, Model, is_classifier, last_step, unfitted_copy
from lvd.models.regressor import NetRegressor
from lvd.molecules.trained import trained_mpnn

BUILT_IN = ("net", "trees", "paper")
"""The models that have a name: the network, boosted trees, and the network as the paper trains it."""


def model_and_embedding(estimator: Any) -> tuple[Any, Any]:
    """The estimator, and its embedding if both came as a pair, else None."""
    is_pair = isinstance(estimator, list | tuple) and len(estimator) == 2
    return tuple(estimator) if is_pair else (estimator, None)


def as_model(
    estimator: Any,
    *,
    prefit: bool = False,
    device: str = "auto",
    random_state: RandomState = None,
) -> Model:
    """The model for `estimator`: the name of a built-in one (None: the network), a torch module, a model of lvd's,
    whatever has `fit` and `predict`, or a predict function.

    Each of them may come in a pair with its embedding: for a torch module the name of the layer whose input it is,
    for others a function from rows to embeddings.
    """
    estimator, embedding = model_and_embedding(estimator)
    early_stopping = None
    if isinstance(estimator, str):
        name = check_choice(estimator, "estimator", BUILT_IN)
        estimator = TreesRegressor(random_state=random_state) if name == "trees" else None
        early_stopping = False if name == "paper" else None
        if prefit:
            raise InputError(f"prefit=True needs a trained estimator, got {name!r}; pass the model itself")
    if isinstance(estimator, type):
        raise InputError(f"estimator is a class; give an object of it, as {estimator.__name__}()")
    of_chemprop = type(estimator).__module__.split(".")[0] == "chemprop"
    is_net = not of_chemprop and (estimator is None or isinstance(estimator, nn.Module))
    has_own = of_chemprop or isinstance(estimator, Model)
    if isinstance(embedding, str) and not is_net:
        raise InputError(
            f"the embedding {embedding!r} names a layer, which only torch modules have; give a function from rows "
            "to embeddings"
        )
    if embedding is not None and has_own:
        raise InputError(
            f"a {type(estimator).__name__} has its own embedding; pass it alone, not in a pair with another"
        )
    if embedding is not None and is_net and not isinstance(embedding, str):
        raise InputError(
            "the embedding of a torch module must be the name of the layer whose input it is, got "
            f"{type(embedding).__name__}"
        )
    if of_chemprop:
        return trained_mpnn(estimator, prefit=prefit)
    if is_net:
        if estimator is None and prefit:
            raise InputError("prefit=True needs a trained estimator; pass it as the first argument")
        return NetRegressor(
            estimator,
            embedding_layer=embedding,
            early_stopping=early_stopping,
            prefit=prefit,
            device=device,
            random_state=random_state,
        )
    if isinstance(estimator, Model):
        return Fitted(estimator) if prefit else seeded_clone(estimator, random_state)
    if (embedding is None or callable(embedding)) and hasattr(estimator, "predict"):
        refuse_classifier(estimator)
        fresh = estimator if prefit else seeded_clone(estimator, random_state)
        return SklearnModel(fresh, prefit=prefit, embed=embedding)
    if (embedding is None or callable(embedding)) and callable(estimator):
        return FunctionModel(estimator, embedding)
    raise InputError(
        "estimator must be None, a torch module, a ChempropEstimator, a regressor with fit and predict, 'net', "
        "'trees', a function predict, or a pair of one of these and its embedding, got "
        + (type(estimator).__name__ if embedding is None else f"a pair with {type(embedding).__name__}")
    )


def refuse_classifier(estimator: Any) -> None:
    """Refuse classifiers."""
    if is_classifier(estimator):
        raise InputError(
            f"estimator must be a regressor, and {type(last_step(estimator)).__name__} is a classifier, whose "
            "classes have no intervals; give a regressor, or a function that returns numbers from a trained "
            "classifier, such as lambda X: model.predict_proba(X)[:, 1]"
        )


def seeded_clone(estimator: Any, seed: RandomState) -> Any:
    """An unfitted copy in which every `random_state` of None is set to `seed`.

    An object without `get_params` is copied unchanged, and refitted.
    """
    fresh = unfitted_copy(estimator)
    parameters: dict[str, Any] = getattr(fresh, "get_params", dict)()
    names = [name for name in parameters if name.split("__")[-1] == "random_state"]
    open_names = [name for name in names if parameters[name] is None]
    return fresh.set_params(**dict.fromkeys(open_names, seed)) if open_names else fresh
