"""``python -m experiments.arena``: run the arena with only lvd's numerical packages installed.

The same as ``python -m experiments arena``, which needs typer; each continues what the other has done. Rivals
whose package is missing are recorded with that reason.
"""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from experiments.arena.contest import plan_arena, run_arena
from experiments.paper.result_store import recorded_call

if __name__ == "__main__":  # worker processes import this file, too
    parser = ArgumentParser(prog="python -m experiments.arena")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tables", default="all", help="names; all but those never looked at; unseen: these")
    parser.add_argument("--models", default="all")
    parser.add_argument("--methods", default="all")
    parser.add_argument("--seeds", default="0:10")
    parser.add_argument("--levels", default="0.5,0.9,0.95")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--data-dir", type=Path)
    given = parser.parse_args()
    chosen = {name: getattr(given, name) for name in ("tables", "models", "methods", "seeds", "levels")}
    jobs = plan_arena(**chosen, data_dir=given.data_dir)
    words = " ".join(f"--{name} {value}" for name, value in (chosen | {"workers": given.workers}).items())
    with recorded_call(given.out, f"python -m experiments.arena {words} --out RESULTS") as count:
        done = run_arena(jobs, given.out, workers=given.workers, data_dir=given.data_dir)
        count(done)
    print(done, "results")
