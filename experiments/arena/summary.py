"""Summaries of the arena's results: geometric means over tables with intervals, ranks, wins and losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import TypeAlias

import numpy as np
from scipy.stats import rankdata, studentized_range

from experiments.arena.measures import ArenaResult, lowest_pooled_group
from experiments.paper.runs import grouped
from lvd._typing import Float, NDArray

REFERENCE = "split"
RESAMPLES = 1000
TEST_SHARE = 5
"""The number of rows in a table relative to its test rows."""
TIE = 0.005
"""Scores that differ by less than this share are a tie."""

Results = Sequence[ArenaResult]
Pair: TypeAlias = tuple[list[ArenaResult], list[ArenaResult]]


@dataclass(frozen=True)
class Comparison:
    """The geometric mean over tables of the ratio of two scores, its 95% interval, and tables won and lost.

    `splits` says how many pairs of a table and a seed both methods ran on, from which all of it is.
    """

    ratio: float
    band: tuple[float, float]
    wins: int
    losses: int
    splits: int


class ArenaBoard:
    """The results of one model at one level, by table and method, without failures."""

    def __init__(self, results: Results, model: str, level: float, outside: Container[str] = ()) -> None:
        """Tables named in `outside` are kept separate: they measure out-of-distribution rows."""
        chosen = [one for one in results if one.model == model and one.level == level and not one.error]
        self.model, self.level = model, level
        place = attrgetter("table", "method")
        self.cells = grouped((one for one in chosen if one.table not in outside), place)
        self.outside = grouped((one for one in chosen if one.table in outside), place)
        self.tables = list(dict.fromkeys(table for table, method in self.cells if method == REFERENCE))
        self.methods = list(dict.fromkeys(method for _, method in self.cells))

    def among(self, wanted: Callable[[int], bool]) -> ArenaBoard:
        """The board restricted to tables with the wanted number of rows."""
        n_tested = {table: max(one.rows for one in self.cells[table, REFERENCE]) for table in self.tables}
        kept = [
            one
            for (table, _), ran in self.cells.items()
            for one in ran
            if wanted(TEST_SHARE * n_tested.get(table, 0))
        ]
        return ArenaBoard(kept, self.model, self.level)

    def score(self, table: str, method: str) -> float:
        """Mean Winkler score relative to split conformal's on the same seeds; NaN if the method did not run."""
        return _ratio(*self.paired(table, method), "winkler")

    def scores(self, table: str, *methods: str) -> list[float]:
        """As :meth:`score` for several methods, on the seeds that all of them have; NaN if there is none."""
        *ours, reference = self.shared(table, *methods, REFERENCE)
        return [_ratio(one, reference, "winkler") for one in ours]

    @cached_property
    def standings(self) -> list[ArenaStanding]:
        """All methods, the best score first."""
        ranks = self.ranks()
        rows = [ArenaStanding(self, method, ranks.get(method, math.nan)) for method in self.methods]
        return sorted((row for row in rows if row.pairs), key=lambda row: row.score)

    @property
    def complete(self) -> list[ArenaStanding]:
        """The standings of the methods that ran on all tables; only these can be ranked."""
        return [row for row in self.standings if len(row.pairs) == len(self.tables)]

    def ranks(self) -> dict[str, float]:
        """Mean ranks by score among the methods that ran on all tables."""
        scores = {method: [self.score(table, method) for table in self.tables] for method in self.methods}
        complete = {method: values for method, values in scores.items() if not np.isnan(values).any()}
        if not complete:
            return {}
        ranks = rankdata(np.array(list(complete.values())), axis=0).mean(axis=1)
        return dict(zip(complete, ranks.tolist(), strict=True))

    def critical_difference(self) -> float:
        """Nemenyi's critical difference: mean ranks further apart than this differ at the 5% level."""
        k, n = len(self.ranks()), len(self.tables)
        if k < 2 or n < 2:
            return math.nan
        quantile = float(studentized_range.ppf(0.95, k, math.inf)) / math.sqrt(2.0)
        return quantile * math.sqrt(k * (k + 1) / (6.0 * n))

    def duel(self, method: str, other: str) -> tuple[int, int]:
        """The number of tables on which `method` has the lower, and the higher score on common seeds, without
        ties."""
        pairs = [
            [_mean_of(side, "winkler") for side in self.paired(table, method, other)] for table in self.tables
        ]
        wins = sum(one < (1 - TIE) * two for one, two in pairs)
        return wins, sum(two < (1 - TIE) * one for one, two in pairs)

    def compare(self, method: str, other: str) -> Comparison:
        """Compare the scores of `method` and `other` on the tables and seeds where both ran."""
        pairs = [pair for table in self.tables if (pair := self.paired(table, method, other))[0]]
        ratio = geometric_mean([_ratio(*pair, "winkler") for pair in pairs])
        splits = sum(len(ours) for ours, _ in pairs)
        return Comparison(ratio, _band(pairs, "winkler", relative=True), *self.duel(method, other), splits)

    def paired(self, table: str, method: str, other: str = REFERENCE) -> Pair:
        """The method's results and those of another, by default split conformal, on the same seeds."""
        ours, reference = self.shared(table, method, other)
        return ours, reference

    def shared(self, table: str, *methods: str) -> list[list[ArenaResult]]:
        """The results of each method on the seeds that all of them have."""
        by_seed = [{one.seed: one for one in self.cells.get((table, method), [])} for method in methods]
        seeds = sorted(set.intersection(*(set(ran) for ran in by_seed)))
        return [[ran[seed] for seed in seeds] for ran in by_seed]


