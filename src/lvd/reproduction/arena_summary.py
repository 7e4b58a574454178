"""What the arena's results say together: means over tables with bootstrap intervals, ranks, wins and losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata, studentized_range

from lvd._typing import Float, NDArray
from lvd.reproduction.arena_measures import ArenaResult, lowest_pooled_group

REFERENCE = "split"
RESAMPLES = 1000
TEST_SHARE = 5
"""A table has so many times as many rows as are tested."""
TIE = 0.005
"""Scores that differ by less than this share are a tie."""

Results = Sequence[ArenaResult]


@dataclass(frozen=True)
class Standing:
    """One method beside one model at one level, over the tables where it and split conformal ran.

    Width, median width and score are means over seeds, relative to split conformal's of the same table and seeds.
    `score_band` and `ert_band` are 95% bootstrap intervals over tables and the seeds in them. `rank` is the mean
    rank by score among the methods that ran on all tables, NaN for the others. `way` is how much of the way from
    split conformal to the floor it goes where the truth is known.
    """

    method: str
    n_tables: int
    finite: float
    known: float
    coverage: float
    tail_coverage: float
    worst_slab: float
    lowest_group: float
    width: float
    median_width: float
    score: float
    score_band: tuple[float, float]
    ert: float
    ert_under: float
    ert_over: float
    ert_band: tuple[float, float]
    auroc: float
    width_error: float
    way: float
    rank: float
    wins: int
    losses: int
    fit_seconds: float
    predict_seconds: float


class ArenaBoard:
    """The results of one model at one level, by table and method; what failed is kept apart."""

    def __init__(self, results: Results, model: str, level: float, outside: Container[str] = ()) -> None:
        """Tables whose names are in `outside` are kept apart: they are about rows from there."""
        chosen = [one for one in results if one.model == model and one.level == level]
        self.model, self.level = model, level
        self.failures = [one for one in chosen if one.error]
        self.cells: dict[tuple[str, str], list[ArenaResult]] = {}
        self.outside: dict[tuple[str, str], list[ArenaResult]] = {}
        for one in chosen:
            if not one.error:
                cells = self.outside if one.table in outside else self.cells
                cells.setdefault((one.table, one.method), []).append(one)
        self.tables = list(dict.fromkeys(table for table, method in self.cells if method == REFERENCE))
        self.methods = list(dict.fromkeys(method for _, method in self.cells))

    def among(self, wanted: Callable[[int], bool]) -> ArenaBoard:
        """The board of those tables alone whose number of rows is wanted."""
        kept = [
            one
            for ran in self.cells.values()
            for one in ran
            if wanted(TEST_SHARE * self._test_rows(one.table))
        ]
        return ArenaBoard(kept, self.model, self.level)

    def _test_rows(self, table: str) -> int:
        return (
            max(one.rows for one in self.cells[table, REFERENCE]) if (table, REFERENCE) in self.cells else 0
        )

    def score(self, table: str, method: str) -> float:
        """Mean Winkler score relative to split conformal's of the same seeds; NaN where the method did not run."""
        return _ratio(*self._paired(table, method), "winkler")

    def standings(self) -> list[Standing]:
        """All methods, the best score first."""
        ranks = self.ranks()
        rows = [self._standing(method, ranks.get(method, math.nan)) for method in self.methods]
        return sorted((row for row in rows if row.n_tables), key=lambda row: row.score)

    def ranks(self) -> dict[str, float]:
        """Mean ranks by score, of the methods that ran on all tables."""
        scores = {method: [self.score(table, method) for table in self.tables] for method in self.methods}
        complete = {method: values for method, values in scores.items() if not np.isnan(values).any()}
        if not complete:
            return {}
        ranks = rankdata(np.array(list(complete.values())), axis=0).mean(axis=1)
        return dict(zip(complete, ranks.tolist(), strict=True))

    def critical_difference(self) -> float:
        """Nemenyi's: mean ranks further apart than this differ at 5%."""
        k, n = len(self.ranks()), len(self.tables)
        if k < 2 or n < 2:
            return math.nan
        quantile = float(studentized_range.ppf(0.95, k, math.inf)) / math.sqrt(2.0)
        return quantile * math.sqrt(k * (k + 1) / (6.0 * n))

    def best_rival(self, table: str, rivals: Sequence[str]) -> tuple[str, float]:
        """The rival with the lowest score on a table, and that score; an empty name where none ran."""
        scores = {method: self.score(table, method) for method in rivals}
        known = {method: score for method, score in scores.items() if not math.isnan(score)}
        name = min(known, key=known.__getitem__, default="")
        return name, known.get(name, math.nan)

    def duel(self, method: str, other: str) -> tuple[int, int]:
        """On how many tables `method` has the lower, and the higher score; ties are neither."""
        pairs = [(self.score(table, method), self.score(table, other)) for table in self.tables]
        wins = sum(one < (1 - TIE) * two for one, two in pairs)
        return wins, sum(two < (1 - TIE) * one for one, two in pairs)

    def _paired(self, table: str, method: str) -> tuple[list[ArenaResult], list[ArenaResult]]:
        """The method's results and split conformal's of the same seeds."""
        ours = {one.seed: one for one in self.cells.get((table, method), [])}
        reference = {one.seed: one for one in self.cells.get((table, REFERENCE), [])}
        seeds = sorted(ours.keys() & reference.keys())
        return [ours[seed] for seed in seeds], [reference[seed] for seed in seeds]

    def _standing(self, method: str, rank: float) -> Standing:
        pairs = [pair for table in self.tables if (pair := self._paired(table, method))[0]]

        def mean(name: str) -> float:
            return nan_mean([nan_mean([getattr(one, name) for one in ours]) for ours, _ in pairs])

        def relative(name: str) -> float:
            return nan_mean([_ratio(ours, reference, name) for ours, reference in pairs])

        wins, losses = self.duel(method, REFERENCE)
        return Standing(
            method=method,
            n_tables=len(pairs),
            finite=mean("finite"),
            known=mean("known"),
            coverage=mean("coverage"),
            tail_coverage=mean("tail_coverage"),
            worst_slab=mean("worst_slab"),
            lowest_group=nan_mean([lowest_pooled_group(ours) for ours, _ in pairs]),
            width=relative("width"),
            median_width=relative("median_width"),
            score=relative("winkler"),
            score_band=_bootstrap(pairs, "winkler", relative=True),
            ert=mean("ert"),
            ert_under=mean("ert_under"),
            ert_over=mean("ert_over"),
            ert_band=_bootstrap(pairs, "ert", relative=False),
            auroc=mean("auroc"),
            width_error=mean("width_error"),
            way=nan_mean([_way(ours, reference) for ours, reference in pairs]),
            rank=rank,
            wins=wins,
            losses=losses,
            fit_seconds=mean("fit_seconds"),
            predict_seconds=mean("predict_seconds"),
        )


