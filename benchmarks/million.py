"""What an interval costs beside its model, up to a million rows: ``python -m benchmarks.million``.

Each fit has a process of its own, whose seconds and peak of memory count, the table's included. "Ten lines" is what
users write themselves: the model, its out-of-fold errors in five folds, and one boosted model of their sizes.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import cross_val_predict

import lvd
from benchmarks.timing import timed
from lvd.metrics import winkler_score

N_COLUMNS, N_TEST, LEVEL = 20, 50_000, 0.9
MOST_TIMES = {100_000: 3.0, 400_000: 2.0, 1_000_000: 2.0}
MOST_GIGABYTES = 2.5


def rows_of(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Skewed errors, whose size depends on a column."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, N_COLUMNS))
    noise = np.exp(0.5 * X[:, 1]) * (rng.exponential(size=n_rows) - 1.0)
    return X, np.sin(2.0 * X[:, 0]) + X[:, 2] * X[:, 3] + noise


def model() -> Any:
    return HistGradientBoostingRegressor(random_state=0)


def fit_model(X: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray] | None:
    model().fit(X, y)
    return None


def fit_ten_lines(X: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    errors = np.abs(y - cross_val_predict(model(), X, y, cv=5))
    predicts, expects = model().fit(X, y), model().fit(X, errors)
    factor = np.quantile(errors / np.maximum(expects.predict(X), 1e-9), LEVEL)

    def intervals(rows: np.ndarray) -> np.ndarray:
        y_pred, radius = predicts.predict(rows), factor * np.maximum(expects.predict(rows), 1e-9)
        return np.stack([y_pred - radius, y_pred + radius], axis=1)

    return intervals


def fit_lvd(X: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    reg = lvd.LVDRegressor(model(), confidence_level=LEVEL, random_state=0).fit(X, y)
    return lambda rows: reg.predict_interval(rows)[1]


FITS = {"model alone": fit_model, "ten lines": fit_ten_lines, "lvd": fit_lvd}


def measure(name: str, n_rows: int) -> tuple[float, float, float, float]:
    """Seconds of the fit, gigabytes, seconds of a thousand predictions, and the interval score on fresh rows."""
    warnings.simplefilter("ignore", lvd.CalibrationWarning)
    FITS[name](*rows_of(2000))  # compiles
    X, y = rows_of(n_rows + N_TEST)
    fresh, truth = X[n_rows:].copy(), y[n_rows:].copy()
    X, y = X[:n_rows], y[:n_rows]
    seconds, predict = timed(lambda: FITS[name](X, y))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    if predict is None:
        return seconds, memory, np.nan, np.nan
    each, intervals = timed(lambda: predict(fresh))
    ends, y_range = np.reshape(intervals, (N_TEST, 2)), (float(y.min()), float(y.max()))
    return seconds, memory, each * 1000 / N_TEST, winkler_score(truth, ends, LEVEL, y_range=y_range)


def in_a_process(name: str, n_rows: int) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.million", "--one", name, "--rows", str(n_rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [float(figure) for figure in done.stdout.split()[-4:]]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.million", description=__doc__)
    parser.add_argument(
        "--rows", type=int, nargs="+", default=list(MOST_TIMES), help="training rows, default: %(default)s"
    )
    parser.add_argument("--one", choices=list(FITS), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one is not None:
        print(*measure(options.one, options.rows[0]))
        return
    columns = ("rows", "fit", "seconds", "beside ten lines", "GB", "s for 1,000 rows", "interval score")
    table = Table(*columns, title=f"fits on {N_COLUMNS} columns")
    for n_rows in options.rows:
        found = {name: in_a_process(name, n_rows) for name in FITS}
        for name, (seconds, memory, each, score) in found.items():
            ratio = seconds / found["ten lines"][0]
            missed = name == "lvd" and (ratio > MOST_TIMES.get(n_rows, np.inf) or memory > MOST_GIGABYTES)
            figures = (f"{seconds:.1f}", f"{ratio:.2f}", f"{memory:.2f}", f"{each:.3f}", f"{score:.3f}")
            table.add_row(f"{n_rows:,}", name, *figures, style="bold red" if missed else None)
    Console().print(table)


if __name__ == "__main__":
    main()
