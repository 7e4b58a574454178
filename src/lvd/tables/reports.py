"""What fitting, predicting and evaluating on a table report, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lvd._typing import Bool, Float, Int, NDArray
from lvd._validation import InputError
from lvd.intervals import Region, binomial_band, in_box
from lvd.metrics import (
    GroupCoverage,
    PitHistogram,
    Summary,
    feature_stratified_coverage,
    group_coverage,
    pit_histogram,
    summary,
)
from lvd.tables.column_coding import example_of_formatted
from lvd.tables.column_values import read_from_signs, to_numbers, to_texts
from lvd.tables.dates import CYCLES
from lvd.tables.inputs import Prepared
from lvd.tables.verdict import JudgedRows, Verdict, judge
from lvd.tables.writing import Unseen

MAX_VALUES = 20
"""A numeric column with more distinct values than this is grouped in ten equally full bins."""


@dataclass(frozen=True)
class LevelGroups:
    """Coverage group by group at one level."""

    confidence_level: float
    groups: tuple[GroupCoverage, ...]


@dataclass(frozen=True)
class DistributionReport:
    """How good the whole distributions are, on the known ones among the first rows: the mean CRPS, in units of the
    target, and the histogram of probability integral transforms."""

    crps: float
    pit: PitHistogram


@dataclass(frozen=True)
class TargetReport:
    """The metrics of one target on the `n_rows` rows that have it, the verdict at each level, the coverage by
    group where that was asked for, and what there is to say of whole distributions; None where no row is known."""

    target: str
    n_rows: int
    summary: Summary
    verdicts: tuple[Verdict, ...]
    by: tuple[LevelGroups, ...] = ()
    distribution: DistributionReport | None = None


@dataclass(frozen=True)
class Together:
    """How often all targets of a row are covered at once, with the exact 95% band, over the rows that have them."""

    confidence_level: float
    n_rows: int
    coverage: float
    lower: float
    upper: float


@dataclass(frozen=True)
class FitReport:
    """How a table was used, and the metrics on its test rows, which no step has seen.

    `n_repeated` counts the calibration and test rows whose inputs a training row also has, `n_duplicates` the rows
    that repeat the case of an earlier row, which are in the same part with it, `n_skipped` the rows left out
    because the model cannot read them, `n_unlabelled` those without a target, `mixtures` are the numbers of rows
    with a salt or a mixture, and `n_unknown` the test rows that
    no training row is like, or that hold a level of `unseen`. `left_out` names the columns that are neither inputs
    nor targets, `useless` says which of them are constant or identifiers, `formatted` those whose categories look
    like numbers, each with one of them, `pooled` how many levels of a column are frequent and how many rare,
    `leaks` the columns that alone explain almost all of a target's variance, `dated` those whose dates are an input
    as such and not only by what recurs, `groups` is the column of groups, and
    `median_errors` are the mean errors of a model that predicts the training rows' median for every row. `together`
    is about all targets at once, where there are several. A `case` is what rows with the same inputs are rows of.
    `read_from` names the columns whose numbers are written with signs, each with one of them, and `ordered` those
    of dates that begin with the day or the month. `n_spared` counts the calibration rows beyond the most that are
    to calibrate.
    """

    n_train: int
    n_calib: int
    n_test: int
    n_repeated: int
    n_duplicates: int
    n_skipped: int
    n_unlabelled: int
    mixtures: tuple[int, ...]
    n_features: int
    inputs: tuple[str, ...]
    left_out: tuple[str, ...]
    useless: dict[str, str]
    formatted: dict[str, str]
    pooled: dict[str, tuple[int, int]]
    leaks: dict[str, float]
    groups: str | None
    split: str
    median_errors: list[float]
    n_unknown: int
    unseen: Unseen
    targets: tuple[TargetReport, ...]
    together: tuple[Together, ...] = ()
    case: str = "row"
    dated: tuple[str, ...] = ()
    read_from: dict[str, str] = field(default_factory=dict)
    ordered: dict[str, str] = field(default_factory=dict)
    n_spared: int = 0

    @classmethod
    def of(
        cls,
        table: pa.Table,
        prepared: Prepared,
        tested: EvaluateReport,
        *,
        n_repeated: int,
        leaks: dict[str, float],
        groups: str | None,
        split: str,
        cells: pa.Table,
    ) -> FitReport:
        """That of a model of the `prepared` rows of this table, of which it was `tested` on the test rows."""
        encoder, y, (train, calib, test) = prepared.encoder, prepared.y, prepared.parts
        columns, used = encoder.columns, {*encoder.inputs, *encoder.targets}
        median_errors = np.abs(y[test] - np.nanmedian(y[train], axis=0)).reshape(len(test), -1)
        return cls(
            n_train=len(train),
            n_calib=len(calib),
            n_test=len(test),
            n_repeated=n_repeated,
            n_duplicates=prepared.n_duplicates,
            n_skipped=table.num_rows - len(y) - prepared.n_unlabelled,
            n_unlabelled=prepared.n_unlabelled,
            mixtures=prepared.mixtures,
            n_features=len(encoder.feature_names),
            inputs=encoder.inputs,
            left_out=tuple(name for name in table.column_names if name not in used),
            useless=prepared.useless,
            formatted={one.name: text for one in columns if (text := example_of_formatted(one.categories))},
            pooled={one.name: (len(one.categories), len(one.rare)) for one in columns if one.rare},
            leaks=leaks,
            groups=groups,
            split=split,
            median_errors=np.nanmean(median_errors, axis=0).tolist(),
            n_unknown=tested.n_unknown,
            unseen=tested.unseen,
            targets=tested.targets,
            together=tested.together,
            case=encoder.case,
            read_from=read_from_signs(cells.select([one for one in cells.column_names if one in used])),
            ordered={one.name: one.order for one in columns if one.order is not None},
            dated=tuple(one.name for one in columns if set(one.parts) - set(CYCLES)),
            n_spared=prepared.n_spared,
        )


@dataclass(frozen=True)
class EvaluateReport:
    """The metrics on `n_rows` rows of a table, and how many others the model cannot read or have no target.

    Of the rows `n_distinct` have inputs and targets of their own: bands and tests count no row twice. `n_repeated`
    have the inputs of a training row, `n_calibrating` are calibration rows, and `n_unknown` are those that no
    training row is like or that hold a level of `unseen`.
    """

    n_rows: int
    n_distinct: int
    n_skipped: int
    n_unlabelled: int
    n_repeated: int
    n_calibrating: int
    n_unknown: int
    unseen: Unseen
    targets: tuple[TargetReport, ...]
    together: tuple[Together, ...] = ()


def hits_together(
    y: Float[NDArray, "n t"], intervals: Float[NDArray, "n 2 l t"], regions: Sequence[Region]
) -> Bool[NDArray, "k l"]:
    """Whether each row that has all targets has them in its region, or else in their intervals, at each level."""
    complete = ~np.isnan(y).any(axis=1)
    if regions:
        return np.stack([region[complete].contains(y[complete]) for region in regions], axis=1)
    levels = range(intervals.shape[2])
    return np.stack([in_box(y[complete], intervals[complete, :, level]) for level in levels], axis=1)


def report_together(
    hits: Bool[NDArray, "k l"], ids: Int[NDArray, "k t"], levels: Float[NDArray, "l"]
) -> tuple[Together, ...]:
    """The joint coverage at each level, of rows with these ids; none where no row has all targets."""
    if not len(hits):
        return ()
    n = len(np.unique(ids, axis=0))
    lower, upper = binomial_band(hits.sum(axis=0) * n / len(hits), np.full(len(levels), n))
    columns = (levels, hits.mean(axis=0), lower, upper)
    return tuple(
        Together(level, len(hits), *figures)
        for level, *figures in zip(*(column.tolist() for column in columns), strict=True)
    )


def report_target(
    target: str,
    rows: JudgedRows,
    intervals: Float[NDArray, "n 2 l"],
    *,
    levels: Float[NDArray, "l"],
    groups: pa.ChunkedArray | None = None,
    distribution: DistributionReport | None = None,
) -> TargetReport:
    """The metrics of one target at all levels, and by the values of a column of `groups`."""
    verdicts, by, values = [], [], None if groups is None else _group_values(groups)
    for level, one in zip(levels.tolist(), intervals.transpose(2, 0, 1), strict=True):
        verdicts.append(judge(rows, one, level))
        if values is not None:
            many = values.dtype.kind == "f" and len(np.unique(values)) > MAX_VALUES
            measure = feature_stratified_coverage if many else group_coverage
            by.append(LevelGroups(level, measure(rows.y, one, values, level, row_ids=rows.row_ids)))
    measured = summary(rows.y, rows.y_pred, intervals, levels)
    return TargetReport(target, len(rows.y), measured, tuple(verdicts), tuple(by), distribution)


def report_distribution(
    crps: Float[NDArray, "k"], pit: Float[NDArray, "k"], n_calib: int
) -> DistributionReport | None:
    """What :meth:`TableModel.score_distributions` found for one target, where it found anything."""
    known = ~np.isnan(crps)
    if not known.any():
        return None
    return DistributionReport(float(crps[known].mean()), pit_histogram(pit[known], n_calib=n_calib))


def _group_values(values: pa.ChunkedArray) -> NDArray:
    """The column as numbers if all of it is numbers, else as texts."""
    with suppress(InputError):
        numbers = to_numbers(values)
        if not np.isnan(numbers).any():
            return numbers
    return np.array([text or "missing" for text in to_texts(values).to_pylist()])
