"""``python -m experiments.arena``: run the arena with only lvd's numerical packages installed.

The same as ``python -m experiments arena``, which needs typer; each continues what the other has done. Rivals
whose package is missing are recorded with that reason.
"""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from experiments.arena.contest import ARENA_LEVELS, plan_arena, run_arena
from experiments.arena.contestants import CONTESTANTS
from experiments.arena.split import ARENA_MODELS
from experiments.arena.tables import ARENA_TABLES, OUTSIDE, UNSEEN_TABLES
from experiments.paper.result_store import recorded_call
from experiments.paper.runs import parse_levels, parse_names, parse_seeds

if __name__ == "__main__":  # worker processes import this file, too
    parser = ArgumentParser(prog="python -m experiments.arena")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tables", default="all", help="names; all but those never looked at; unseen: these")
    parser.add_argument("--models", default="all")
    parser.add_argument("--methods", default="all")
    parser.add_argument("--seeds", default="0:10")
    parser.add_argument("--levels", default=",".join(map(str, ARENA_LEVELS)))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--data-dir", type=Path)
    given = parser.parse_args()
    tables = parse_names(given.tables, (*ARENA_TABLES, *OUTSIDE))
    jobs = plan_arena(
        tables=list(UNSEEN_TABLES) if tables == ["unseen"] else tables,
        models=parse_names(given.models, ARENA_MODELS),
        methods=parse_names(given.methods, CONTESTANTS),
        seeds=parse_seeds(given.seeds),
        levels=parse_levels(given.levels),
        data_dir=given.data_dir,
    )
    chosen = ("tables", "models", "methods", "seeds", "levels", "workers")
    words = " ".join(f"--{name} {getattr(given, name)}" for name in chosen)
    with recorded_call(given.out, f"python -m experiments.arena {words} --out RESULTS") as count:
        done = run_arena(jobs, given.out, workers=given.workers, data_dir=given.data_dir)
        count(done)
    print(done, "results")
