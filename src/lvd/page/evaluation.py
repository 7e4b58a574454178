"""A model on a table of true values: all that the page is computed from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from lvd._typing import Bool, Float, Int, NDArray
from lvd._validation import InputError, check_levels
from lvd.regions import Region
from lvd.tables.table_encoder import labelled_rows
from lvd.tables.table_model import TableModel
from lvd.tables.verdict import says_nothing

CURVE_LEVELS = (*(step / 20 for step in range(1, 20)), 0.99)
"""The levels of the calibration curve."""


@dataclass(frozen=True, eq=False)
class Evaluated:
    """The rows of a table with their predictions and intervals, for one target.

    `row_numbers` are those of the table, in which others may have been left out. `known` tells whether training
    rows are near, `n_repeated` counts the rows that repeat a training row, and `y_range` is what y can be: the
    bounds that clip the intervals, infinite where there are none. `region` is that of all targets together at the
    page's level, of a joint model. Cells that the model reads as they are have no
    features.
    """

    target: str
    confidence_level: float
    levels: Float[NDArray, "l"]
    row_numbers: Int[NDArray, "n"]
    X: Any
    feature_names: tuple[str, ...]
    embeddings: Float[NDArray, "n h"]
    y: Float[NDArray, "n"]
    y_pred: Float[NDArray, "n"]
    all_intervals: Float[NDArray, "n 2 l"]
    n_effective: Float[NDArray, "n"]
    known: Bool[NDArray, "n"]
    n_repeated: int
    y_range: tuple[float, float]
    region: Region | None = None

    @property
    def intervals(self) -> Float[NDArray, "n 2"]:
        """The intervals at the page's level."""
        return self.all_intervals[:, :, int(np.searchsorted(self.levels, self.confidence_level))]

    @cached_property
    def unlimited(self) -> Bool[NDArray, "n"]:
        """Whether the interval at the page's level says nothing."""
        return says_nothing(self.intervals, self.y_range)


def find_target(model: TableModel, target: str) -> int:
    """The place of the page's target among those of the model."""
    known = model.encoder.targets
    if target not in known:
        raise InputError(
            f"target must be what the model was fitted to predict, {', '.join(map(repr, known))}, got {target!r}"
        )
    return known.index(target)


def read_target(model: TableModel, table: pa.Table, target: str) -> Float[NDArray, "n"]:
    """The true values of one target; the table need not have the model's others."""
    return replace(model.encoder, targets=(target,)).target(table)


def evaluate_rows(
    model: TableModel, table: pa.Table, target: str, confidence_level: float | None = None
) -> Evaluated:
    """Predict every row of the table at the page's level and at those of the calibration curve."""
    place, regressor = find_target(model, target), model.regressor
    level = float(
        check_levels(regressor.confidence_level if confidence_level is None else confidence_level)[0]
    )
    levels = np.unique([*CURVE_LEVELS, level])
    usable = model.encoder.usable(table) & labelled_rows(table, [target])
    y = read_target(model, table.filter(pa.array(usable)), target)
    if not len(y):
        raise InputError(f"all {table.num_rows} rows are left out, so there is nothing to report on")
    rows = table.filter(pa.array(usable))
    X, predicted = model.infer(rows, levels, numbers=np.flatnonzero(usable) + 1)
    return Evaluated(
        target=target,
        confidence_level=level,
        levels=levels,
        row_numbers=np.flatnonzero(usable) + 1,
        X=X,
        feature_names=tuple(model.encoder.feature_names),
        embeddings=predicted.embeddings,
        y=y,
        y_pred=predicted.y_pred.reshape(len(X), -1)[:, place],
        all_intervals=predicted.intervals.reshape(len(X), 2, len(levels), -1)[..., place],
        n_effective=predicted.n_effective.reshape(len(X), -1)[:, place],
        known=predicted.known,
        n_repeated=model.count_training_rows(X),
        y_range=model.y_range,
        region=predicted.regions[int(np.searchsorted(levels, level))] if predicted.regions else None,
    )
