"""Intervals over time, row by row and on long streams: ``python -m benchmarks.online``.

How long it takes to predict and observe one row with 10,000 rows in memory, and how much memory a long stream
needs; for a stream cut short by ``--minutes``, the figures say how far it came.
"""

from __future__ import annotations

import argparse
import csv
import math
import platform
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import lvd
from lvd._typing import NDArray

KEPT, SINGLE, BATCH, N_INPUTS = 10_000, 300, 100, 8


def stream(n_rows: int, batch: int, seed: int) -> Iterator[tuple[NDArray, NDArray]]:
    """Batches of rows whose noise depends on an input and slowly grows."""
    rng = np.random.default_rng(seed)
    for start in range(0, n_rows, batch):
        X = rng.uniform(-1, 1, size=(min(batch, n_rows - start), N_INPUTS))
        noise = (0.2 + np.abs(X[:, 1])) * (1.0 + start / 1e6)
        yield X, X[:, 0] + noise * rng.normal(size=len(X))


def regressor() -> lvd.LVDRegressor:
    ((X, y),) = stream(3000, 3000, 0)
    return lvd.LVDRegressor("trees", random_state=0).fit(X, y)


def observe(online: lvd.OnlineIntervals, X: NDArray, y: NDArray) -> None:
    online.observe(online.predict_interval(X).keys, y)


def single_rows() -> dict[str, float]:
    """Milliseconds of wall time and of processor time per row, with the memory full."""
    online = lvd.OnlineIntervals(regressor(), max_rows=KEPT)
    for X, y in stream(KEPT, BATCH, 1):
        observe(online, X, y)
    taken, processor = [], time.process_time()
    for X, y in stream(SINGLE, 1, 2):
        begun = time.perf_counter()
        observe(online, X, y)
        taken.append(1000.0 * (time.perf_counter() - begun))
    busy = 1000.0 * (time.process_time() - processor) / SINGLE
    return {
        "rows kept": online.status()[0].n_rows_kept,
        "processor ms a row": busy,
        "ms a row, median": np.median(taken),
        "ms a row, best": np.min(taken),
    }


def long_stream(n_rows: int, minutes: float) -> dict[str, float]:
    """Seconds and this process's peak memory for a stream in batches."""
    online = lvd.OnlineIntervals(regressor(), max_rows=KEPT)
    begun, processor, early = time.perf_counter(), time.process_time(), math.nan
    for number, (X, y) in enumerate(stream(n_rows, BATCH, 3), start=1):
        observe(online, X, y)
        if number * BATCH == 2 * KEPT:
            early = peak_megabytes()
        if time.perf_counter() - begun > 60.0 * minutes:
            break
    seconds, done = time.perf_counter() - begun, online.status()[0]
    return {
        "rows of the stream": done.n_observed,
        "ms a row of the stream": 1000.0 * seconds / done.n_observed,
        "processor ms a row of it": 1000.0 * (time.process_time() - processor) / done.n_observed,
        f"peak MB after {2 * KEPT:,} rows": early,
        "peak MB at the end": peak_megabytes(),
        "coverage of the stream": done.long_run_coverage,
    }


def peak_megabytes() -> float:
    """The peak memory of this process; Linux reports kilobytes, macOS bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if platform.system() == "Darwin" else 2**10)


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.online", description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=1_000_000, help="length of the stream, default: %(default)s"
    )
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop the stream after so many")
    parser.add_argument("--out", type=Path, help="also write the figures to this csv file")
    options = parser.parse_args()
    figures = single_rows() | long_stream(options.rows, options.minutes)
    for name, value in figures.items():
        print(f"{name:28} {value:,.4g}")
    if options.out is not None:
        with options.out.open("w", newline="") as file:
            csv.writer(file).writerows([("what", "value"), *figures.items()])


if __name__ == "__main__":
    main()
