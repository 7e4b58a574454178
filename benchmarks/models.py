"""The built-in models against others: ``python -m benchmarks.models --data-dir FOLDER``, then ``--page``.

Ten tables (the paper's six, diabetes, and three of the arena), at most 5,000 rows of each, 60% of them for
training and 20% for testing, as in ``lvd fit``; three seeds; the root mean squared error on the test rows. Each
finished fit is written at once, and a second call resumes from there.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import RidgeCV
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import lvd
from experiments.arena.tables import load_arena_table
from experiments.paper.formats import Grid, GridEntry, bare_table
from experiments.paper.result_store import read_dataclasses, write_dataclasses
from lvd.data import load_dataset
from lvd.models.candidates import Candidates

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "results" / "models.csv", ROOT / "docs" / "models.md"
TABLES = (
    *("bike", "concrete", "energy", "housing", "kin8nm", "yacht", "diabetes"),
    *("communities", "house", "diamonds"),
)
SEEDS, MOST_ROWS = (0, 1, 2), 5000
BEGIN, END = "<!-- written by python -m benchmarks.models --page -->", "<!-- end -->"


def _lightgbm(seed: int) -> Any:
    from lightgbm import LGBMRegressor

    return LGBMRegressor(random_state=seed, n_jobs=1, verbose=-1)


MODELS: dict[str, Callable[[int], Any]] = {
    "ridge": lambda _: make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 4, 29))),
    "sklearn MLP": lambda seed: TransformedTargetRegressor(
        make_pipeline(StandardScaler(), MLPRegressor(early_stopping=True, random_state=seed)),
        transformer=StandardScaler(),
    ),
    "network before": lambda seed: lvd.NetRegressor(early_stopping=False, device="cpu", random_state=seed),
    "LightGBM": _lightgbm,
    "net": lambda seed: lvd.NetRegressor(device="cpu", random_state=seed),
    "trees": lambda seed: lvd.TreesRegressor(random_state=seed),
}


@dataclass(frozen=True)
class ModelFit:
    """The error of one model on one split."""

    table: str
    seed: int
    model: str
    rmse: float


def split_of(name: str, seed: int, data_dir: Path | None) -> tuple[Any, Any, Any, Any]:
    """Inputs and targets of the training rows, then of the test rows."""
    if name == "diabetes":
        dataset = load_dataset(name)
        y, features = dataset.y, lambda _: dataset.X
    else:
        table = load_arena_table(name, data_dir)
        y, features = table.y, table.features
    kept = np.random.default_rng(seed).permutation(len(y))[:MOST_ROWS]
    train, test = kept[: int(0.6 * len(kept))], kept[int(0.8 * len(kept)) :]
    X = features(train)
    return X[train], y[train], X[test], y[test]


def measure(name: str, seed: int, data_dir: Path | None, fits: list[ModelFit]) -> None:
    """Add what is missing in `fits`, writing them after each model."""
    done = {fit.model: fit for fit in fits if (fit.table, fit.seed) == (name, seed)}
    wanted = [model for model in (*MODELS, "auto") if model not in done]
    if not wanted:
        return
    X, y, X_test, y_test = split_of(name, seed, data_dir)
    for model in wanted:
        if model == "auto":
            built_in = Candidates({one: MODELS[one](seed) for one in ("net", "trees")})
            errors = built_in.choose(X, y[:, None], seed).errors
            rmse = done[min(errors, key=errors.__getitem__)].rmse
        else:
            fitted = MODELS[model](seed).fit(X, y)
            rmse = float(np.sqrt(np.mean((fitted.predict(X_test) - y_test) ** 2)))
        done[model] = ModelFit(name, seed, model, rmse)
        fits.append(done[model])
        write_dataclasses(fits, RESULTS, ModelFit)


def page(fits: list[ModelFit]) -> str:
    """The section of the page: mean errors over the seeds, and how they compare with the goals."""
    names = (*MODELS, "auto")
    means = {
        (table, model): float(np.mean([f.rmse for f in fits if (f.table, f.model) == (table, model)]))
        for table in TABLES
        for model in names
    }
    errors = []
    for table in TABLES:
        own = [means[table, model] for model in names]
        cells = [GridEntry(f"{one:.4g}", emphasis="bold" if one == min(own) else "") for one in own]
        errors.append([table, *cells])
    against: dict[str, tuple[str, Callable[[str], float]]] = {
        "`net`, relative to the better of scikit-learn's MLP and the network before": (
            "net",
            lambda table: min(means[table, "sklearn MLP"], means[table, "network before"]),
        ),
        "`net`, relative to ridge": ("net", lambda table: means[table, "ridge"]),
        "`auto`, relative to the better of `net` and `trees`": (
            "auto",
            lambda table: min(means[table, "net"], means[table, "trees"]),
        ),
        "`auto`, relative to LightGBM": ("auto", lambda table: means[table, "LightGBM"]),
    }
    lines = []
    for text, (model, other) in against.items():
        ratios = {table: means[table, model] / other(table) for table in TABLES}
        worst = max(ratios, key=ratios.__getitem__)
        lines.append([text, f"{np.mean([*ratios.values()]):.3f}", f"{ratios[worst]:.3f}", worst])
    grids = (
        Grid("", "", ("table", *names), errors),
        Grid("", "", ("ratio of errors", "mean", "worst", "on"), lines),
    )
    return "\n\n".join(map(bare_table, grids))


def main() -> None:
    """Measure what is missing, or write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, help="the folder with the tables")
    parser.add_argument("--page", action="store_true", help=f"write the figures into {PAGE.name}")
    arguments = parser.parse_args()
    fits = read_dataclasses(RESULTS, ModelFit) if RESULTS.exists() else []
    if arguments.page:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{page(fits)}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")
        return
    for seed in SEEDS:
        for name in TABLES:
            measure(name, seed, arguments.data_dir, fits)


if __name__ == "__main__":
    main()
