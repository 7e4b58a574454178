"""What fitting, predicting and evaluating on a table report, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lvd._typing import Float, NDArray
from lvd._validation import InputError
from lvd.metrics import GroupCoverage, Summary, feature_stratified_coverage, group_coverage, summary
from lvd.tables.column_values import to_numbers, to_texts

MAX_VALUES = 20
"""A numeric column with more distinct values than this is grouped in ten equally full bins."""


@dataclass(frozen=True)
class LevelGroups:
    """Coverage group by group at one level."""

    confidence_level: float
    groups: tuple[GroupCoverage, ...]


@dataclass(frozen=True)
class TargetReport:
    """The metrics of one target, and its coverage by group where groups were asked for."""

    target: str
    summary: Summary
    by: tuple[LevelGroups, ...] = ()


@dataclass(frozen=True)
class FitReport:
    """How a table was used, and the metrics on its test rows, which no step has seen.

    `n_repeated` counts the calibration and test rows whose inputs a training row also has, `n_duplicates` the rows
    that repeat the case of an earlier row, which are in the same part with it, and `n_skipped` the rows left out
    because the model cannot read them. `left_out` names the columns that are neither inputs nor targets,
    `formatted` those whose categories look like numbers, each with one of them.
    """

    n_train: int
    n_calib: int
    n_test: int
    n_repeated: int
    n_duplicates: int
    n_skipped: int
    n_features: int
    inputs: tuple[str, ...]
    left_out: tuple[str, ...]
    formatted: dict[str, str]
    targets: tuple[TargetReport, ...]


@dataclass(frozen=True)
class EvaluateReport:
    """The metrics on `n_rows` rows of a table, and how many others the model cannot read.

    `n_known` counts the rows that the model knows from training.
    """

    n_rows: int
    n_skipped: int
    n_known: int
    targets: tuple[TargetReport, ...]


def report_target(
    target: str,
    y: Float[NDArray, "n"],
    y_pred: Float[NDArray, "n"],
    intervals: Float[NDArray, "n 2 l"],
    *,
    levels: Float[NDArray, "l"],
    groups: pa.ChunkedArray | None = None,
) -> TargetReport:
    """The metrics of one target at all levels, and by the values of a column of `groups`."""
    by = []
    if groups is not None:
        numbers = _all_numbers(groups)
        for level, one in zip(levels.tolist(), intervals.transpose(2, 0, 1), strict=True):
            if numbers is None:
                texts = [text or "missing" for text in to_texts(groups).to_pylist()]
                strata = group_coverage(y, one, np.array(texts), level)
            elif len(np.unique(numbers)) <= MAX_VALUES:
                strata = group_coverage(y, one, numbers, level)
            else:
                strata = feature_stratified_coverage(y, one, numbers, level)
            by.append(LevelGroups(level, strata))
    return TargetReport(target, summary(y, y_pred, intervals, levels), tuple(by))


def _all_numbers(values: pa.ChunkedArray) -> Float[NDArray, "n"] | None:
    """The column as numbers if all of it is numbers."""
    try:
        array = to_numbers(values)
    except InputError:
        return None
    return None if np.isnan(array).any() else array
