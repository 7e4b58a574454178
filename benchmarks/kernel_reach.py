"""How far rows lie from their centre in learned kernels: ``python -m benchmarks.kernel_reach [TABLE ...]``.

The precision that distances need depends on it. LVDRegressor as it comes, on four fifths of each table.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import lvd
from lvd.kernels import tiles

TABLES = ["housing", "energy", "concrete", "kin8nm", "bike"]


def measure(name: str, data_dir: Path | None) -> list[str]:
    """Norms in scaled coordinates, what rows weigh for others, and for which of them float32 products suffice."""
    dataset = lvd.data.load(name, data_dir=data_dir)
    order = np.random.default_rng(0).permutation(len(dataset.y))
    train, test = np.split(order, [4 * len(order) // 5])
    X, y = (
        np.asarray(dataset.X, dtype=np.float64),
        np.asarray(dataset.y, dtype=np.float64).reshape(len(order), -1),
    )
    regressor = lvd.LVDRegressor(random_state=0).fit(X[train], y[train, 0])
    conformal = regressor.conformals_[0]
    points = conformal.calibration_.rows.points
    prepared = tiles.prepare_points(points)
    norms = (points - prepared.centre).norm(dim=1)
    embeddings = regressor.embed(X[test])
    queries = conformal.kernel.scaled(embeddings)
    suffices = tiles.float32_suffices(tiles.left_factor(queries, prepared), prepared)
    return [
        name,
        f"{len(points):,}",
        f"{float(norms.median()):.1f}",
        f"{float(norms.max()):.1f}",
        f"{np.median(conformal.effective_sample_size(embeddings)):.0f}",
        f"{float(suffices.double().mean()):.0%}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", default=TABLES)
    parser.add_argument("--data-dir", type=Path)
    arguments = parser.parse_args()
    table = Table(
        "table", "rows", "median norm", "largest", "effective sample size", "float32 products suffice for"
    )
    for name in arguments.tables:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", lvd.CalibrationWarning)
            table.add_row(*measure(name, arguments.data_dir))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
