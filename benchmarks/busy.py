"""Fits alone and next to one busy process per core: ``python -m benchmarks.busy``.

Prints the seconds of both and their ratio. Next to as many busy processes as cores a single-threaded fit takes
twice as long; threads that wait for each other take far longer.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from joblib import cpu_count
from rich.console import Console
from rich.table import Table
from sklearn.ensemble import HistGradientBoostingRegressor

import lvd
from benchmarks.speed.company import busy_neighbours
from benchmarks.timing import timed

N_COLUMNS, MOST_TIMES = 10, 3.0
ESTIMATORS: dict[str, Callable[[], Any]] = {
    "lvd.TreesRegressor": lambda: lvd.TreesRegressor(random_state=0),
    "LVD around lvd's trees": lambda: lvd.LVDRegressor("trees", random_state=0),
    "LVD around scikit-learn's trees": lambda: lvd.LVDRegressor(
        HistGradientBoostingRegressor(random_state=0), random_state=0
    ),
    "LVD, the better of network and trees": lambda: lvd.LVDRegressor(random_state=0),
}


def rows_of(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, N_COLUMNS))
    return X, np.sin(2.0 * X[:, 0]) + np.exp(0.5 * X[:, 1]) * rng.normal(size=n_rows)


def fit_anew(make: Callable[[], Any], X: np.ndarray, y: np.ndarray) -> None:
    make().fit(X, y)


def median_of(fit: Callable[[], None], repeats: int) -> float:
    return float(np.median([timed(fit)[0] for _ in range(repeats)]))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.busy", description=__doc__)
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[200, 1000, 10_000], help="default: %(default)s"
    )
    parser.add_argument("--repeats", type=int, default=3, help="fits each, of which the median counts")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", lvd.CalibrationWarning)
    console, load = Console(), os.getloadavg()[0]
    if load > 0.5:
        console.print(f"the load is {load:.1f} already: other jobs falsify the figures", style="bold")
    for make in ESTIMATORS.values():  # compiles
        fit_anew(make, *rows_of(200))
    table = Table("fit", "rows", "alone, s", "busy, s", "ratio", title=f"{cpu_count()} cores")
    for n_rows in options.rows:
        for name, make in ESTIMATORS.items():
            fit = partial(fit_anew, make, *rows_of(n_rows))
            alone = median_of(fit, options.repeats)
            with busy_neighbours(cpu_count()):
                busy = median_of(fit, options.repeats)
            ratio = busy / alone
            style = "bold red" if ratio > MOST_TIMES else None
            table.add_row(name, str(n_rows), f"{alone:.2f}", f"{busy:.2f}", f"{ratio:.2f}", style=style)
    console.print(table)


if __name__ == "__main__":
    main()
