"""Intervals on a table with true values: everything that the page is computed from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from lvd._typing import Bool, Float, Int, Levels, NDArray
from lvd._validation import InputError
from lvd.intervals import Region
from lvd.methods.conformal import ConformalMethod
from lvd.tables.reports import DistributionReport, JudgedRows, report_distribution, says_nothing
from lvd.tables.splits import row_ids
from lvd.tables.table_encoder import labelled_rows, read_targets
from lvd.tables.table_model import MOST_SCORED_ROWS, TableModel

CURVE_LEVELS = (*(step / 20 for step in range(1, 20)), 0.99)
"""The levels of the calibration curve."""
PROMISED = {
    "local": "near each row",
    "cross": "near each row, measured and not proved",
    "marginal": "on average",
    "marginal 1-2a": "on average, with up to twice the misses",
    "none": "nothing",
}
"""A method's guarantee, as worded in the tables of the page."""


@dataclass(frozen=True)
class Description:
    """What the page says about the method: its name, its guarantee in a word and in full, how its intervals are
    made, which errors give the one width for all rows, and how many rows calibrate, if known."""

    name: str
    promise: str
    in_full: str
    how: str
    one_width: str
    n_calib: int | None


@dataclass(frozen=True, eq=False)
class Evaluated:
    """Rows of a table with their predictions and intervals, for one target, the model's number `place`.

    `model` is set for methods with local weights, which explain the width of an interval; for others, and for
    intervals given as arrays, there are only numbers. `judged` are the rows as :func:`judge` takes them, with
    `feature_names` if the page names the features; `columns` are the table's columns to examine one by one.

    `table` holds the rows that can be evaluated, and `row_numbers` their numbers in the whole table. `n_repeated`
    counts rows that repeat a training row, and `n_calibrating` calibration rows. `distribution` reports on whole
    distributions; `region` is a joint model's region of all targets at the page's level.
    """

    model: TableModel | None
    described: Description
    table: pa.Table
    target: str
    place: int
    columns: tuple[str, ...]
    feature_names: tuple[str, ...]
    confidence_level: float
    levels: Float[NDArray, "l"]
    row_numbers: Int[NDArray, "n"]
    X: Any
    judged: JudgedRows
    all_intervals: Float[NDArray, "n 2 l"]
    n_effective: Float[NDArray, "n"]
    n_repeated: int = 0
    n_calibrating: int = 0
    distribution: DistributionReport | None = None
    region: Region | None = None

    @property
    def y(self) -> Float[NDArray, "n"]:
        """The true values."""
        return self.judged.y

    @property
    def y_pred(self) -> Float[NDArray, "n"]:
        """The predictions."""
        return self.judged.y_pred

    @property
    def known(self) -> Bool[NDArray, "n"]:
        """Which rows are similar to training rows; all if the method does not tell."""
        return self.judged.known

    @property
    def row_ids(self) -> Int[NDArray, "n"]:
        """Digests that identify equal rows."""
        return np.arange(len(self.y)) if self.judged.row_ids is None else self.judged.row_ids

    @property
    def at_level(self) -> int:
        """The index of the page's level among all levels."""
        return int(np.searchsorted(self.levels, self.confidence_level))

    @property
    def intervals(self) -> Float[NDArray, "n 2"]:
        """The intervals at the page's level."""
        return self.all_intervals[:, :, self.at_level]

    @cached_property
    def unlimited(self) -> Bool[NDArray, "n"]:
        """Whether the interval at the page's level is uninformative."""
        return says_nothing(self.intervals, self.judged.y_range)


