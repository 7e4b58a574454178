"""The arena: who gives the best intervals. Runs the contestants; what is finished is not done again."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from lvd._validation import InputError, check_levels, check_positive
from lvd.reproduction.arena_measures import ArenaResult, failed, measure, measure_outside
from lvd.reproduction.arena_methods import CONTESTANTS, error_scale
from lvd.reproduction.arena_split import ARENA_MODELS, ArenaSplit
from lvd.reproduction.arena_tables import (
    ARENA_TABLES,
    MORE_TABLES,
    OUTSIDE,
    arena_file,
    check_arena_names,
    load_arena_table,
)
from lvd.reproduction.pool import Progress, finish_jobs, silent
from lvd.reproduction.result_store import read_dataclasses, write_dataclasses

ARENA_LEVELS, OUTSIDE_LEVELS = (0.5, 0.9, 0.95), (0.9,)
DIGITS = 6


@dataclass(frozen=True)
class ArenaJob:
    """One table, model and seed, all of whose contestants share a file and a trained model."""

    table: str
    model: str
    seed: int
    methods: tuple[str, ...]
    levels: tuple[float, ...]

    def file(self, folder: Path) -> Path:
        """Where its results are kept."""
        return folder / "runs" / f"{self.table}-{self.model}-{self.seed}.csv"

    def missing(self, folder: Path) -> list[tuple[str, float]]:
        """What has no result yet, or one that failed."""
        done = {(one.method, one.level) for one in read_arena_file(self.file(folder)) if not one.error}
        return [
            (method, level) for method in self.methods for level in self.levels if (method, level) not in done
        ]


def plan_arena(
    *,
    tables: Sequence[str] = (*ARENA_TABLES, *OUTSIDE),
    models: Sequence[str] = ARENA_MODELS,
    methods: Sequence[str] = tuple(CONTESTANTS),
    seeds: Iterable[int] = range(10),
    levels: Sequence[float] = ARENA_LEVELS,
    data_dir: Path | None = None,
) -> list[ArenaJob]:
    """The jobs, seed by seed; a table that is not there is told now."""
    check_arena_names(list(tables), (*ARENA_TABLES, *OUTSIDE), "tables")
    check_arena_names(list(models), ARENA_MODELS, "models")
    check_arena_names(list(methods), tuple(CONTESTANTS), "methods")
    checked = tuple(check_levels(list(levels)).tolist())
    for table in tables:
        base = OUTSIDE[table][0] if table in OUTSIDE else table
        if base in MORE_TABLES:
            arena_file(base, data_dir)
    return [
        ArenaJob(
            table,
            model,
            seed,
            tuple(name for name in methods if model in CONTESTANTS[name].models),
            OUTSIDE_LEVELS if table in OUTSIDE else checked,
        )
        for seed in seeds
        for model in models
        for table in tables
    ]


def run_arena(
    jobs: Sequence[ArenaJob],
    folder: Path,
    *,
    workers: int = 1,
    data_dir: Path | None = None,
    progress: Progress = silent,
) -> int:
    """Do what `folder` does not have yet; returns how many results that made. A killed process loses one."""
    check_positive(workers, "workers", integer=True)
    todo = [job for job in jobs if job.missing(folder)]
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    work, n_results = partial(do_arena_job, folder=folder.absolute(), data_dir=data_dir), 0
    with progress("splits", len(todo)) as on_done:
        for n_done in finish_jobs(work, todo, workers):
            n_results += n_done
            on_done(1)
    return n_results


def do_arena_job(job: ArenaJob, *, folder: Path, data_dir: Path | None) -> int:
    """Run the contestants that are missing, and write the file again after each."""
    torch.set_num_threads(1)
    split = ArenaSplit(load_arena_table(job.table, data_dir), job.model, job.seed)
    missing, file = job.missing(folder), job.file(folder)
    for method, level in missing:
        result = run_contestant(split, method, level)
        others = [one for one in read_arena_file(file) if (one.method, one.level) != (method, level)]
        write_arena([*others, result], file)
    return len(missing)


def run_contestant(split: ArenaSplit, method: str, level: float) -> ArenaResult:
    """A contestant's result, or the reason why it has none."""
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
    except Exception as error:  # whatever it is, the others go on
        return failed(split, level, method, " ".join(f"{type(error).__name__}: {error}".split()))


def read_arena_file(path: Path) -> list[ArenaResult]:
    """The results in one file; none where there is none."""
    try:
        return read_dataclasses(path, ArenaResult) if path.exists() else []
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} holds no results of the arena ({error}); delete it and run again"
        ) from error


def read_arena(source: Path) -> list[ArenaResult]:
    """All results of a folder, or of a compact table."""
    files = sorted((source / "runs").glob("[!.]*.csv")) if source.is_dir() else [source]
    results = [result for file in files for result in read_arena_file(file)]
    if not results:
        raise InputError(
            f"no results of the arena in {source}; make some with: lvd bench arena --out {source}"
        )
    return results


def unpack_arena(table: Path, folder: Path) -> None:
    """Lay the results of a compact table into a folder, so that a run goes on from them; newer ones stay."""
    by_file: dict[Path, list[ArenaResult]] = {}
    for one in read_arena(table):
        by_file.setdefault(ArenaJob(one.table, one.model, one.seed, (), ()).file(folder), []).append(one)
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    for file, results in by_file.items():
        if not file.exists():
            write_arena(results, file)


def write_arena(results: Sequence[ArenaResult], path: Path) -> None:
    """All results as one compact table."""
    write_dataclasses(results, path, ArenaResult, digits=DIGITS)
