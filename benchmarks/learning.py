"""How many rows teach how wrong a model is: ``python -m benchmarks.learning --out FILE.csv --data FOLDER``.

One model predicts. What says how wrong it is (kernel, scales, shape of the errors, support) learns from 5,000,
10,000 and more rows that the model has not seen, up to all there are, and once from all rows as lvd does by
default, which draws parts of them. The same rows calibrate and judge all of these. A run that was broken off goes
on where it stopped. The figures are a section of docs/growth.md, which ``python -m benchmarks.million --page``
writes.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

import lvd
from benchmarks.million import rows_of
from benchmarks.results import date_and_machine, version_of
from experiments.arena.tables import load_arena_table
from experiments.paper.result_store import read_dataclasses, write_dataclasses
from lvd import InputError
from lvd.metrics import finite_fraction, winkler_score
from lvd.scores import distributional, quantile_trees, scaled, score
from lvd.support import rule

BOUNDS = (5_000, 10_000, 20_000, 50_000, 100_000)
LEVELS = [0.5, 0.9, 0.95]
SEEDS, N_SYNTHETIC = (0, 1), 200_000
SHARES, MOST = {"model": 0.1, "calib": 0.1, "test": 0.2}, {"model": 10_000, "calib": 10_000, "test": 20_000}
"""What part of a table trains the model, calibrates and judges, and at most how many rows; the others teach."""
MOST_SQUARE = 20_000
"""No more rows than this where time grows with their square: in one of the three scales, and in the support."""
DEFAULT, ROWS = "default", "rows"
COMMAND = "python -m benchmarks.learning --out"


def rare_and_heavy(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Errors with heavy tails, whose size goes up and down, and in one row of a hundred ten times as large."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, size=(n_rows, 10))
    size = (0.3 + np.sin(3.0 * X[:, 0]) ** 2) * np.where(X[:, 1] > 0.98, 10.0, 1.0)
    return X, 2.0 * X[:, 2] * X[:, 3] + size * rng.standard_t(4, size=n_rows)


SYNTHETIC: dict[str, Callable[[int], tuple[np.ndarray, np.ndarray]]] = {
    "skewed": rows_of,
    "rare and heavy": rare_and_heavy,
}
TABLES = ("protein", "diamonds", "house", *SYNTHETIC)


@dataclass(frozen=True)
class Point:
    """One line of the file: the interval score at a level after learning from `rows` of `n_rows` rows.

    `way` is "rows" where nothing bounds what learns from them, or "default". `seconds` are the processor's, of all
    that was learned.
    """

    date: str
    machine: str
    numpy: str
    sklearn: str
    lvd: str
    table: str
    n_rows: int
    seed: int
    way: str
    rows: int
    level: float
    interval_score: float
    finite: float
    seconds: float


class Parts(NamedTuple):
    """The rows of a table, which have seen each other as little as those of a user."""

    predict: Callable[[np.ndarray], np.ndarray]
    learn: tuple[np.ndarray, np.ndarray]
    calib: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


@contextmanager
def learning_from(n_rows: int) -> Iterator[None]:
    """Let everything learn from up to so many rows; afterwards the bounds are those of the package again."""
    bounds: tuple[tuple[Any, str, int], ...] = (
        (score, "LEARNED_ROWS", n_rows),
        (scaled, "NETWORK_ROWS", n_rows),
        (distributional, "MOST_ROWS", n_rows),
        (quantile_trees, "MOST_TREE_ROWS", n_rows),
        (scaled, "KERNEL_ROWS", min(n_rows, MOST_SQUARE)),
        (rule, "MOST_ROWS", min(n_rows, MOST_SQUARE)),
    )
    usual = [getattr(module, name) for module, name, _ in bounds]
    try:
        for module, name, bound in bounds:
            setattr(module, name, bound)
        yield
    finally:
        for (module, name, _), bound in zip(bounds, usual, strict=True):
            setattr(module, name, bound)


def table_of(name: str, n_synthetic: int, data: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """All rows of a table."""
    if name in SYNTHETIC:
        return SYNTHETIC[name](n_synthetic)
    table = load_arena_table(name, data, most_rows=None)
    return table.features(np.arange(len(table.y))), table.y


def parts_of(X: np.ndarray, y: np.ndarray, seed: int) -> Parts:
    """A trained model, and the rows that teach, calibrate and judge, in the order of a permutation."""
    order, start, found = np.random.default_rng(seed).permutation(len(y)), 0, {}
    for name, share in SHARES.items():
        end = start + min(int(share * len(y)), MOST[name])
        found[name] = (X[order[start:end]], y[order[start:end]])
        start = end
    trained = HistGradientBoostingRegressor(random_state=seed).fit(*found["model"])
    return Parts(trained.predict, (X[order[start:]], y[order[start:]]), found["calib"], found["test"])


def ways_of(n_learn: int, bounds: Sequence[int] = BOUNDS) -> list[tuple[str, int]]:
    """The numbers of rows that teach, all of them, and lvd's own way."""
    fewer = [(ROWS, bound) for bound in bounds if bound < n_learn]
    return [*fewer, (ROWS, n_learn), (DEFAULT, n_learn)]


