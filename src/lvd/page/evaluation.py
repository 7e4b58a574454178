"""A model on a table of true values: all that the page is computed from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from lvd._typing import Bool, Float, Int, NDArray
from lvd._validation import InputError, present_rows
from lvd.regions import Region
from lvd.tables.reports import DistributionReport, report_distribution
from lvd.tables.seen_rows import row_ids
from lvd.tables.table_encoder import labelled_rows, read_targets
from lvd.tables.table_model import MOST_SCORED_ROWS, TableModel
from lvd.tables.verdict import JudgedRows, says_nothing

CURVE_LEVELS = (*(step / 20 for step in range(1, 20)), 0.99)
"""The levels of the calibration curve."""


@dataclass(frozen=True, eq=False)
class Evaluated:
    """Rows of a table with their predictions and intervals, for target number `place` of the model.

    `row_numbers` are those in the whole table, of which `table` holds the rows that can be evaluated. `known` tells
    whether training rows are near, `n_repeated` counts the rows that repeat a training row, and `n_calibrating` the
    calibration rows. `row_ids` tell rows apart. `distribution` is what there is to say of whole distributions, and
    `region` that of all targets together at the page's level, of a joint model.
    """

    model: TableModel
    table: pa.Table
    place: int
    confidence_level: float
    levels: Float[NDArray, "l"]
    row_numbers: Int[NDArray, "n"]
    X: Any
    embeddings: Float[NDArray, "n h"]
    y: Float[NDArray, "n"]
    y_pred: Float[NDArray, "n"]
    all_intervals: Float[NDArray, "n 2 l"]
    n_effective: Float[NDArray, "n"]
    known: Bool[NDArray, "n"]
    row_ids: Int[NDArray, "n"]
    n_repeated: int
    n_calibrating: int
    distribution: DistributionReport | None = None
    region: Region | None = None

    @property
    def target(self) -> str:
        """The column of y."""
        return self.model.encoder.targets[self.place]

    @property
    def at_level(self) -> int:
        """The number of the page's level among all levels."""
        return int(np.searchsorted(self.levels, self.confidence_level))

    @property
    def intervals(self) -> Float[NDArray, "n 2"]:
        """The intervals at the page's level."""
        return self.all_intervals[:, :, self.at_level]

    @cached_property
    def unlimited(self) -> Bool[NDArray, "n"]:
        """Whether the interval at the page's level says nothing."""
        return says_nothing(self.intervals, self.model.y_range)

    @cached_property
    def judged(self) -> JudgedRows:
        """The rows as :func:`judge` takes them."""
        features = self.model.features(self.X, self.embeddings)
        return self.model.judged_rows(
            self.place, self.y, self.y_pred, self.known, features, row_ids=self.row_ids
        )


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
    y = read_targets(rows, [target])
    ids = row_ids(X, y, [place])
    some = slice(MOST_SCORED_ROWS)
    crps, pit = model.score_distributions(rows[some], X[some], y[some, None], predicted.y_pred[some], [place])
    residuals = model.regressor.residuals_calib_[:, place]
    n_calib = len(residuals[present_rows(residuals)])
    return Evaluated(
        model=model,
        table=rows,
        place=place,
        confidence_level=level,
        levels=levels,
        row_numbers=numbers,
        X=X,
        embeddings=predicted.embeddings,
        y=y,
        y_pred=predicted.y_pred[:, place],
        all_intervals=predicted.intervals[..., place],
        n_effective=predicted.n_effective[:, place],
        known=predicted.known,
        row_ids=ids[:, 0],
        n_repeated=model.count_training_rows(X),
        n_calibrating=int(model.calibrating(X, ids).sum()),
        distribution=report_distribution(crps[:, 0], pit[:, 0], n_calib),
        region=predicted.regions[int(np.searchsorted(levels, level))] if predicted.regions else None,
    )
