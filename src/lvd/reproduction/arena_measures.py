"""What the arena measures of a contestant's intervals on the test rows; all rows count."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lvd import metrics
from lvd._typing import Bool, Float, Int, NDArray
from lvd.intervals import covered
from lvd.metrics.width import widened_range
from lvd.reproduction.arena_split import ArenaSplit
from lvd.reproduction.result_store import processor_name

ERT_ROWS = 600
"""With fewer test rows a classifier finds nothing."""
FIFTHS = 5


@dataclass(frozen=True)
class ArenaResult:
    """A contestant on one split at one level; `error` says why it could not run, and then figures are NaN.

    For width and Winkler's score intervals are cut to the range of the training y widened by a tenth, so that an
    infinite one counts as that range; `median_width` is uncut. `groups` holds "covered/rows" for the fifths of the
    prediction, then of a predicted error. `conditional_gap` is the mean of |P(covered | x) - level| and `floor` the
    Winkler score of the best interval around the same prediction, where the truth is known. `outside_flagged` is
    the share of rows from outside that get no finite interval or are called unknown, and `outside_coverage` the
    coverage of the others. `processor` is noted with every result, as a command that was killed leaves no record of
    itself.
    """

    table: str
    model: str
    seed: int
    level: float
    method: str
    rows: int
    finite: float
    known: float
    coverage: float
    tail_coverage: float
    worst_slab: float
    ert: float
    ert_under: float
    ert_over: float
    groups: str
    width: float
    median_width: float
    winkler: float
    auroc: float
    width_error: float
    conditional_gap: float
    floor: float
    fit_seconds: float
    predict_seconds: float
    error: str = ""
    processor: str = ""
    outside_rows: int = 0
    outside_flagged: float = math.nan
    outside_coverage: float = math.nan


def failed(split: ArenaSplit, level: float, method: str, error: str) -> ArenaResult:
    """The record of a contestant that could not run."""
    nan = math.nan
    return ArenaResult(
        split.table.name, split.model, split.seed, level, method, 0, nan, nan, nan, nan, nan, nan, nan, nan, "",
        nan, nan, nan, nan, nan, nan, nan, nan, nan, error, processor_name(),
    )  # fmt: skip


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
    """All measures; `intervals` may be those of the first test rows only."""
    rows = slice(len(intervals))
    X, y, y_pred = split.X_test[rows], split.y_test[rows], split.predict(split.X_test)[rows]
    scaled = (X - X.mean(0)) / np.maximum(X.std(0), 1e-12)
    cut = np.clip(intervals, *widened_range(split.y_train))
    ert = (
        metrics.excess_risk_of_target_coverage(scaled, y, intervals, level)
        if len(y) >= ERT_ROWS
        else metrics.TargetCoverageRisk(math.nan, math.nan, math.nan)
    )
    truth = split.table.truth and split.table.truth.rows(split.test[rows])
    gap = floor = math.nan
    if truth is not None:
        gap = float(np.abs(truth.coverage(intervals) - level).mean())
        floor = metrics.winkler_score(
            y, np.clip(truth.best_around(y_pred, level), *widened_range(split.y_train)), level
        )
    return ArenaResult(
        table=split.table.name,
        model=split.model,
        seed=split.seed,
        level=level,
        method=method,
        rows=len(y),
        finite=metrics.finite_fraction(intervals),
        known=known,
        coverage=metrics.marginal_coverage_rate(y, intervals),
        tail_coverage=metrics.tail_coverage_rate(y, intervals),
        worst_slab=metrics.worst_slab_coverage(scaled, y, intervals, random_state=split.seed).coverage,
        ert=ert.total,
        ert_under=ert.under,
        ert_over=ert.over,
        groups=_group_counts(covered(y, intervals), (y_pred, predicted_error)),
        width=float((cut[:, 1] - cut[:, 0]).mean()),
        median_width=float(np.median(intervals[:, 1] - intervals[:, 0])),
        winkler=metrics.winkler_score(y, cut, level),
        auroc=metrics.residual_auroc(y, y_pred, intervals),
        width_error=metrics.width_error_correlation(y, y_pred, intervals),
        conditional_gap=gap,
        floor=floor,
        fit_seconds=seconds[0],
        predict_seconds=seconds[1],
        processor=processor_name(),
    )


def measure_outside(
    result: ArenaResult,
    y: Float[NDArray, "n"],
    intervals: Float[NDArray, "n 2"],
    known: Bool[NDArray, "n"],
) -> ArenaResult:
    """The result with what became of the rows from outside."""
    flagged = ~known | ~np.isfinite(intervals).all(axis=1)
    hits = covered(y, intervals)[~flagged]
    return replace(
        result,
        outside_rows=len(y),
        outside_flagged=float(flagged.mean()),
        outside_coverage=float(hits.mean()) if len(hits) else math.nan,
    )


def lowest_pooled_group(results: Sequence[ArenaResult]) -> float:
    """The lowest coverage among the fifths, each pooled over these results."""
    counts = np.sum([_read_counts(one.groups) for one in results], axis=0)
    return float((counts[:, 0] / counts[:, 1]).min())


def _group_counts(hits: NDArray, rankings: tuple[Float[NDArray, "n"], ...]) -> str:
    texts = []
    for values in rankings:
        ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable")
        fifth = ranks * FIFTHS // len(values)
        texts += [f"{hits[fifth == number].sum()}/{(fifth == number).sum()}" for number in range(FIFTHS)]
    return " ".join(texts)


def _read_counts(text: str) -> Int[NDArray, "g 2"]:
    return np.array([[int(number) for number in pair.split("/")] for pair in text.split()])
