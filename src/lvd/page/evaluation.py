"""A model on a table of true values: all that the page is computed from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from lvd._typing import Bool, Float, Int, NDArray
from lvd._validation import InputError
from lvd.regions import Region
from lvd.tables.table_encoder import labelled_rows, read_targets
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


def evaluate_rows(
    model: TableModel, table: pa.Table, target: str, confidence_level: float | None = None
) -> Evaluated:
    """Predict every row of the table at the page's level and at those of the calibration curve."""
    place, level = model.find_target(target), float(model.resolve_levels(confidence_level)[0])
    levels = np.unique([*CURVE_LEVELS, level])
    numbers = np.flatnonzero(model.encoder.usable(table) & labelled_rows(table, [target])) + 1
    if not len(numbers):
        raise InputError(f"all {table.num_rows} rows are left out, so there is nothing to report on")
    rows = table.take(numbers - 1)
    X, predicted = model.infer(rows, levels, numbers=numbers)
    return Evaluated(
        target=target,
        confidence_level=level,
        levels=levels,
        row_numbers=numbers,
        X=X,
        feature_names=tuple(model.encoder.feature_names),
        embeddings=predicted.embeddings,
        y=read_targets(rows, [target]),
        y_pred=predicted.y_pred[:, place],
        all_intervals=predicted.intervals[..., place],
        n_effective=predicted.n_effective[:, place],
        known=predicted.known,
        n_repeated=model.count_training_rows(X),
        y_range=model.y_range,
        region=predicted.regions[int(np.searchsorted(levels, level))] if predicted.regions else None,
    )
