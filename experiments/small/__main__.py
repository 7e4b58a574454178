"""``python -m experiments.small``: draw small samples with only lvd's numerical packages installed.

The same as ``python -m experiments small-samples``, which needs typer; each continues what the other has done.
"""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from experiments.small.study import SMALL_RESULTS, run_small, small_jobs

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
    names = ("samples", "models", "methods", "sizes", "draws")
    todo = small_jobs(**{name: getattr(given, name) for name in names})
    run_small(todo, given.out, workers=given.jobs, minutes=given.minutes)
    results = SMALL_RESULTS.read(given.out)
    print(len(results), "results,", sum(bool(one.error) for one in results), "failed")
    if given.csv is not None:
        SMALL_RESULTS.write(results, given.csv)
