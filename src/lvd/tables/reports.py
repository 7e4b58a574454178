"""The results of fitting, predicting and evaluating on a table, as plain data.

The verdict says in one sentence whether the intervals hold, and whether they are better than one width for all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from lvd._typing import Bool, Float, Int, NDArray
from lvd._validation import InputError
from lvd.calibration import GlobalConformal
from lvd.intervals import Region, covered, from_radius, in_box
from lvd.metrics import (
    GroupCoverage,
    PitHistogram,
    Summary,
    binomial_band,
    excess_risk_of_target_coverage,
    feature_stratified_coverage,
    group_coverage,
    pit_histogram,
    summary,
)
from lvd.metrics.interval_metrics import widened_range, winkler_scores
from lvd.tables.column_coding import example_of_formatted
from lvd.tables.column_values import read_from_signs, to_numbers, to_texts
from lvd.tables.dates import CYCLES
from lvd.tables.inputs import Prepared
from lvd.tables.table_encoder import Unseen

MAX_VALUES = 20
"""A numeric column with more distinct values than this is grouped into ten bins of equal counts."""


@dataclass(frozen=True)
class LevelGroups:
    """Coverage by group at one level."""

    confidence_level: float
    groups: tuple[GroupCoverage, ...]


@dataclass(frozen=True)
class DistributionReport:
    """The quality of whole distributions, over the known rows among the first ones: the mean CRPS, in units of
    the target, and the histogram of probability integral transforms."""

    crps: float
    pit: PitHistogram


@dataclass(frozen=True)
class TargetReport:
    """The metrics of one target on the `n_rows` rows that have it, the verdict at each level, the coverage by
    group if requested, and the quality of whole distributions; None if no row is known."""

    target: str
    n_rows: int
    summary: Summary
    verdicts: tuple[Verdict, ...]
    by: tuple[LevelGroups, ...] = ()
    distribution: DistributionReport | None = None


@dataclass(frozen=True)
class Together:
    """How often all targets of a row are covered together, with the exact 95% band, over rows that have them
    all."""

    confidence_level: float
    n_rows: int
    coverage: float
    lower: float
    upper: float


@dataclass(frozen=True)
class FitReport:
    """How a table was used, and the metrics on its test rows, which no step has seen.

    `n_repeated` counts calibration and test rows with the inputs of a training row, `n_duplicates` rows that
    repeat the case of an earlier row, which share its part, `n_skipped` rows that the model cannot read,
    `n_unlabelled` rows without a target, and `n_unknown` test rows that resemble no training row or hold a
    level in `unseen`; `mixtures` are the numbers of rows with a salt or mixture. `left_out` names the columns
    that are neither inputs nor targets, `useless` which of them are constant or identifiers, `formatted` those
    whose categories look like numbers, each with an example, `pooled` how many levels of a column are frequent
    and rare, `leaks` the columns that alone explain almost all of a target's variance, and `dated` those whose
    dates are inputs as such, beyond what recurs. `groups` is the column of groups, and `median_errors` are the
    mean errors of predicting the training median for every row. `together` covers all targets jointly, if there
    are several. A `case` names what rows with equal inputs have in common. `read_from` names the columns whose
    numbers are written with signs, each with an example, and `ordered` those whose dates begin with the day or
    the month. `n_spared` counts the calibration rows beyond `max_calibration_rows`.
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
        """The report of a model fitted to the `prepared` rows of this table and `tested` on its test rows."""
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
    """The metrics on `n_rows` rows of a table, and how many others are unreadable or have no target.

    Of the rows, `n_distinct` differ in inputs and targets: bands and tests count no row twice. `n_repeated`
    have the inputs of a training row, `n_calibrating` are calibration rows, and `n_unknown` resemble no
    training row or hold a level in `unseen`.
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
    """The joint coverage at each level, over rows with these ids; none if no row has all targets."""
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
    """The result of :meth:`TableModel.score_distributions` for one target, if there is one."""
    known = ~np.isnan(crps)
    if not known.any():
        return None
    return DistributionReport(float(crps[known].mean()), pit_histogram(pit[known], n_calib=n_calib))


def _group_values(values: pa.ChunkedArray) -> NDArray:
    """The column as numbers if it is all numbers, else as texts."""
    with suppress(InputError):
        numbers = to_numbers(values)
        if not np.isnan(numbers).any():
            return numbers
    return np.array([text or "missing" for text in to_texts(values).to_pylist()])


Finding: TypeAlias = Literal[
    "holds, and tells rows apart",
    "holds, but no better than one width for all",
    "too many unknown",
    "cannot tell",
    "does not hold",
]

LARGEST_SHORTFALL = 0.05
MOST_UNKNOWN = 0.05
"""Above this share of unknown rows or infinite intervals, the verdict is about these."""
BY_CHANCE = 1.645
"""How many standard errors below split conformal the interval score must be: a one-sided test at 5%."""
ERT_ROWS, MOST_ERT_ROWS = 600, 20_000
"""The fewest rows for the excess risk of the target coverage, and the most it uses, the first ones."""
ERT_NOISE = 0.01
"""An excess risk above split conformal's by no more than this may be chance."""


