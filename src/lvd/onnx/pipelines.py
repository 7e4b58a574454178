"""The steps of scikit-learn Pipelines in the graph, except the last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lvd._typing import Bool, NDArray
from lvd._validation import InputError
from lvd.models.coding import is_missing
from lvd.models.model import is_pipeline
from lvd.onnx.categories import of_level
from lvd.onnx.graph import DOUBLE, Node


def steps_of(fitted: Any) -> list[Any]:
    """The steps of a Pipeline, or the single estimator."""
    return [step for _, step in fitted.steps] if is_pipeline(fitted) else [fitted]


def transform_rows(step: Any, rows: Node) -> Node:
    """The output of a step."""
    kind = type(step).__name__
    if is_pipeline(step):
        for one in steps_of(step):
            rows = transform_rows(one, rows)
        return rows
    if kind == "ColumnTransformer":
        return rows.graph.join([_columns(one, rows, numbers) for one, numbers in _parts(step)])
    if step == "passthrough" or (kind == "FunctionTransformer" and step.func is None):
        return rows
    made = _of_numbers(step, kind, rows)
    if made is None:
        raise refusal(f"Pipeline with a {kind}")
    return made


def _of_numbers(step: Any, kind: str, rows: Node) -> Node | None:
    """A step's output for numeric columns; None for unknown steps."""
    if kind == "SimpleImputer" and not step.add_indicator and _fills_all(step):
        return rows.is_nan().where(np.asarray(step.statistics_, np.float64)[None], rows)
    if kind == "MinMaxScaler" and not step.clip:
        return rows * step.scale_ + step.min_
    if kind in ("StandardScaler", "RobustScaler", "MaxAbsScaler"):
        centre = getattr(step, "mean_", None) if kind == "StandardScaler" else getattr(step, "center_", None)
        centred = rows if centre is None or not getattr(step, "with_mean", True) else rows - centre
        return centred if step.scale_ is None else centred / step.scale_
    if kind != "OneHotEncoder":
        return None
    known = [(number, *one) for number, one in enumerate(_hot_categories(step))]
    return rows.graph.join(
        [
            rows.columns([number]).equals(levels[kept].astype(np.float64)[None]).cast(DOUBLE)
            for number, levels, kept in known
            if kept.any()
        ]
    )


def refusal(what: str) -> InputError:
    """The error that says what cannot be exported, and what can."""
    return InputError(
        f"a {what} cannot be exported to ONNX; what can: lvd's networks and trees, an nn.Sequential, "
        "scikit-learn's trees, forests, linear models and MLPRegressor, LightGBM, and Pipelines that scale, "
        "impute or code categories before them"
    )


def text_levels(fitted: Any) -> dict[int, set[str]]:
    """The levels of the text columns that a Pipeline's first ColumnTransformer codes, "" for missing."""
    found: dict[int, set[str]] = {}
    first = steps_of(fitted)[0]
    for transformer, numbers in _parts(first) if type(first).__name__ == "ColumnTransformer" else ():
        for step in steps_of(transformer):
            for number, known in zip(numbers, getattr(step, "categories_", ()), strict=False):
                if known.dtype.kind not in "biuf":
                    found[number] = {_level_text(level) for level in known} | {""}
    return found


def _parts(transformer: Any) -> Iterator[tuple[Any, list[int]]]:
    """The fitted transformers of a ColumnTransformer, with their column indices."""
    places = transformer._transformer_to_input_indices
    for name, one, _ in transformer.transformers_:
        if len(places[name]) and not (isinstance(one, str) and one == "drop"):
            yield one, [int(place) for place in places[name]]


def _columns(transformer: Any, X: Node, numbers: list[int]) -> Node:
    """The transformation of some columns, text or numeric."""
    if not set(numbers) & set(X.graph.levels):
        return transform_rows(transformer, X.columns(numbers))
    filled: dict[int, str] = {}
    for step in steps_of(transformer):
        kind = type(step).__name__
        if kind == "SimpleImputer" and not step.add_indicator:
            filled |= {
                number: _level_text(one) for number, one in zip(numbers, step.statistics_, strict=True)
            }
        elif kind == "OneHotEncoder" and step is steps_of(transformer)[-1]:
            hot = zip(numbers, _hot_categories(step), strict=True)
            return X.graph.join(
                [_hot_texts(X, number, *one, filled.get(number, "")) for number, one in hot if one[1].any()]
            )
        else:
            raise refusal(f"Pipeline with a {kind} of texts")
    raise refusal("Pipeline whose texts are not coded by a OneHotEncoder")


def _hot_texts(X: Node, number: int, known: NDArray, kept: Bool[NDArray, "l"], missing: str) -> Node:
    texts = [_level_text(level) for level in known]
    rows = dict(zip(texts, np.eye(len(texts))[:, kept], strict=True))
    nothing = np.zeros(int(kept.sum()))
    return of_level(X, number, rows | {"": rows.get(missing, nothing)}, nothing)


def _hot_categories(encoder: Any) -> Iterator[tuple[NDArray, Bool[NDArray, "l"]]]:
    """The categories of each column, and which of them get a column of their own."""
    if encoder._infrequent_enabled:
        raise refusal("Pipeline with a OneHotEncoder of infrequent categories")
    for number, known in enumerate(encoder.categories_):
        kept = np.ones(len(known), bool)
        if encoder.drop_idx_ is not None and encoder.drop_idx_[number] is not None:
            kept[encoder.drop_idx_[number]] = False
        yield known, kept


def _level_text(value: Any) -> str:
    return "" if is_missing(value) else str(value)


def _fills_all(imputer: Any) -> bool:
    """Whether the step treats NaN as missing and has a fill value for every column."""
    marks_nan = isinstance(imputer.missing_values, float) and np.isnan(imputer.missing_values)
    return bool(marks_nan and not np.isnan(np.asarray(imputer.statistics_, np.float64)).any())
