"""Exported graphs against Python: ``python -m benchmarks.onnx --data-dir FOLDER``, then ``--page``.

Ten tables and four models, at most 5,000 rows of each table, 60% of which train and calibrate. 10,000 rows are
predicted, made from unseen rows, every second of which takes one value from another row: measured are the
difference in interval ends, relative to the width, and the number of rows on which `known` differs. Also
measured are the times for one row and for 1,000 rows, as the fastest of alternating calls. Each finished graph
is recorded at once, and a second call resumes from there.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import onnxruntime
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import lvd
from benchmarks.models import ROOT, TABLES, split_of
from experiments.paper.formats import Grid, bare_table
from experiments.paper.result_store import read_dataclasses, write_dataclasses

RESULTS, PAGE = ROOT / "results" / "onnx.csv", ROOT / "docs" / "onnx.md"
BEGIN, END = "<!-- written by python -m benchmarks.onnx --page -->", "<!-- end -->"
LEVELS, N_ROWS, MANY, SMALL = [0.5, 0.9], 10_000, 1_000, 1e-5


def _lightgbm() -> Any:
    from lightgbm import LGBMRegressor

    return LGBMRegressor(random_state=0, n_jobs=1, verbose=-1)


MODELS: dict[str, Callable[[], Any]] = {
    "network": lambda: "net",
    "trees": lambda: "trees",
    "Pipeline": lambda: make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 4, 29))),
    "LightGBM": _lightgbm,
}


@dataclass(frozen=True)
class GraphRun:
    """One graph: its size, how its answers differ from Python's, and milliseconds of both."""

    table: str
    model: str
    n_calib: int
    n_bytes: int
    typical_difference: float
    largest_difference: float
    n_differing: int
    n_narrower: int
    n_known_differing: int
    python_one: float
    graph_one: float
    python_many: float
    graph_many: float


def rows_to_ask(X: np.ndarray, seed: int) -> np.ndarray:
    """Rows like these; every second one has one value of another row."""
    rng = np.random.default_rng(seed)
    rows = X[rng.integers(len(X), size=N_ROWS)].copy()
    column, other = rng.integers(X.shape[1], size=N_ROWS), rng.integers(len(X), size=N_ROWS)
    changed = np.arange(0, N_ROWS, 2)
    rows[changed, column[changed]] = X[other[changed], column[changed]]
    return rows


def compare(reg: Any, rows: np.ndarray, session: Any) -> dict[str, Any]:
    """How the graph's answers differ from Python's."""
    found = [session.run(None, {"X": part}) for part in np.split(rows, N_ROWS // MANY)]
    names = [output.name for output in session.get_outputs()]
    graph = dict(zip(names, map(np.concatenate, zip(*found, strict=True)), strict=True))
    python = reg.predict_with_evidence(rows, LEVELS)
    worst = np.zeros(N_ROWS)
    narrower = np.zeros(N_ROWS, bool)
    for number, level in enumerate((50, 90)):
        ends = np.stack([graph[f"lower_{level}"], graph[f"upper_{level}"]], axis=1)
        mine = python.intervals[:, :, number]
        finite = np.isfinite(mine).all(axis=1)
        other = np.isfinite(ends).all(axis=1)
        width = np.where(finite, mine[:, 1] - mine[:, 0], 1.0)
        both = finite & other
        moved = np.where(both[:, None], ends, 0.0) - np.where(both[:, None], mine, 0.0)
        shares = moved / width[:, None] * [-1.0, 1.0]  # above 0: further out
        worst = np.maximum(worst, np.where(finite == other, np.abs(shares).max(axis=1), np.inf))
        narrower |= (shares.min(axis=1) < -SMALL) | (other & ~finite)
    return {
        "typical_difference": float(np.median(worst)),
        "largest_difference": float(worst.max()),
        "n_differing": int((worst > SMALL).sum()),
        "n_narrower": int(narrower.sum()),
        "n_known_differing": int((graph["known"] != python.known).sum()),
    }


def time_in_turn(reg: Any, rows: np.ndarray, session: Any, repeats: int) -> tuple[float, float]:
    """Milliseconds of the fastest calls of Python and of the graph, for the same answers."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for call, taken in (
            (lambda: reg.predict_with_evidence(rows, LEVELS), seconds[0]),
            (lambda: session.run(None, {"X": rows}), seconds[1]),
        ):
            start = perf_counter()
            call()
            taken.append(perf_counter() - start)
    return 1e3 * min(seconds[0]), 1e3 * min(seconds[1])


def measure(table: str, model: str, data_dir: Path | None) -> GraphRun:
    X, y, X_test, _ = split_of(table, 0, data_dir)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reg = lvd.LVDRegressor(MODELS[model](), random_state=0).fit(X, y)
        with TemporaryDirectory() as folder:
            written = reg.to_onnx(Path(folder) / "model.onnx", LEVELS)
            session = onnxruntime.InferenceSession(Path(folder) / "model.onnx")
        rows = rows_to_ask(X_test, 0)
        differences = compare(reg, rows, session)
        one = time_in_turn(reg, rows[:1], session, 200)
        many = time_in_turn(reg, rows[:MANY], session, 15)
    return GraphRun(
        table,
        model,
        reg.n_calib_,
        written.n_bytes,
        **differences,
        **dict(zip(("python_one", "graph_one", "python_many", "graph_many"), (*one, *many), strict=True)),
    )


def page(runs: list[GraphRun]) -> str:
    """A row for each model, over all tables."""
    lines = []
    for model in MODELS:
        own = [run for run in runs if run.model == model]
        lines.append(
            [
                model,
                f"{np.mean([run.n_bytes for run in own]) / 1e6:.1f} MB",
                f"{median(run.typical_difference for run in own):.0e}",
                f"{sum(run.n_differing for run in own)} of {len(own) * N_ROWS:,}",
                str(sum(run.n_narrower for run in own)),
                str(sum(run.n_known_differing for run in own)),
                f"{median(run.graph_one for run in own):.2g} ms",
                f"{median(run.graph_one / run.python_one for run in own):.2g}",
                f"{median(run.graph_many for run in own):.3g} ms",
                f"{median(run.graph_many / run.python_many for run in own):.2g}",
            ]
        )
    head = (
        *("model", "file", "typical difference", "rows that differ", "narrower", "known differs"),
        *("one row", "times Python's", "1,000 rows", "times Python's"),
    )
    return bare_table(Grid("", "", head, lines))


def main() -> None:
    """Measure what is missing, or write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, help="the folder with the tables")
    parser.add_argument("--page", action="store_true", help=f"write the figures into {PAGE.name}")
    parser.add_argument("--only", nargs="+", default=list(MODELS), choices=list(MODELS))
    arguments = parser.parse_args()
    runs = read_dataclasses(RESULTS, GraphRun) if RESULTS.exists() else []
    if arguments.page:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{page(runs)}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")
        return
    for table in TABLES:
        for model in arguments.only:
            if (table, model) not in {(run.table, run.model) for run in runs}:
                runs.append(measure(table, model, arguments.data_dir))
                write_dataclasses(runs, RESULTS, GraphRun)
                print(runs[-1], flush=True)


if __name__ == "__main__":
    main()