@dataclass(frozen=True, eq=False)
class JudgedRows:
    """Rows with their true values for one target, and what the comparison with split conformal needs.

    `features` distinguish rows when coverage is estimated row by row; the first :data:`MOST_ERT_ROWS` suffice.
    `y_range` is the range of y, infinite if unknown. Rows with equal `row_ids` are copies of one row; without
    ids all rows are distinct.
    """

    y: Float[NDArray, "n"]
    y_pred: Float[NDArray, "n"]
    known: Bool[NDArray, "n"]
    features: Float[NDArray, "k p"]
    y_calib: Float[NDArray, "m"]
    residuals_calib: Float[NDArray, "m"]
    y_range: tuple[float, float]
    row_ids: Int[NDArray, "n"] | None = None

    @cached_property
    def distinct(self) -> Int[NDArray, "d"]:
        """The first row of each id."""
        if self.row_ids is None:
            return np.arange(len(self.y))
        return np.sort(np.unique(self.row_ids, return_index=True)[1])

    @property
    def scored_range(self) -> tuple[float, float]:
        """What replaces an infinite interval: the calibration rows' range of y, a tenth wider on each side."""
        return widened_range(self.y_calib)


@dataclass(frozen=True)
class Verdict:
    """What follows from the coverage, with its exact 95% band, and from the comparison with split conformal.

    `unknown` is the share of rows that are unknown or have an infinite interval. Interval scores count infinite
    intervals as the range of y. `ert` is the excess risk of the target coverage, None with fewer than 600 rows.
    """

    kind: Finding
    sentence: str
    confidence_level: float
    coverage: float
    lower: float
    upper: float
    unknown: float
    interval_score: float
    split_interval_score: float
    ert: float | None
    split_ert: float | None

    @property
    def tone(self) -> str:
        """``"good"``, ``"warn"`` or ``"bad"``."""
        tones = {"holds, and tells rows apart": "good", "does not hold": "bad"}
        return tones.get(self.kind, "warn")


class Comparison(NamedTuple):
    """The interval score and, with enough rows, the excess risk, each compared with split conformal's."""

    score: float
    split_score: float
    ert: float | None
    split_ert: float | None
    is_better: bool

    @property
    def words(self) -> str:
        """The comparison as the end of a sentence."""
        ratio, why = f"{self.score / self.split_score:.3g} times" if self.split_score else "not below", ""
        if self.score < self.split_score and not self.is_better:
            why = ", which may be chance"
            if self.ert is not None and self.split_ert is not None and self.ert > self.split_ert + ERT_NOISE:
                why = ", but coverage differs more from row to row than with one width"
        return f"their interval score is {ratio} that of one width for all rows{why}"


def tolerated(confidence_level: float) -> float:
    """The lowest coverage that still passes: 5 points below, or half of the distance to 0 or 1, if that is less.

    At level 99% it is 98.5%: one and a half times the promised errors.
    """
    return confidence_level - min(LARGEST_SHORTFALL, confidence_level / 2.0, (1.0 - confidence_level) / 2.0)


def says_nothing(intervals: Float[NDArray, "n 2 *l"], y_range: tuple[float, float]) -> Bool[NDArray, "n *l"]:
    """Whether an interval is the whole range of y: infinite, or clipped to the range."""
    bottom, top = y_range
    limited: NDArray = (intervals[:, 0] > bottom) | (intervals[:, 1] < top)
    return ~limited


def split_intervals(rows: JudgedRows, levels: Float[NDArray, "l"]) -> Float[NDArray, "n 2 l"]:
    """Intervals with one radius for all rows, the finite-sample quantile of the calibration errors."""
    conformal = GlobalConformal().conformalize(rows.residuals_calib, np.abs(rows.residuals_calib))
    return np.clip(from_radius(rows.y_pred, conformal.radius(rows.y_pred, levels)), *rows.y_range)


