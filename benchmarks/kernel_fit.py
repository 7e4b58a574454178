"""Training a kernel until it stops by itself, on the CPU: ``python -m benchmarks.kernel_fit [--rows N ...]``.

Rows have 8 hidden directions of variation, and targets depend on one of them, with noise. Up to 100,000 rows each
batch is predicted from all of them, above from a fresh sample of 100,000. Ten million rows have 20 dimensions, so
that they fit into memory, fewer have 100.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import lvd
from benchmarks.cell import with_peak_memory

N_TEST, N_LATENT, NOISE = 2_000, 8, 0.2


def make_data(n_rows: int, n_columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings like those behind a layer of rectifiers, float32, and targets; filled in pieces."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(N_LATENT, n_columns)).astype(np.float32)
    embeddings, y = np.empty((n_rows, n_columns), np.float32), np.empty(n_rows)
    for start in range(0, n_rows, 100_000):
        rows = slice(start, min(start + 100_000, n_rows))
        latent = rng.normal(size=(rows.stop - start, N_LATENT)).astype(np.float32)
        embeddings[rows] = np.maximum(latent @ mixing, 0.0)
        y[rows] = np.sin(2.0 * latent[:, 0]) + NOISE * rng.normal(size=len(latent))
    return embeddings, y


def measure(n_rows: int, n_columns: int) -> list[str]:
    embeddings, y = make_data(n_rows + N_TEST, n_columns)
    kernel = lvd.MahalanobisKernel(device="cpu", random_state=0)
    start = time.perf_counter()
    _, added = with_peak_memory(lambda: kernel.fit(embeddings[:n_rows], y[:n_rows]), "cpu")
    seconds = time.perf_counter() - start
    test = y[n_rows:]
    residual = test - kernel.predict(embeddings[n_rows:])
    explained = 1.0 - residual.var() / test.var()
    best = 1.0 - NOISE**2 / test.var()
    return [
        f"{n_rows:,}",
        str(n_columns),
        f"{seconds:.1f}",
        str(kernel.n_iter_),
        f"{1e3 * seconds / kernel.n_iter_:.0f}",
        f"{added:,.0f}",
        f"{explained:.3f} of {best:.3f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000, 100_000, 1_000_000, 10_000_000])
    arguments = parser.parse_args()
    console = Console(width=110)
    table = Table(
        "rows",
        "dimensions",
        "seconds",
        "batches",
        "ms a batch",
        "MB added",
        "R^2 of its kernel regression",
        title=f"until no better batch came for 50, {torch.get_num_threads()} threads, torch {torch.__version__}",
    )
    for n_rows in arguments.rows:
        table.add_row(*measure(n_rows, 100 if n_rows <= 1_000_000 else 20))
    console.print(table)


if __name__ == "__main__":
    main()
