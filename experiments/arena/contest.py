"""The arena: which method gives the best intervals. Runs the contestants and skips finished results."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from operator import attrgetter
from pathlib import Path

import numpy as np
import torch

from experiments.arena.contestants import CONTESTANTS, error_scale
from experiments.arena.measures import ArenaResult, measure, measure_outside
from experiments.arena.split import ARENA_MODELS, ArenaSplit
from experiments.arena.tables import (
    ARENA_TABLES,
    MORE_TABLES,
    OUTSIDE,
    UNSEEN_TABLES,
    arena_file,
    load_arena_table,
    packaged_file,
)
from experiments.paper.pool import finish_jobs
from experiments.paper.result_store import ResultTable, processor_name
from experiments.paper.runs import check_names, grouped, parse_levels, parse_names, parse_seeds
from lvd._progress import Progress, silent
from lvd._validation import check_levels, check_positive

OUTSIDE_LEVELS = (0.9,)
ARENA_RESULTS = ResultTable(ArenaResult, "a table of the arena", "python -m experiments arena", digits=6)
PLACE = attrgetter("method", "level")


@dataclass(frozen=True)
class ArenaJob:
    """One table, model and seed, whose contestants all share a file and a trained model."""

    table: str
    model: str
    seed: int
    methods: tuple[str, ...]
    levels: tuple[float, ...]

    def file(self, folder: Path) -> Path:
        """The file of its results."""
        return folder / "runs" / f"{self.table}-{self.model}-{self.seed}.csv"

    def missing(self, folder: Path) -> list[tuple[str, float]]:
        """The contestants without a result, or whose result is a failure."""
        done = {PLACE(one) for one in ARENA_RESULTS.known(self.file(folder)) if not one.error}
        return [place for place in product(self.methods, self.levels) if place not in done]


def plan_arena(
    *,
    tables: str = "all",
    models: str = "all",
    methods: str = "all",
    seeds: str = "0:10",
    levels: str = "0.5,0.9,0.95",
    data_dir: Path | None = None,
) -> list[ArenaJob]:
    """The jobs of these names, seed by seed; raises now if a table is missing."""
    named = list(UNSEEN_TABLES) if tables == "unseen" else parse_names(tables, (*ARENA_TABLES, *OUTSIDE))
    check_names(named, (*ARENA_TABLES, *OUTSIDE, *UNSEEN_TABLES), "tables")
    around = parse_names(models, ARENA_MODELS, "models")
    learners = parse_names(methods, CONTESTANTS, "methods")
    numbers, checked = parse_seeds(seeds), tuple(check_levels(parse_levels(levels)).tolist())
    for table in named:
        base = OUTSIDE[table][0] if table in OUTSIDE else table
        if base in MORE_TABLES:
            arena_file(base, data_dir)
        if base in UNSEEN_TABLES:
            packaged_file(UNSEEN_TABLES[base])
    return [
        ArenaJob(
            table,
            model,
            seed,
            tuple(name for name in learners if model in CONTESTANTS[name].models),
            OUTSIDE_LEVELS if table in OUTSIDE else checked,
        )
        for seed in numbers
        for model in around
        for table in named
    ]


def run_arena(
    jobs: Sequence[ArenaJob],
    folder: Path,
    *,
    workers: int = 1,
    data_dir: Path | None = None,
    progress: Progress = silent,
) -> int:
    """Run what `folder` lacks; return how many results were added. A killed process loses at most one."""
    check_positive(workers, "workers", integer=True)
    missing = {job: len(job.missing(folder)) for job in jobs}
    todo = [job for job in jobs if missing[job]]
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    work = partial(_do_arena_job, folder=folder.absolute(), data_dir=data_dir)
    with progress("splits", len(todo)) as on_done:
        for _ in finish_jobs(work, todo, workers):
            on_done(1)
    return sum(missing.values())


def _do_arena_job(job: ArenaJob, *, folder: Path, data_dir: Path | None) -> None:
    """Run the missing contestants, rewriting the file after each."""
    torch.set_num_threads(1)
    split = ArenaSplit(load_arena_table(job.table, data_dir), job.model, job.seed)
    for method, level in job.missing(folder):
        ARENA_RESULTS.put([run_contestant(split, method, level)], job.file(folder), PLACE)


def run_contestant(split: ArenaSplit, method: str, level: float) -> ArenaResult:
    """A contestant's result, or the reason for its failure."""
    contestant = CONTESTANTS[method]
    X = split.X_test[: contestant.most_rows]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # small calibration sets are part of the experiment
            intervals_of, fit_seconds = split.stages.as_if_alone(lambda: contestant.learn(split, level))
            intervals, predict_seconds = split.stages.as_if_alone(lambda: intervals_of(X))
            known = None if contestant.known is None else contestant.known(split, level, X)
            result = measure(
                split,
                level,
                method,
                intervals,
                known=math.nan if known is None else float(known.mean()),
                predicted_error=error_scale(split)(X),
                seconds=(fit_seconds, predict_seconds),
            )
            if not len(split.y_outside):
                return result
            X = split.X_outside[: contestant.most_rows]
            known = np.ones(len(X), bool) if contestant.known is None else contestant.known(split, level, X)
            return measure_outside(result, split.y_outside[: len(X)], intervals_of(X), known)
    except Exception as error:  # whatever fails, the other contestants still run
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return ArenaResult(*split.place, level, method, error=reason, processor=processor_name())


def unpack_arena(table: Path, folder: Path) -> None:
    """Unpack a compact table of results into a folder to resume from; results already there are kept."""
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    for place, results in grouped(ARENA_RESULTS.read(table), attrgetter("table", "model", "seed")).items():
        file = ArenaJob(*place, (), ()).file(folder)
        newer = ARENA_RESULTS.known(file)
        done = set(map(PLACE, newer))
        ARENA_RESULTS.write([*newer, *(one for one in results if PLACE(one) not in done)], file)
