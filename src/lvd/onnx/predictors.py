"""Base models in the graph: their predictions and embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from lvd.models import Model
from lvd.models.adapters import SklearnModel
from lvd.models.averaged import AveragedModel
from lvd.models.boosted import TreesRegressor
from lvd.models.candidates import FilledModel
from lvd.models.coding import InputCoding
from lvd.models.model import Fitted, is_of
from lvd.models.regressor import NetRegressor
from lvd.onnx.categories import code_columns, level_means, level_numbers
from lvd.onnx.forests import (
    FlatTrees,
    of_boosting,
    of_ensembles,
    of_forest,
    of_histograms,
    of_lightgbm,
    predict_trees,
)
from lvd.onnx.graph import DOUBLE, INTEGER, Node
from lvd.onnx.networks import network_outputs, run_sklearn_mlp
from lvd.onnx.pipelines import refusal, steps_of, text_levels, transform_rows


class Outputs(NamedTuple):
    """A model's :class:`Evaluation` as nodes; `inputs` are the rows with missing numbers filled in, None if
    scales and support use the embeddings instead, as for frames that an estimator reads itself."""

    y_pred: Node
    embeddings: Node
    inputs: Node | None


def known_levels(method: Any) -> dict[int, tuple[str, ...]]:
    """For each non-numeric column, the sorted levels that the model or the support rule distinguishes."""
    found: dict[int, set[str]] = {}
    for model in (method.model_, *getattr(method.model_, "fold_models", ())):
        for number, levels in _distinguished_levels(model.unwrapped).items():
            found.setdefault(number, set()).update(levels)
    for number, levels in enumerate(getattr(method.support_, "levels_", ())):
        found.get(number, set()).update(levels)
    return {number: tuple(sorted(levels)) for number, levels in found.items()}


def _distinguished_levels(model: Any) -> dict[int, set[str]]:
    """For each non-numeric column, the levels that a model distinguishes."""
    coding, found = vars(model).get("coding_"), dict[int, set[str]]()
    if type(model) is SklearnModel:
        found = text_levels(model.fitted_)
    elif isinstance(coding, InputCoding):
        found = {
            number: set(coding.levels[number]) for number, mean in enumerate(coding.means) if mean is None
        }
    means = vars(model).get("means_")
    for codes in (vars(model).get("codes_"), None if means is None else means.codes):
        for number, levels in () if codes is None else zip(codes.columns, codes.levels, strict=True):
            found[number] |= set(levels)
    return found


def run_model(model: Any, X: Node) -> Outputs:
    """The output of :meth:`Model.evaluate` for a numeric matrix."""
    if type(model) is Fitted:
        model = model.model
    if type(model) not in MODELS:
        raise refusal(model.described if isinstance(model, Model) else type(model).__name__)
    return MODELS[type(model)](model, X)


def _averaged(model: AveragedModel, X: Node) -> Outputs:
    own = run_model(model.model, X)
    y_pred = own.y_pred
    for one in model.fold_models:
        y_pred += run_model(one, X).y_pred
    return own._replace(y_pred=y_pred / float(1 + len(model.fold_models)))


def _own_network(model: NetRegressor, X: Node) -> Outputs:
    return Outputs(*network_outputs(model, X), X)


def _trees(model: TreesRegressor, X: Node) -> Outputs:
    coding, join = _dense(model.coding_), X.graph.join
    numbers = code_columns(coding, X)
    filled, inputs = _filled(coding, numbers), None
    if model.means_ is None or model.codes_ is None:
        coded, inputs = (
            undo_hot_columns(numbers, model.blocks_, len(coding.of_numbers)),
            _mean_where_missing(X, coding.means),
        )
    else:
        means, codes = level_means(model.means_, X), model.codes_.columns
        many = [
            one for one, column in zip(means, model.means_.codes.columns, strict=True) if column not in codes
        ]
        plain = [numbers.columns(np.flatnonzero(coding.of_numbers))] if coding.of_numbers.any() else []
        coded = join([*level_numbers(model.codes_, X), *many, *plain])
        filled = inputs = join([filled, *means])
    y_pred = join([predict_trees(coded, one) for one in of_ensembles(model.ensembles_)])
    return Outputs(y_pred, join([filled, y_pred]), inputs)


def _filled_model(model: FilledModel, X: Node) -> Outputs:
    coding = _dense(model.coding_)
    coded = _filled(coding, code_columns(coding, X))
    if model.means_ is None:
        return run_model(model.model_, coded)._replace(inputs=_mean_where_missing(X, coding.means))
    coded = X.graph.join([coded, *level_means(model.means_, X)])
    return run_model(model.model_, coded)._replace(inputs=coded)


def _dense(coding: InputCoding) -> InputCoding:
    if coding.axes is not None:
        raise refusal("model of sparse matrices")
    return coding


def _filled(coding: InputCoding, numbers: Node) -> Node:
    if not coding.means:  # for a sparse matrix, in which nothing is missing
        return numbers
    parts = zip(coding.means, coding.gaps, coding.levels, strict=True)
    means = [[0.0] * len(levels) if mean is None else [mean, *[0.0] * gap] for mean, gap, levels in parts]
    return _mean_where_missing(numbers, [one for part in means for one in part])


def _mean_where_missing(X: Node, means: Any) -> Node:
    return X.is_nan().where(np.array(means, np.float64)[None], X)


def undo_hot_columns(X: Node, blocks: Sequence[tuple[int, int]], n_columns: int) -> Node:
    """The categories of runs of one-hot columns, NaN where none is 1, followed by all other columns."""
    if not blocks:
        return X
    codes, places = [], np.arange(n_columns)
    for start, stop in blocks:
        hot = X.columns(np.arange(start, stop)).equals(1.0).cast(DOUBLE)
        first = X.graph.apply("ArgMax", hot, dtype=INTEGER, axis=1).cast(DOUBLE)
        codes.append((hot.reduce("Max") > 0.0).where(first, np.nan))
    rest = np.setdiff1d(places, np.concatenate([np.arange(*block) for block in blocks]))
    return X.graph.join([*codes, X.columns(rest)] if len(rest) else codes)


def _sklearn(model: SklearnModel, X: Node) -> Outputs:
    if model.embed is not None:
        raise refusal("pair of an estimator and a function")
    steps, inner = steps_of(model.fitted_), X
    for step in steps[:-1]:
        inner = transform_rows(step, inner)
    numbers = inner
    if model.coding_ is not None:
        numbers = _filled(model.coding_, code_columns(_dense(model.coding_), inner))
    inputs = None if model.x_mean_ is None else _mean_where_missing(X, model.x_mean_)
    last, kind = steps[-1], type(steps[-1]).__name__
    if kind == "MLPRegressor":
        return Outputs(*run_sklearn_mlp(last, inner), inputs)
    y_pred = _predict(last, kind, inner)
    return Outputs(y_pred, X.graph.join([numbers, y_pred]) if model.embeds_predictions else numbers, inputs)


def _predict(last: Any, kind: str, rows: Node) -> Node:
    if kind in FORESTS and is_of(last, "sklearn"):
        return predict_trees(rows, FORESTS[kind](last))
    if is_of(last, "lightgbm"):
        return predict_trees(rows, of_lightgbm(last))
    if kind in LINEAR and is_of(last, "sklearn"):
        weights = np.atleast_2d(np.asarray(last.coef_, np.float64))
        return rows @ weights.T + np.broadcast_to(last.intercept_, len(weights))
    raise refusal(kind)


FORESTS: dict[str, Callable[[Any], FlatTrees]] = {
    "HistGradientBoostingRegressor": of_histograms,
    "GradientBoostingRegressor": of_boosting,
    **dict.fromkeys(
        (*("RandomForestRegressor", "ExtraTreesRegressor", "DecisionTreeRegressor", "ExtraTreeRegressor"),),
        of_forest,
    ),
}
LINEAR = {
    *(
        "LinearRegression",
        "Ridge",
        "RidgeCV",
        "Lasso",
        "LassoCV",
        "ElasticNet",
        "ElasticNetCV",
        "BayesianRidge",
    ),
    *("HuberRegressor", "Lars", "LassoLars", "LassoLarsCV", "OrthogonalMatchingPursuit", "QuantileRegressor"),
    *("SGDRegressor", "LinearSVR", "TheilSenRegressor", "ARDRegression"),
}
MODELS: dict[type[Any], Callable[[Any, Node], Outputs]] = {
    AveragedModel: _averaged,
    NetRegressor: _own_network,
    TreesRegressor: _trees,
    FilledModel: _filled_model,
    SklearnModel: _sklearn,
}
"""Keyed by exact type: a derived class may do anything else."""