class ArenaStanding:
    """One method of a board, over the tables where it and split conformal ran with the same seeds.

    `score` is the geometric mean over tables, so that no table dominates, and `worst` the largest of a table.
    `score_band` and `ert_band` are 95% bootstrap intervals over tables and the seeds in them. `rank` is the
    mean rank by score among the methods that ran on all tables, NaN for the others. `splits` counts the pairs
    of table and seed behind all of it. `way` is the share of the gap between split conformal and the floor that
    it closes, if the truth is known.
    """

    def __init__(self, board: ArenaBoard, method: str, rank: float) -> None:
        self.method, self.rank = method, rank
        self.pairs = [pair for table in board.tables if (pair := board.paired(table, method))[0]]
        self.splits = sum(len(ours) for ours, _ in self.pairs)
        self.wins, self.losses = board.duel(method, REFERENCE)
        self.score, self.score_band = self.relative("winkler"), _band(self.pairs, "winkler", relative=True)
        self.worst = max((_ratio(*pair, "winkler") for pair in self.pairs), default=math.nan)
        self.ert, self.ert_band = self.mean("ert"), _band(self.pairs, "ert", relative=False)
        self.lowest_group = nan_mean([lowest_pooled_group(ours) for ours, _ in self.pairs])
        self.way = nan_mean([_way(*pair) for pair in self.pairs])

    def mean(self, name: str) -> float:
        """The mean of a measure over tables, of the means over seeds."""
        return nan_mean([_mean_of(ours, name) for ours, _ in self.pairs])

    def relative(self, name: str) -> float:
        """The geometric mean over tables, relative to split conformal's on the same seeds."""
        return geometric_mean([_ratio(*pair, name) for pair in self.pairs])


def _band(pairs: Sequence[Pair], name: str, *, relative: bool) -> tuple[float, float]:
    """The 95% bootstrap interval, over tables and seeds, of a measure's mean (geometric for ratios)."""
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
    by_table: Float[NDArray, "t r"] = np.log(tables) if relative else np.array(tables)
    drawn = rng.integers(len(by_table), size=by_table.shape)
    ends = np.quantile(by_table[drawn, np.arange(RESAMPLES)].mean(axis=0), [0.025, 0.975])
    low, high = np.exp(ends) if relative else ends
    return float(low), float(high)


def geometric_mean(ratios: Sequence[float]) -> float:
    """The geometric mean of the values that are not NaN."""
    known = [math.log(ratio) if ratio > 0 else -math.inf for ratio in ratios if not math.isnan(ratio)]
    return math.exp(float(np.mean(known))) if known else math.nan


def nan_mean(values: Sequence[float]) -> float:
    """The mean of the values that are not NaN."""
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


def _mean_of(results: Results, name: str) -> float:
    return nan_mean([getattr(one, name) for one in results])


def _ratio(ours: Results, reference: Results, name: str) -> float:
    return _mean_of(ours, name) / _mean_of(reference, name) if ours else math.nan


def _way(ours: Results, reference: Results) -> float:
    """(split - method) / (split - floor) of mean scores; NaN if the truth is not known."""
    start, floor = (_mean_of(reference, name) for name in ("winkler", "floor"))
    return (start - _mean_of(ours, "winkler")) / (start - floor)
