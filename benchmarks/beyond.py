"""Beyond the paper, measured: ``python -m benchmarks.beyond --data-dir FOLDER``.

Compares the paper's method, and variants with fewer infinite intervals or marginal coverage, with MAPIE's
conditional conformal prediction and crepes (normalised by nearest neighbours, Mondrian). Six small tables, ten
seeds, the sound protocol: on a split all methods share one network, one calibration part and one test part.
Each finished split is written at once, and a second call resumes from there. ``--page docs/beyond.md`` writes
the tables.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch

import lvd
from benchmarks import elsewhere
from experiments.paper.methods import MAIN_VARIANT, METHODS
from experiments.paper.protocols import SOUND
from experiments.paper.result_store import read_dataclasses, write_dataclasses
from experiments.paper.runs import SMALL_DATASETS
from experiments.paper.stages import TableSplit
from lvd import metrics
from lvd._typing import NDArray
from lvd.intervals import widths

RESULTS = Path(__file__).parents[1] / "results" / "beyond.csv"
LEVELS = (0.5, 0.9)
SEEDS = range(10)
LOCAL = "LVD"

Intervals = Callable[[TableSplit, float], NDArray]


@dataclass(frozen=True)
class Result:
    """One method on one split at one level.

    `median_width` is the median width over all rows, infinite ones included, relative to split conformal's.
    """

    dataset: str
    seed: int
    level: float
    method: str
    n_test: int
    MCR: float
    TCR: float
    worst_slab: float
    finite: float
    median_width: float
    seconds: float


def local(guarantee: str = "local", **settings: Any) -> Intervals:
    """The paper's LVD around the network, with one of the extensions."""

    def intervals(split: TableSplit, level: float) -> NDArray:
        regressor = lvd.LVDRegressor(
            split.estimator,
            preset="paper",
            kernel=split.kernel(smoothness=True),
            confidence_level=level,
            prefit=True,
            calib_size=None,
            device="cpu",
            random_state=split.seed,
            **settings,
        )
        regressor.fit(split.X[split.train], split.y[split.train])
        regressor.conformalize(split.X[split.calib], split.y[split.calib])
        X = split.X[split.test]
        return regressor.predict_interval(X, guarantee=guarantee, random_state=split.seed)[1]

    return intervals


def of_the_bench(name: str) -> Intervals:
    """A method of ``python -m experiments``."""
    return lambda split, level: METHODS[name](split, np.array([level]))[1]


OURS: dict[str, Intervals] = {
    LOCAL: local(),
    "LVD, bandwidth 2": local(bandwidth=2.0),
    "LVD, each side": local(conformity_score="signed"),
    "LVD, joint sides": local(conformity_score="sided"),
    "LVD, normalised": of_the_bench(MAIN_VARIANT.replace("base", "MN")),
    "LVD, randomized": local("randomized"),
    "LVD, calibrated": local("calibrated"),
    "split": of_the_bench("split"),
    "MADSplit": of_the_bench("MADSplit"),
}
THEIRS: dict[str, Intervals] = {
    "crepes, KNN": elsewhere.crepes_knn,
    "crepes, Mondrian": elsewhere.crepes_mondrian,
    "MAPIE, conditional": elsewhere.mapie_conditional,
}
METHODS_SHOWN = {**OURS, **THEIRS}


def evaluate(split: TableSplit, dataset: str, level: float, chosen: Iterable[str]) -> list[Result]:
    """All methods on one split; the slowest one only gets as many rows as it can process in reasonable time."""
    y, X = split.y[split.test], split.X[split.test]
    scaled = (X - X.mean(0)) / np.maximum(X.std(0), 1e-12)
    unit = float(widths(OURS["split"](split, level)).mean())
    results = []
    for name in chosen:
        start = process_time()
        intervals = METHODS_SHOWN[name](split, level)
        seconds = process_time() - start
        rows = slice(len(intervals))
        width = widths(intervals)[:, 0] / unit
        worst = metrics.worst_slab_coverage(scaled[rows], y[rows], intervals, random_state=split.seed)
        results.append(
            Result(
                dataset,
                split.seed,
                level,
                name,
                len(intervals),
                metrics.marginal_coverage_rate(y[rows], intervals),
                metrics.tail_coverage_rate(y[rows], intervals),
                worst.coverage,
                metrics.finite_fraction(intervals),
                float(np.median(width)),
                seconds,
            )
        )
    return results


def read_results(path: Path) -> list[Result]:
    """Read results, dropping those of methods that no longer exist."""
    rows = read_dataclasses(path, Result) if path.exists() else []
    return [row for row in rows if row.method in METHODS_SHOWN]


def write_results(path: Path, results: list[Result]) -> None:
    path.parent.mkdir(exist_ok=True)
    write_dataclasses(results, path, Result, digits=5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", help="folder with the datasets (else LVD_DATA, the cache, a download)")
    parser.add_argument("--datasets", nargs="+", choices=SMALL_DATASETS, default=SMALL_DATASETS)
    parser.add_argument("--methods", nargs="+", choices=tuple(METHODS_SHOWN), default=tuple(METHODS_SHOWN))
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, help="only write the tables of the results so far to this file")
    arguments = parser.parse_args()
    if arguments.page:
        from benchmarks.beyond_page import write_page

        write_page(arguments.page, read_results(arguments.results))
        return
    torch.set_num_threads(1)
    # Small calibration sets are part of the experiment.
    warnings.simplefilter("ignore", lvd.CalibrationWarning)
    for name in arguments.datasets:
        dataset = lvd.data.load_dataset(name, protocol=SOUND.data, data_dir=arguments.data_dir)
        for seed in range(arguments.seeds):
            split = TableSplit(dataset, SOUND, seed)
            for level in LEVELS:
                before = read_results(arguments.results)
                done = {r.method for r in before if (r.dataset, r.seed, r.level) == (name, seed, level)}
                todo = [method for method in arguments.methods if method not in done]
                results = evaluate(split, name, level, todo) if todo else []
                write_results(arguments.results, [*before, *results])
            print(name, seed, flush=True)


if __name__ == "__main__":
    main()