def evaluate_rows(
    model: TableModel, table: pa.Table, target: str, confidence_level: float | None = None
) -> Evaluated:
    """Predict every row of the table at the page's level and at those of the calibration curve."""
    place, level = model.find_target(target), float(model.resolve_levels(confidence_level)[0])
    levels = np.unique([*levels_of_curve(model.regressor), level])
    numbers = np.flatnonzero(model.encoder.usable(table) & labelled_rows(table, [target])) + 1
    if not len(numbers):
        raise InputError(f"all {table.num_rows} rows are left out, so there is nothing to report on")
    rows = table.take(numbers - 1)
    X, predicted = model.infer(rows, levels, numbers=numbers)
    y = read_targets(rows, [target])
    ids = row_ids(X, y, [place])
    some = slice(MOST_SCORED_ROWS)
    crps, pit = model.score_distributions(rows[some], X[some], y[some, None], predicted.y_pred[some], [place])
    features = model.features(X, predicted.embeddings)
    judged = model.judged_rows(
        place, y, predicted.y_pred[:, place], predicted.known, features, row_ids=ids[:, 0]
    )
    return Evaluated(
        model=model,
        described=describe_local(model),
        table=rows,
        target=target,
        place=place,
        columns=tuple(column.name for column in model.encoder.columns),
        feature_names=tuple(model.encoder.feature_names),
        confidence_level=level,
        levels=levels,
        row_numbers=numbers,
        X=X,
        judged=judged,
        all_intervals=predicted.intervals[..., place],
        n_effective=predicted.n_effective[:, place],
        n_repeated=model.count_training_rows(X),
        n_calibrating=int(model.calibrating(X, ids).sum()),
        distribution=report_distribution(crps[:, 0], pit[:, 0], len(judged.residuals_calib)),
        region=predicted.regions[int(np.searchsorted(levels, level))] if predicted.regions else None,
    )


def levels_of_curve(method: ConformalMethod) -> Sequence[float]:
    """The levels at which coverage is measured: those that the method has learned, or many."""
    only = method.score_.only_levels
    return CURVE_LEVELS if only is None else only.tolist()


def describe_local(model: TableModel) -> Description:
    """What the page says about a method with local weights."""
    local, crossed = model.guarantee == "local", model.regressor.is_crossed
    errors = "the cross-validated errors of the training rows" if crossed else "the calibration errors"
    return Description(
        name="LVD",
        promise=PROMISED["cross" if local and crossed else "local" if local else "marginal"],
        in_full=model.promise,
        how=f"{errors}, weighted by their similarity to the row",
        one_width="from the same calibration errors",
        n_calib=model.regressor.n_calib_,
    )


def evaluate_arrays(
    described: Description,
    table: pa.Table,
    X: Float[NDArray, "n p"] | None,
    *,
    columns: tuple[str, ...],
    target: str,
    y: Float[NDArray, "n"],
    y_pred: Float[NDArray, "n"],
    all_intervals: Float[NDArray, "n 2 l"],
    levels: Levels,
    calibration: tuple[Float[NDArray, "m"], Float[NDArray, "m"]] | None = None,
    y_range: tuple[float, float] = (-np.inf, np.inf),
) -> Evaluated:
    """Intervals of any method at these levels, the first of which is the page's.

    `X` are the rows as numbers. `calibration` holds y and errors of the calibration rows, which give the one
    width for all rows; without them it comes from these very rows, which favours it.
    """
    at, order = np.atleast_1d(np.asarray(levels, np.float64)), np.argsort(levels, axis=None)
    y_calib, residuals = (y, y - y_pred) if calibration is None else calibration
    judged = JudgedRows(
        y=y,
        y_pred=y_pred,
        known=np.ones(len(y), dtype=bool),
        features=y_pred[:, None] if X is None else X,
        y_calib=y_calib,
        residuals_calib=residuals,
        y_range=y_range,
    )
    are_features = X is not None and len(columns) == X.shape[1]
    return Evaluated(
        model=None,
        described=described,
        table=table,
        target=target,
        place=0,
        columns=columns,
        feature_names=columns if are_features else (),
        confidence_level=float(at[0]),
        levels=at[order],
        row_numbers=np.arange(1, len(y) + 1),
        X=judged.features,
        judged=judged,
        all_intervals=all_intervals[:, :, order],
        n_effective=np.full(len(y), np.nan),
    )