def judge(rows: JudgedRows, intervals: Float[NDArray, "n 2"], confidence_level: float) -> Verdict:
    """The verdict on the intervals at one level.

    Does not hold: the coverage band lies below the level. Too many unknown: more than 5% of rows are unknown or
    have an infinite interval. Cannot tell: the band does not exclude coverage below `tolerated`. Otherwise the
    intervals hold and are compared with one width for all. Shares and means are over all rows; sampling error
    is computed from the distinct ones.
    """
    n, hits, n_distinct = len(rows.y), int(covered(rows.y, intervals).sum()), len(rows.distinct)
    lower, upper = (float(end) for end in binomial_band(hits * n_distinct / n, n_distinct))
    unknown = float((~rows.known | says_nothing(intervals, rows.y_range)).mean())
    compared, enough = compare_with_split(rows, intervals, confidence_level), tolerated(confidence_level)
    contain = (
        f"at level {percent(confidence_level)} they contain {percent(hits / n, 1)} of {n:,} true values "
        f"{'' if n_distinct == n else f'in {n_distinct:,} different rows '}"
        f"(exact 95% band {percent(lower, 1)} to {percent(upper, 1)})"
    )
    kind: Finding
    if upper < confidence_level:
        kind = "does not hold"
        sentence = f"The intervals do not hold: {contain}, and chance does not explain so few."
    elif unknown > MOST_UNKNOWN:
        kind = "too many unknown"
        sentence = (
            f"Too many unknown: {percent(unknown, 1)} of {n:,} rows are unlike all training rows or have an "
            f"infinite interval, which says nothing; {contain}."
        )
    elif lower < enough:
        kind = "cannot tell"
        sentence = (
            f"These rows cannot tell whether the intervals hold: {contain}, which does not exclude a "
            f"coverage below {percent(enough)}; that takes about {rows_to_tell(confidence_level):,} rows where the "
            "level is just met."
        )
    elif compared.is_better:
        kind = "holds, and tells rows apart"
        sentence = f"The intervals hold, and tell rows apart: {contain}, and {compared.words}."
    else:
        kind = "holds, but no better than one width for all"
        sentence = (
            f"The intervals hold, but are no better than one width for all: {contain}, and {compared.words}."
        )
    scores = compared.score, compared.split_score, compared.ert, compared.split_ert
    return Verdict(kind, sentence, confidence_level, hits / n, lower, upper, unknown, *scores)


def compare_with_split(
    rows: JudgedRows, intervals: Float[NDArray, "n 2"], confidence_level: float
) -> Comparison:
    """Better means a significantly lower interval score, and no larger excess risk beyond its noise."""
    split = split_intervals(rows, np.array([confidence_level]))[:, :, 0]
    own, others = (
        winkler_scores(rows.y, one, confidence_level, y_range=rows.scored_range) for one in (intervals, split)
    )
    gains = others - own
    n_distinct = len(rows.distinct)
    error = float(gains.std(ddof=1)) / math.sqrt(n_distinct) if n_distinct > 1 else math.inf
    is_better = float(gains.mean()) > BY_CHANCE * error
    ert = split_ert = None
    if n_distinct >= ERT_ROWS:
        # It would learn the answers from copies in the other folds.
        some = rows.distinct[rows.distinct < MOST_ERT_ROWS]
        ert, split_ert = (
            excess_risk_of_target_coverage(
                rows.features[some], rows.y[some], one[some], confidence_level
            ).total
            for one in (intervals, split)
        )
        is_better = is_better and ert <= split_ert + ERT_NOISE
    return Comparison(float(own.mean()), float(others.mean()), ert, split_ert, is_better)


def rows_to_tell(confidence_level: float) -> int:
    """About how many rows, covered exactly at the level, give a band that excludes less than `tolerated`."""
    n = np.unique(np.geomspace(10, 1e8, 400).astype(np.int64))
    lower, _ = binomial_band(np.round(confidence_level * n), n)
    enough = int(n[np.flatnonzero(lower < tolerated(confidence_level))[-1] + 1])
    step = 10 ** (len(str(enough)) - 2)
    return -(-enough // step) * step


def percent(share: float, decimals: int | None = None) -> str:
    """``90%`` for 0.9; with decimals ``90.0%``. Values below 1 never round to 100%, nor values above 0 to 0%."""
    if decimals is None:
        return f"{100.0 * share:.10g}%"
    text = f"{100.0 * share:.{decimals}f}%"
    if share < 1.0 and text == f"{100:.{decimals}f}%":
        return f">{100.0 - 10.0**-decimals:.{decimals}f}%"
    if share > 0.0 and text == f"{0:.{decimals}f}%":
        return f"<{10.0**-decimals:.{decimals}f}%"
    return text
