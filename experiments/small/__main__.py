"""``python -m experiments.small``: draw small samples with only lvd's numerical packages installed.

The same as ``python -m experiments small-samples``, which needs typer; each continues what the other has done.
"""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from experiments.arena.split import ARENA_MODELS
from experiments.paper.runs import parse_names, parse_seeds
from experiments.small.samples import SAMPLES
from experiments.small.study import (
    SMALL_METHODS,
    SMALL_SIZES,
    plan_small,
    read_small,
    run_small,
    write_small,
)

if __name__ == "__main__":  # worker processes import this file, too
    parser = ArgumentParser(prog="python -m experiments.small")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--samples", default="all")
    parser.add_argument("--models", default="all")
    parser.add_argument("--methods", default="all")
    parser.add_argument("--sizes", default="all")
    parser.add_argument("--draws", default="0:500")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    jobs = plan_small(
        samples=parse_names(given.samples, SAMPLES),
        models=parse_names(given.models, ARENA_MODELS),
        methods=parse_names(given.methods, SMALL_METHODS),
        sizes=parse_names(given.sizes, SMALL_SIZES),
        draws=parse_seeds(given.draws),
    )
    run_small(jobs, given.out, workers=given.jobs, minutes=given.minutes)
    results = read_small(given.out)
    print(len(results), "results,", sum(bool(one.error) for one in results), "failed")
    if given.csv is not None:
        write_small(results, given.csv)
