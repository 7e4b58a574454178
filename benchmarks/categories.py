"""Categories with many levels: lvd's models on frames and tables, compared with scikit-learn's boosted trees.

``python -m benchmarks.categories`` prints the mean absolute error on new rows relative to scikit-learn's with
native categories or, beyond their limit of 255 levels, with its target encoding.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import TargetEncoder

import lvd
from lvd.tables.table_model import TableModel

LEVELS, SEEDS, N_ROWS, N_NEW, NATIVE = (30, 100, 200, 1000), 5, 6000, 2000, 255


def orders(n_rows: int, n_levels: int, seed: int) -> tuple[pd.DataFrame, pd.Series]:
    """Each shop is a level with its own effect; common shops have more rows than rare ones."""
    effects = np.random.default_rng(n_levels).normal(size=n_levels)
    rng = np.random.default_rng(seed)
    shares = 1.0 / (5.0 + np.arange(n_levels))
    shop = rng.choice(n_levels, n_rows, p=shares / shares.sum())
    size, weight = rng.uniform(0, 3, n_rows), rng.normal(size=n_rows)
    frame = pd.DataFrame(
        {"shop": pd.Categorical([f"shop {one}" for one in shop]), "size": size, "weight": weight}
    )
    y = effects[shop] * (1.0 + 0.3 * size) + np.sin(2.0 * size) + 0.3 * rng.normal(size=n_rows)
    return frame, pd.Series(y, name="paid")


def sklearns(n_levels: int) -> object:
    """Boosted trees with native categories, up to their limit."""
    if n_levels <= NATIVE:
        return HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=0)
    encoder = make_column_transformer((TargetEncoder(random_state=0), ["shop"]), remainder="passthrough")
    return make_pipeline(encoder, HistGradientBoostingRegressor(random_state=0))


def of_table(frame: pd.DataFrame, y: pd.Series, new: pd.DataFrame) -> np.ndarray:
    """Trees on a table as the command line reads it: text cells, and 60% of all rows train."""
    table = pa.Table.from_pandas(frame.assign(shop=frame["shop"].astype(str), paid=y), preserve_index=False)
    regressor = lvd.LVDRegressor("trees", preset="paper", random_state=0)
    model, _ = TableModel.fit(table, regressor, target="paid", split="random")
    rows = pa.Table.from_pandas(new.assign(shop=new["shop"].astype(str)), preserve_index=False)
    return regressor.predict(model.inputs(rows))


def predictions(n_levels: int, seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The predictions of each model on new rows, trained on equally many rows, and the truth."""
    frame, y = orders(N_ROWS, n_levels, seed)
    new, true = orders(N_NEW, n_levels, 1000 + seed)
    new["shop"] = pd.Categorical(new["shop"], categories=frame["shop"].cat.categories)
    new, true = new[new["shop"].notna()], true[new["shop"].notna()]
    train = slice(int(0.6 * N_ROWS))  # a table uses this share for training
    contestants: dict[str, Callable[[], np.ndarray]] = {
        "scikit-learn": lambda: sklearns(n_levels).fit(frame[train], y[train]).predict(new),
        "frame, trees": lambda: lvd.TreesRegressor(random_state=0).fit(frame[train], y[train]).predict(new),
        "frame, default": lambda: (
            lvd.LVDRegressor(calib_size=None, conformity_score="absolute", random_state=0)
            .fit(frame[train], y[train])
            .predict(new)
        ),
        "table, trees": lambda: of_table(frame, y, new),
    }
    return {name: (predict(), true.to_numpy()) for name, predict in contestants.items()}


def main() -> None:
    """Print a line per number of levels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    seeds = range(parser.parse_args().seeds)
    for n_levels in LEVELS:
        errors = [
            {name: np.abs(y_pred - y).mean() for name, (y_pred, y) in predictions(n_levels, seed).items()}
            for seed in seeds
        ]
        mean = {name: np.mean([one[name] for one in errors]) for name in errors[0]}
        own = mean.pop("scikit-learn")
        ratios = "  ".join(f"{name} {error / own:.3f}" for name, error in mean.items())
        print(f"{n_levels} levels: scikit-learn {own:.3f}  {ratios}", flush=True)


if __name__ == "__main__":
    main()
