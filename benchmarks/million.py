"""What an interval costs beside its model, up to a million rows: ``python -m benchmarks.million --out FILE.csv``.

Each fit has a process of its own, whose seconds and peak of memory count, the table's included. "Ten lines" is what
users write themselves: the model, its out-of-fold errors in five folds, and one boosted model of their sizes.
crepes and MAPIE split calibrate on as many rows as lvd does. Then one lvd is calibrated by more and by fewer rows,
and predicts. A run that was broken off goes on where it stopped; ``--page`` measures nothing and writes
docs/growth.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import cross_val_predict

import lvd
from benchmarks.results import date_and_machine, duration, version_of
from benchmarks.timing import timed
from experiments.paper.result_store import read_dataclasses, write_dataclasses
from lvd import InputError
from lvd.calibration.calibration_rows import MOST_SET_ASIDE
from lvd.metrics import mean_finite_width, winkler_score

N_COLUMNS, LEVEL = 20, 0.9
SIZES, N_TEST = (10_000, 30_000, 100_000, 400_000, 1_000_000), 50_000
SEVERAL = (25_000, 250_000)
"""How many rows calibrate: the second with and without a bound on them."""
BOUNDS = (5_000, 25_000, 50_000)
N_TRAIN, N_PREDICTIONS = 30_000, 100_000
MOST_TIMES = {100_000: 3.0, 400_000: 2.0, 1_000_000: 2.0}
MOST_GIGABYTES = 2.5
DOCS = Path(__file__).parents[1] / "docs"
COMMAND = "python -m benchmarks.million --out"

Answers = Callable[[np.ndarray], np.ndarray]
"""From rows to intervals, or to predictions alone."""


def rows_of(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Skewed errors, whose size depends on a column."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, N_COLUMNS))
    noise = np.exp(0.5 * X[:, 1]) * (rng.exponential(size=n_rows) - 1.0)
    return X, np.sin(2.0 * X[:, 0]) + X[:, 2] * X[:, 3] + noise


def model() -> Any:
    return HistGradientBoostingRegressor(random_state=0)


def set_aside(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    """Training rows and calibration rows, as many of these as lvd takes; the rows are in random order."""
    n_calib = min(len(y) // 4, MOST_SET_ASIDE)
    return X[n_calib:], y[n_calib:], X[:n_calib], y[:n_calib]


def fit_model(X: np.ndarray, y: np.ndarray) -> Answers:
    """Predictions without intervals."""
    predict: Answers = model().fit(X, y).predict
    return predict


def fit_ten_lines(X: np.ndarray, y: np.ndarray) -> Answers:
    errors = np.abs(y - cross_val_predict(model(), X, y, cv=5))
    predicts, expects = model().fit(X, y), model().fit(X, errors)
    factor = np.quantile(errors / np.maximum(expects.predict(X), 1e-9), LEVEL)

    def intervals(rows: np.ndarray) -> np.ndarray:
        y_pred, radius = predicts.predict(rows), factor * np.maximum(expects.predict(rows), 1e-9)
        return np.stack([y_pred - radius, y_pred + radius], axis=1)

    return intervals


def fit_mapie(X: np.ndarray, y: np.ndarray) -> Answers:
    from mapie.regression import SplitConformalRegressor

    X_train, y_train, X_calib, y_calib = set_aside(X, y)
    regressor = SplitConformalRegressor(model(), confidence_level=LEVEL, prefit=False)
    regressor.fit(X_train, y_train).conformalize(X_calib, y_calib)
    return lambda rows: regressor.predict_interval(rows)[1]


def fit_crepes(X: np.ndarray, y: np.ndarray) -> Answers:
    """Normalised: half of the calibration rows tell how difficult a place is, the other half calibrate."""
    from crepes import WrapRegressor
    from crepes.extras import DifficultyEstimator

    X_train, y_train, X_calib, y_calib = set_aside(X, y)
    regressor, half = WrapRegressor(model()), len(y_calib) // 2
    regressor.fit(X_train, y_train)
    residuals = y_calib[:half] - regressor.predict(X_calib[:half])
    difficulty = DifficultyEstimator().fit(X=X_calib[:half], residuals=residuals, scaler=True)
    regressor.calibrate(X_calib[half:], y_calib[half:], de=difficulty)
    return lambda rows: regressor.predict_int(rows, confidence=LEVEL)


def fit_lvd(X: np.ndarray, y: np.ndarray) -> Answers:
    reg = lvd.LVDRegressor(model(), confidence_level=LEVEL, random_state=0).fit(X, y)
    return lambda rows: reg.predict_interval(rows)[1]


FITS: dict[str, Callable[[np.ndarray, np.ndarray], Answers]] = {
    "model alone": fit_model,
    "MAPIE split": fit_mapie,
    "crepes": fit_crepes,
    "ten lines": fit_ten_lines,
    "lvd": fit_lvd,
}
GROWTH, CALIBRATION = "growth", "calibration"
ALL_ROWS = "all rows"


class Found(NamedTuple):
    """What a process measured; nan for what it does not have."""

    fit_seconds: float
    predict_seconds: float
    peak_gb: float
    interval_score: float
    width: float
    effective_rows: float


@dataclass(frozen=True)
class Cost:
    """One line of the file: of `part` "growth" a fit of `who` on so many rows; of "calibration" that of lvd by so
    many rows, of which `who` says how many are used.

    `load` is how many processes were busy before, where the system tells, `predictions` are those that
    `predict_seconds` took, and `effective_rows` is their median effective sample size.
    """

    date: str
    machine: str
    threads: int
    python: str
    numpy: str
    sklearn: str
    lvd: str
    crepes: str
    mapie: str
    load: float
    part: str
    who: str
    rows: int
    predictions: int
    fit_seconds: float
    predict_seconds: float
    peak_gb: float
    interval_score: float
    width: float
    effective_rows: float


def date_to_load() -> tuple[Any, ...]:
    """Today, this machine, these versions, and the load."""
    machine = (*date_and_machine(on_gpu=False), torch.get_num_threads(), platform.python_version())
    numpy, sklearn, crepes, mapie = map(version_of, ("numpy", "scikit-learn", "crepes", "MAPIE"))
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return *machine, numpy, sklearn, lvd.__version__, crepes, mapie, load


def measure(who: str, n_rows: int) -> Found:
    """Seconds of the fit and of predicting `N_TEST` fresh rows, peak memory, and how good their intervals are."""
    warnings.simplefilter("ignore")
    FITS[who](*rows_of(2000))  # compiles
    X, y = rows_of(n_rows + N_TEST)
    fresh, truth = X[n_rows:].copy(), y[n_rows:].copy()
    X, y = X[:n_rows], y[:n_rows]
    seconds, predict = timed(lambda: FITS[who](X, y))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    each, intervals = timed(lambda: predict(fresh))
    if intervals.ndim == 1:
        return Found(seconds, each, memory, np.nan, np.nan, np.nan)
    return Found(seconds, each, memory, *judged(truth, intervals, y), np.nan)


def judged(truth: np.ndarray, intervals: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """The interval score, where an infinite interval counts as the range of y, and the mean width of the others."""
    ends, y_range = np.reshape(intervals, (len(truth), 2)), (float(y.min()), float(y.max()))
    return winkler_score(truth, ends, LEVEL, y_range=y_range), mean_finite_width(ends)


def measure_calibration(who: str, n_rows: int, n_predictions: int) -> Found:
    """The same of one lvd, calibrated by so many rows: all of them, or as many as `who` says."""
    warnings.simplefilter("ignore")
    most = None if who == ALL_ROWS else int(who)
    X, y = rows_of(N_TRAIN + max(SEVERAL) + n_predictions)
    reg = lvd.LVDRegressor(model(), confidence_level=LEVEL, calib_size=None, random_state=0)
    reg.fit(X[:N_TRAIN], y[:N_TRAIN]).set_params(max_calibration_rows=most)
    rows = slice(N_TRAIN, N_TRAIN + n_rows)
    fresh, truth = X[-n_predictions:].copy(), y[-n_predictions:].copy()
    seconds, _ = timed(lambda: reg.conformalize(X[rows], y[rows]))
    reg.predict_interval(fresh[:100])  # compiles
    each, (_, intervals) = timed(lambda: reg.predict_interval(fresh))
    effective = float(np.median(reg.predict_with_evidence(fresh[:1000]).n_effective))
    return Found(seconds, each, np.nan, *judged(truth, intervals, y), effective)


class Request(NamedTuple):
    """What one process measures."""

    part: str
    who: str
    rows: int
    predictions: int

    def found(self) -> Found:
        """Measure it here."""
        if self.part == GROWTH:
            return measure(self.who, self.rows)
        return measure_calibration(self.who, self.rows, self.predictions)

    def in_a_process(self) -> Found:
        """Measure it in a process of its own, whose peak of memory is its own too."""
        words = [sys.executable, "-m", "benchmarks.million", "--one", *map(str, self)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip() or "it was killed").splitlines()[-1]
            raise InputError(f"{self.who} failed at {self.rows:,} rows: {reason}")
        return Found(*map(float, done.stdout.split()[-len(Found._fields) :]))


def plan(sizes: Sequence[int], n_predictions: int) -> Iterator[Request]:
    """All there is to measure: small sizes first, then calibrations, if predictions of them are wanted."""
    for n_rows in sizes:
        yield from (Request(GROWTH, who, n_rows, N_TEST) for who in FITS)
    if n_predictions:
        few, many = SEVERAL
        for n_rows, who in ((few, ALL_ROWS), (many, ALL_ROWS), *((many, str(bound)) for bound in BOUNDS)):
            yield Request(CALIBRATION, who, n_rows, n_predictions)


def run(requests: Sequence[Request], out: Path, tell: Callable[[Cost], None]) -> list[Cost]:
    """Measure what the file does not hold yet, and write it each time."""
    costs = read_costs(out) if out.exists() else []
    for request in requests:
        if any((one.part, one.who, one.rows, one.predictions) == request for one in costs):
            continue
        cost = Cost(*date_to_load(), *request, *request.in_a_process())
        costs.append(cost)
        write_dataclasses(costs, out, Cost, digits=5)
        tell(cost)
    return costs


def read_costs(path: Path) -> list[Cost]:
    """What was measured so far."""
    return read_dataclasses(path, Cost, what="a file of costs", made_by=f"{COMMAND} {path}")


def tell(cost: Cost) -> None:
    predicted = f"{cost.predictions:,} predictions {duration(cost.predict_seconds)}"
    memory = "" if np.isnan(cost.peak_gb) else f", {cost.peak_gb:.2f} GB"
    print(
        f"{cost.part}, {cost.who}, {cost.rows:,} rows: fit {duration(cost.fit_seconds)}, {predicted}{memory}",
        flush=True,
    )


def table_of(costs: Sequence[Cost]) -> Table:
    """What was measured, with the targets that were missed in red."""
    columns = ("rows", "fit", "seconds", "beside ten lines", "GB", f"s for {N_TEST:,} rows", "interval score")
    table = Table(*columns, title=f"fits on {N_COLUMNS} columns")
    for cost in (one for one in costs if one.part == GROWTH):
        ratio = times_ten_lines(costs, cost)
        missed = cost.who == "lvd" and (
            ratio > MOST_TIMES.get(cost.rows, np.inf) or cost.peak_gb > MOST_GIGABYTES
        )
        seconds = (f"{cost.fit_seconds:.1f}", f"{ratio:.2f}", f"{cost.peak_gb:.2f}")
        figures = (*seconds, f"{cost.predict_seconds:.2f}", f"{cost.interval_score:.3f}")
        table.add_row(f"{cost.rows:,}", cost.who, *figures, style="bold red" if missed else None)
    return table


def times_ten_lines(costs: Sequence[Cost], cost: Cost) -> float:
    """How many times as long as ten lines of the same size a fit took; nan if these were not measured."""
    base = [one for one in costs if (one.part, one.who, one.rows) == (GROWTH, "ten lines", cost.rows)]
    return cost.fit_seconds / base[-1].fit_seconds if base else np.nan


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.million", description=__doc__)
    parser.add_argument("--out", type=Path, help="csv file for what is measured, written as it is measured")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="training rows")
    parser.add_argument(
        "--predictions", type=int, default=N_PREDICTIONS,
        help="rows predicted with different numbers of calibration rows, default: %(default)s; 0: leave this out",
    )  # fmt: skip
    parser.add_argument(
        "--page", type=Path, nargs="+", metavar="FILE", help="write the page from these files"
    )
    parser.add_argument(
        "--docs", type=Path, default=DOCS, help="folder of the page, default: the repository's"
    )
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    try:
        if options.one is not None:
            part, who, *counts = options.one
            print(*Request(part, who, *map(int, counts)).found())
        elif options.page:
            from benchmarks.growth_page import write_page

            write_page(options.docs, options.page)
        else:
            check(options)
            costs = run(list(plan(options.sizes, options.predictions)), options.out, tell)
            Console().print(table_of(costs))
    except InputError as error:
        print(f"benchmarks.million: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def check(options: argparse.Namespace) -> None:
    if options.out is None:
        raise InputError("--out is missing: give the csv file to write")
    if not options.out.parent.is_dir():
        raise InputError(f"--out: there is no folder {options.out.parent}; make it first")
    if min(options.sizes) < 100:
        raise InputError(f"--sizes must be at least 100 rows, got {min(options.sizes)}")
    if options.predictions < 0:
        raise InputError(f"--predictions must be at least 0, got {options.predictions}")


if __name__ == "__main__":
    main()
