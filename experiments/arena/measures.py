"""What the arena measures of a contestant's intervals, over all test rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from experiments.arena.split import ArenaSplit
from experiments.paper.result_store import processor_name
from lvd import metrics
from lvd._typing import Bool, Float, NDArray
from lvd.intervals import covered, widths
from lvd.metrics.interval_metrics import widened_range

ERT_ROWS = 600
"""With fewer test rows a classifier is not informative."""
FIFTHS = 5


@dataclass(frozen=True)
class ArenaResult:
    """A contestant on one split at one level; `error` is the reason for a failure, and then figures are NaN.

    For the width and the Winkler score intervals are clipped to the range of the training y widened by a tenth,
    so that an infinite one counts as that range; `median_width` is not clipped. `groups` holds "covered/rows"
    for fifths of the prediction, then of a predicted error. `conditional_gap` is the mean of |P(covered | x) -
    level| and `floor` the Winkler score of the best interval around the same prediction, if the truth is known.
    `outside_flagged` is the share of out-of-distribution rows with an infinite interval or flagged as unknown,
    and `outside_coverage` the coverage of the others. `processor` is recorded with every result, since a killed
    command leaves no record of itself.
    """

    table: str
    model: str
    seed: int
    level: float
    method: str
    rows: int = 0
    finite: float = math.nan
    known: float = math.nan
    coverage: float = math.nan
    tail_coverage: float = math.nan
    worst_slab: float = math.nan
    ert: float = math.nan
    ert_under: float = math.nan
    ert_over: float = math.nan
    groups: str = ""
    width: float = math.nan
    median_width: float = math.nan
    winkler: float = math.nan
    auroc: float = math.nan
    width_error: float = math.nan
    conditional_gap: float = math.nan
    floor: float = math.nan
    fit_seconds: float = math.nan
    predict_seconds: float = math.nan
    error: str = ""
    processor: str = ""
    outside_rows: int = 0
    outside_flagged: float = math.nan
    outside_coverage: float = math.nan


def measure(
    split: ArenaSplit,
    level: float,
    method: str,
    intervals: Float[NDArray, "n 2"],
    *,
    known: float,
    predicted_error: Float[NDArray, "n"],
    seconds: tuple[float, float],
) -> ArenaResult:
    """All measures; `intervals` may cover only the first test rows."""
    rows = slice(len(intervals))
    X, y, y_pred = split.X_test[rows], split.y_test[rows], split.predict(split.X_test)[rows]
    scaled = (X - X.mean(0)) / np.maximum(X.std(0), 1e-12)
    y_range = widened_range(split.y_train)
    cut = np.clip(intervals, *y_range)
    where_known: dict[str, Any] = {}
    if len(y) >= ERT_ROWS:
        ert = metrics.excess_risk_of_target_coverage(scaled, y, intervals, level)
        where_known |= {"ert": ert.total, "ert_under": ert.under, "ert_over": ert.over}
    if split.table.truth is not None:
        truth = split.table.truth.rows(split.test[rows])
        best = np.clip(truth.best_around(y_pred, level), *y_range)
        gap = float(np.abs(truth.coverage(intervals) - level).mean())
        where_known |= {"conditional_gap": gap, "floor": metrics.winkler_score(y, best, level)}
    return ArenaResult(
        *split.place,
        level,
        method,
        rows=len(y),
        finite=metrics.finite_fraction(intervals),
        known=known,
        coverage=metrics.marginal_coverage_rate(y, intervals),
        tail_coverage=metrics.tail_coverage_rate(y, intervals),
        worst_slab=metrics.worst_slab_coverage(scaled, y, intervals, random_state=split.seed).coverage,
        groups=_group_counts(covered(y, intervals), (y_pred, predicted_error)),
        width=float(widths(cut).mean()),
        median_width=float(np.median(widths(intervals))),
        winkler=metrics.winkler_score(y, cut, level),
        auroc=metrics.residual_auroc(y, y_pred, intervals),
        width_error=metrics.width_error_correlation(y, y_pred, intervals),
        fit_seconds=seconds[0],
        predict_seconds=seconds[1],
        processor=processor_name(),
        **where_known,
    )


def measure_outside(
    result: ArenaResult,
    y: Float[NDArray, "n"],
    intervals: Float[NDArray, "n 2"],
    known: Bool[NDArray, "n"],
) -> ArenaResult:
    """The result with the figures for out-of-distribution rows."""
    flagged = ~known | ~np.isfinite(intervals).all(axis=1)
    hits = covered(y, intervals)[~flagged]
    return replace(
        result,
        outside_rows=len(y),
        outside_flagged=float(flagged.mean()),
        outside_coverage=float(hits.mean()) if len(hits) else math.nan,
    )


def lowest_pooled_group(results: Sequence[Any]) -> float:
    """The lowest coverage among the `groups`, each pooled over these results."""
    counts = [[list(map(int, pair.split("/"))) for pair in one.groups.split()] for one in results]
    hits, rows = np.sum(counts, axis=0).T
    return float((hits / rows).min())


def _group_counts(hits: NDArray, rankings: tuple[Float[NDArray, "n"], ...]) -> str:
    texts = []
    for values in rankings:
        ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable")
        fifth = ranks * FIFTHS // len(values)
        texts += [f"{hits[fifth == number].sum()}/{(fifth == number).sum()}" for number in range(FIFTHS)]
    return " ".join(texts)
