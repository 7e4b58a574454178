"""Skipping calibration rows that are far from the query, against weighing them all: ``python -m benchmarks.index``.

A million rows in ten dimensions: on a sheet, in blobs, in a cube of which a query sees much, and in one cloud so
dense that every row matters. The index is built, made again from leaves that are known, as after loading, and
updated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from lvd.quantiles import engine
from lvd.quantiles import index_search
from lvd.quantiles.index import make_clusters
from lvd.quantiles.leaves import Leaves
from lvd.kernels import tiles

LEVELS = np.array([0.5, 0.9])
N_ROWS, N_QUERIES, N_COMPARED, N_NEW, K = 1_000_000, 16_384, 256, 10_000, 10


def sheet(n: int, rng: np.random.Generator) -> np.ndarray:
    """Two directions of variation in ten, and a little noise."""
    return uniform(2, 79.0, n, rng)


def cube(n: int, rng: np.random.Generator) -> np.ndarray:
    """Three directions of variation in ten: a good part of the rows lies near a group of queries."""
    return uniform(3, 25.0, n, rng)


def uniform(n_directions: int, side: float, n: int, rng: np.random.Generator) -> np.ndarray:
    directions = np.linalg.qr(np.random.default_rng(1).normal(size=(K, K)))[0][:, :n_directions]
    return rng.uniform(0, side, size=(n, n_directions)) @ directions.T + 0.05 * rng.normal(size=(n, K))


def blobs(n: int, rng: np.random.Generator) -> np.ndarray:
    """Four hundred blobs far apart, each with three directions of variation."""
    shapes = np.random.default_rng(2)
    centres, axes = 6.0 * shapes.normal(size=(400, K)), 0.45 * shapes.normal(size=(400, 3, K))
    which = rng.integers(400, size=n)
    within = np.einsum("nd,ndk->nk", rng.normal(size=(n, 3)), axes[which])
    return centres[which] + within + 0.02 * rng.normal(size=(n, K))


def cloud(n: int, rng: np.random.Generator) -> np.ndarray:
    """As in the paper's largest experiment: all rows have weight."""
    return 0.6 / K**0.5 * rng.normal(size=(n, K))


def compare(name: str, make: Callable[[int, np.random.Generator], np.ndarray]) -> list[str]:
    rng = np.random.default_rng(0)
    calibration = engine.sort_calibration(
        torch.tensor(make(N_ROWS, rng)), torch.tensor(rng.exponential(size=N_ROWS))
    )
    queries = torch.tensor(make(N_QUERIES, rng))
    own = torch.tensor([1.0, 0.0], dtype=torch.float64).expand(N_QUERIES, 2)
    size = float(tiles.effective_sample_size(queries[:64], calibration.points).median())

    def ask(n: int) -> torch.Tensor:
        return engine.radius(queries[:n], calibration, LEVELS)

    ask(index_search.LEAST_QUERIES)
    local = calibration.leaves.found
    n_queries = N_QUERIES if local else N_COMPARED
    ours, every = [], []
    for _ in range(3):
        ours.append(processor_seconds(lambda: ask(n_queries)))
        every.append(
            processor_seconds(
                lambda: engine.from_all_rows(queries[:N_COMPARED], calibration, LEVELS, own[:N_COMPARED])
            )
        )
    exact = index_search.search(queries, calibration, LEVELS, own)[1].double().mean() if local else 0.0
    each, of_all = sorted(ours)[1] / n_queries, sorted(every)[1] / N_COMPARED
    return [
        name,
        f"{size:,.0f}",
        f"{1e3 * of_all:.2f}",
        f"{1e3 * each:.3f}",
        f"{of_all / each:.1f}",
        f"{float(exact):.2%}" if local else "not used",
        *(f"{seconds:.1f}" for seconds in index_seconds(calibration.points, torch.tensor(make(N_NEW, rng)))),
    ]


def index_seconds(points: torch.Tensor, new: torch.Tensor) -> Iterator[float]:
    """Building the index, making it from known leaves, and making it when new rows have come."""
    leaves = Leaves.unknown(len(points))
    for now in (points, points, torch.cat([points, new])):
        leaves = leaves.joined(len(now) - len(leaves.numbers))
        yield processor_seconds(partial(make_index, now, leaves))


def make_index(points: torch.Tensor, leaves: Leaves) -> None:
    make_clusters(points, points.new_ones(len(points)), leaves.of(torch.arange(len(points)), points))


def processor_seconds(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def main() -> None:
    torch.set_num_threads(1)  # processor time adds up threads
    table = Table(
        "rows",
        "effective sample size",
        "all rows, ms a query",
        "lvd, ms a query",
        "ratio",
        "certified exact",
        "building, s",
        "known leaves, s",
        f"{N_NEW:,} new rows, s",
        title=f"{N_QUERIES:,} queries x {N_ROWS:,} rows, k = {K}, two levels: processor time",
    )
    console = Console()
    for name, make in (("sheet", sheet), ("blobs", blobs), ("cube", cube), ("cloud", cloud)):
        with console.status(name):
            table.add_row(*compare(name, make))
    console.print(table)


if __name__ == "__main__":
    main()
