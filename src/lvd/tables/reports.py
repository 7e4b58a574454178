"""What fitting, predicting and evaluating on a table report, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lvd._typing import Float, NDArray
from lvd._validation import InputError
from lvd.metrics import GroupCoverage, Summary, feature_stratified_coverage, group_coverage, summary
from lvd.tables.column_values import to_numbers, to_texts
from lvd.tables.verdict import JudgedRows, Verdict, judge

MAX_VALUES = 20
"""A numeric column with more distinct values than this is grouped in ten equally full bins."""


@dataclass(frozen=True)
class LevelGroups:
    """Coverage group by group at one level."""

    confidence_level: float
    groups: tuple[GroupCoverage, ...]


@dataclass(frozen=True)
class TargetReport:
    """The metrics of one target, the verdict at each level, and the coverage by group where that was asked for."""

    target: str
    summary: Summary
    verdicts: tuple[Verdict, ...]
    by: tuple[LevelGroups, ...] = ()


@dataclass(frozen=True)
class FitReport:
    """How a table was used, and the metrics on its test rows, which no step has seen.

    `n_repeated` counts the calibration and test rows whose inputs a training row also has, `n_duplicates` the rows
    that repeat the case of an earlier row, which are in the same part with it, `n_skipped` the rows left out
    because the model cannot read them, and `n_unknown` the test rows that no training row is near. `left_out`
    names the columns that are neither inputs nor targets, `formatted` those whose categories look like numbers,
    each with one of them, and `groups` is the column of groups.
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
    groups: str | None
    n_unknown: int
    targets: tuple[TargetReport, ...]


@dataclass(frozen=True)
class EvaluateReport:
    """The metrics on `n_rows` rows of a table, and how many others the model cannot read.

    `n_repeated` counts the rows that repeat a training row, `n_unknown` those that no training row is near, and
    `n_unseen_groups` those of a group that no calibration row has.
    """

    n_rows: int
    n_skipped: int
    n_repeated: int
    n_unknown: int
    n_unseen_groups: int
    targets: tuple[TargetReport, ...]


def report_target(
    target: str,
    rows: JudgedRows,
    intervals: Float[NDArray, "n 2 l"],
    *,
    levels: Float[NDArray, "l"],
    groups: pa.ChunkedArray | None = None,
) -> TargetReport:
    """The metrics of one target at all levels, and by the values of a column of `groups`."""
    by, y = [], rows.y
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
    verdicts = [
        judge(rows, one, level)
        for level, one in zip(levels.tolist(), intervals.transpose(2, 0, 1), strict=True)
    ]
    return TargetReport(target, summary(y, rows.y_pred, intervals, levels), tuple(verdicts), tuple(by))


def _all_numbers(values: pa.ChunkedArray) -> Float[NDArray, "n"] | None:
    """The column as numbers if all of it is numbers."""
    try:
        array = to_numbers(values)
    except InputError:
        return None
    return None if np.isnan(array).any() else array