def nan_mean(values: Sequence[float]) -> float:
    """The mean of what is not NaN."""
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


def _ratio(ours: Results, reference: Results, name: str) -> float:
    if not ours:
        return math.nan
    return nan_mean([getattr(one, name) for one in ours]) / nan_mean(
        [getattr(one, name) for one in reference]
    )


def _way(ours: Results, reference: Results) -> float:
    """(split - method) / (split - floor) of mean scores; NaN where the truth is not known."""
    score, start, floor = (
        nan_mean([one.winkler for one in ours]),
        nan_mean([one.winkler for one in reference]),
        nan_mean([one.floor for one in reference]),
    )
    return (start - score) / (start - floor)


def _bootstrap(pairs: Sequence[tuple[Results, Results]], name: str, *, relative: bool) -> tuple[float, float]:
    """The 95% interval of a measure's mean over tables: tables are drawn, and in each its seeds."""
    rng = np.random.default_rng(0)
    tables = []
    for ours, reference in pairs:
        values = np.array([getattr(one, name) for one in ours])
        units = np.array([getattr(one, name) for one in reference]) if relative else np.ones(len(values))
        kept = ~np.isnan(values)
        if kept.any():
            seeds = rng.integers(kept.sum(), size=(RESAMPLES, kept.sum()))
            tables.append(values[kept][seeds].mean(axis=1) / units[kept][seeds].mean(axis=1))
    if not tables:
        return math.nan, math.nan
    by_table: Float[NDArray, "t r"] = np.array(tables)
    drawn = rng.integers(len(by_table), size=by_table.shape)
    low, high = np.quantile(by_table[drawn, np.arange(RESAMPLES)].mean(axis=0), [0.025, 0.975])
    return float(low), float(high)