def learned(parts: Parts, n_rows: int, seed: int) -> tuple[float, list[tuple[float, float]]]:
    """Seconds of learning from so many rows, and the score at each level with the share of finite intervals."""
    (X, y), (X_test, y_test) = parts.learn, parts.test
    reg = lvd.LVDRegressor(parts.predict, prefit=True, confidence_level=LEVELS, random_state=seed)
    start = time.process_time()
    reg.fit(X[:n_rows], y[:n_rows])
    seconds = time.process_time() - start
    _, intervals = reg.conformalize(*parts.calib).predict_interval(X_test)
    y_range = (float(y.min()), float(y.max()))
    figures = [
        (winkler_score(y_test, ends, level, y_range=y_range), finite_fraction(ends))
        for level, ends in zip(LEVELS, np.moveaxis(intervals, 2, 0), strict=True)
    ]
    return seconds, figures


def run(
    tables: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    load: Callable[[str], tuple[np.ndarray, np.ndarray]],
    bounds: Sequence[int] = BOUNDS,
) -> list[Point]:
    """Measure what the file does not hold yet, and write it each time."""
    warnings.simplefilter("ignore", lvd.CalibrationWarning)
    points = read_points(out) if out.exists() else []
    versions = (
        *date_and_machine(on_gpu=False),
        version_of("numpy"),
        version_of("scikit-learn"),
        lvd.__version__,
    )
    for name in tables:
        X, y = load(name)
        for seed in seeds:
            parts = parts_of(X, y, seed)
            for way, n_rows in ways_of(len(parts.learn[1]), bounds):
                if any((one.table, one.n_rows, one.seed, one.way, one.rows) == (name, len(y), seed, way, n_rows)
                       for one in points):  # fmt: skip
                    continue
                seconds, figures = _learned_by(way, parts, n_rows, seed)
                for level, (found, finite) in zip(LEVELS, figures, strict=True):
                    settings = (name, len(y), seed, way, n_rows, level)
                    points.append(Point(*versions, *settings, found, finite, seconds))
                write_dataclasses(points, out, Point, digits=6)
                told = ", ".join(f"{found:.4g}" for found, _ in figures)
                print(f"{name}, seed {seed}, {n_rows:,} {way}: {told}, {seconds:.1f} s", flush=True)
    return points


def _learned_by(way: str, parts: Parts, n_rows: int, seed: int) -> tuple[float, list[tuple[float, float]]]:
    if way == DEFAULT:
        return learned(parts, n_rows, seed)
    with learning_from(n_rows):
        return learned(parts, n_rows, seed)


def read_points(path: Path) -> list[Point]:
    """What was measured so far."""
    return read_dataclasses(path, Point, what="a file of learning curves", made_by=f"{COMMAND} {path}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.learning", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="csv file, written as it is measured")
    parser.add_argument("--data", type=Path, help="folder that holds arena with the real tables")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES), help="default: all")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS), help="default: %(default)s")
    parser.add_argument("--synthetic", type=int, default=N_SYNTHETIC, help="rows of a synthetic table")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    try:
        if not options.out.parent.is_dir():
            raise InputError(f"--out: there is no folder {options.out.parent}; make it first")
        if options.synthetic < 1000:
            raise InputError(f"--synthetic must be at least 1000 rows, got {options.synthetic}")
        load = partial(table_of, n_synthetic=options.synthetic, data=options.data)
        run(options.tables, options.seeds, options.out, load)
    except InputError as error:
        print(f"benchmarks.learning: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
