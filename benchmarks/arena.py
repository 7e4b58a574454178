"""The costs of the arena's contestants: ``python -m benchmarks.arena --data-dir FOLDER --csv arena_costs.csv``.

In the arena the contestants of a split share trained models and a process, which hides individual costs. Here
each one gets a fresh process, one table and one level, and trains whatever it needs. Seconds are processor
time.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from time import process_time

import torch
from rich.console import Console

from benchmarks.cell import with_peak_memory
from experiments.arena.contestants import CONTESTANTS
from experiments.arena.costs import COSTS, ArenaCost, costs_grid
from experiments.arena.split import ARENA_MODELS, ArenaSplit
from experiments.arena.tables import load_arena_table
from experiments.paper.result_store import processor_name

LEVEL, SMALL_TABLE = 0.9, "concrete"


def cost_of(method: str, table: str, model: str, data_dir: Path | None) -> ArenaCost:
    """Fit and predict once, after a warm-up on a small table that imports and compiles."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    cost = partial(ArenaCost, table, model, method, processor=processor_name())
    try:
        small, split = (
            ArenaSplit(load_arena_table(name, data_dir), model, 0) for name in (SMALL_TABLE, table)
        )
        CONTESTANTS[method].learn(small, LEVEL)(small.X_test)
        X = split.X_test[: CONTESTANTS[method].most_rows]
        (fitted, predicted), megabytes = with_peak_memory(partial(_seconds, method, split, X), "cpu")
    except Exception as error:  # whatever fails, the other contestants still run
        return cost(error=" ".join(f"{type(error).__name__}: {error}".split()))
    return cost(len(split.X_train), len(X), fitted, predicted, megabytes)


def _seconds(method: str, split: ArenaSplit, X: object) -> tuple[float, float]:
    started = process_time()
    intervals_of = CONTESTANTS[method].learn(split, LEVEL)
    fitted = process_time()
    intervals_of(X)
    return fitted - started, process_time() - fitted


def alone(method: str, table: str, model: str, data_dir: Path | None) -> ArenaCost:
    """The same in a separate process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(cost_of, method, table, model, data_dir).result()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.arena", description=__doc__)
    parser.add_argument("--table", default="protein", help="default: %(default)s")
    parser.add_argument("--methods", nargs="+", default=list(CONTESTANTS), metavar="NAME")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--csv", type=Path, required=True, help="what it has is not done again")
    options = parser.parse_args(arguments)
    costs = COSTS.known(options.csv)
    done = {(one.table, one.model, one.method) for one in costs if not one.error}
    for model in ARENA_MODELS:
        for method in options.methods:
            if model not in CONTESTANTS[method].models or (options.table, model, method) in done:
                continue
            place = (options.table, model, method)
            others = [one for one in costs if (one.table, one.model, one.method) != place]
            costs = [*others, alone(method, options.table, model, options.data_dir)]
            COSTS.write(costs, options.csv)
    for model in ARENA_MODELS:
        grid = costs_grid([one for one in costs if one.table == options.table], model)
        Console().print(grid.title, *(tuple(one.text for one in row) for row in grid.rows), sep="\n")


if __name__ == "__main__":
    main()
