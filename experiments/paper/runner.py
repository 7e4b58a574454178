"""Runs the plan: in this process, in several, or on a Ray cluster. Finished results are skipped."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from experiments.paper import networks
from experiments.paper.methods import FURTHER_TASK_METHODS, METHODS, TASK_METHODS, Method
from experiments.paper.pool import finish_jobs
from experiments.paper.protocols import get_protocol
from experiments.paper.result_store import Result, failure_of, path_of, read_error, write_result
from experiments.paper.runs import BenchRun, Job, check_names, expand, group_by_split, has_tasks
from experiments.paper.stages import Split, TableSplit, TaskSplit
from lvd import InputError
from lvd._progress import Progress, silent
from lvd._validation import check_choice, check_levels, check_positive
from lvd.data import Dataset, load_dataset
from lvd.molecules.domain import scaffolds

Tables = dict[tuple[str, str], Dataset]
"""Datasets by name and version."""
Work = Callable[..., int]
"""Does a job, its first argument, with ``folder=`` and ``tables=``; returns how many runs it had."""


def plan(
    *,
    protocol: str,
    datasets: Sequence[str],
    methods: Sequence[str] | None = None,
    seeds: Iterable[int],
    levels: Sequence[float] = (0.5, 0.9),
) -> list[BenchRun]:
    """All requested runs, split by split. Without `methods` each dataset gets all that apply to it."""
    by_scaffold = get_protocol(protocol).split == "scaffold"
    checked, seeds = tuple(check_levels(list(levels)).tolist()), list(seeds)
    runs = []
    for dataset in expand(datasets):
        if by_scaffold and not has_tasks(dataset):
            raise InputError(f"protocol {protocol} is for molecules, qm8 and qm9; {dataset} has no scaffolds")
        usual = tuple(TASK_METHODS if has_tasks(dataset) else METHODS)
        known = (*usual, *FURTHER_TASK_METHODS) if has_tasks(dataset) else usual
        chosen = usual if methods is None else methods
        check_names(chosen, known, f"methods for {dataset}")
        runs += [BenchRun(protocol, dataset, method, seed, checked) for seed in seeds for method in chosen]
    return runs


def execute(
    runs: Iterable[BenchRun],
    folder: Path,
    *,
    workers: int = 1,
    engine: str = "local",
    data_dir: Path | None = None,
    progress: Progress = silent,
    work: Work | None = None,
) -> None:
    """Do all runs unfinished in `folder`; networks shared by runs of several tasks come first.

    A failed run is recorded with its error, does not stop the others, and is retried next time. A killed
    process only loses what is in flight. `progress` shows how much of each stage is done, and `work` does a
    job, by default :func:`do_job`.
    """
    check_choice(engine, "engine", tuple(_ENGINES))
    check_positive(workers, "workers", integer=True)
    todo = unfinished(runs, folder)
    jobs = group_by_split(todo)
    tables = load_tables(jobs, data_dir)
    folder.mkdir(parents=True, exist_ok=True)
    missing = networks.untrained(jobs, folder)
    if missing:
        with progress("networks", len(missing)) as on_done:
            networks.train_and_store(
                missing, folder, {name: table for (name, _), table in tables.items()}, on_done
            )
    given = partial(do_job if work is None else work, folder=folder.absolute(), tables=tables)
    with progress("runs", len(todo)) as on_done:
        for done in _ENGINES[engine](given, jobs, workers):
            on_done(done)


def unfinished(runs: Iterable[BenchRun], folder: Path) -> list[BenchRun]:
    """The runs without a result, and those that failed."""
    paths = ((run, path_of(folder, run)) for run in runs)
    return [run for run, path in paths if not path.exists() or read_error(path) is not None]


def failures(runs: Iterable[BenchRun], folder: Path) -> list[tuple[BenchRun, str]]:
    """The runs that failed, with their errors."""
    paths = ((run, path_of(folder, run)) for run in runs)
    errors = ((run, read_error(path)) for run, path in paths if path.exists())
    return [(run, error) for run, error in errors if error is not None]


def do_job(job: Job, *, folder: Path, tables: Tables) -> int:
    """Do the runs of one split, storing each as it ends; return how many there were."""
    torch.set_num_threads(1)
    protocol = get_protocol(job.protocol)
    dataset = tables[job.table, protocol.data]
    if has_tasks(job.table):
        split: Split = TaskSplit(dataset, job.runs[0].dataset, protocol, job.seed, folder)
        methods = TASK_METHODS | FURTHER_TASK_METHODS
    else:
        split, methods = TableSplit(dataset, protocol, job.seed), METHODS
    for run in job.runs:
        write_result(folder, _do_run(run, split, methods[run.method]))
    return len(job.runs)


def _do_run(run: BenchRun, split: Split, method: Method) -> Result:
    start = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # small calibration sets are part of the experiment
            found, seconds = split.stages.as_if_alone(lambda: method(split, np.array(run.levels)))
    except Exception as error:  # whatever fails, the other runs go on
        return failure_of(run, f"{type(error).__name__}: {error}", time.process_time() - start)
    y_pred, intervals = found
    # One prediction for all levels, (n,), or one per level, (n, l).
    by_level = np.broadcast_to(y_pred.T, (len(run.levels), len(y_pred))).T
    return Result(run, split.test, split.y[split.test], by_level, intervals, seconds)


def load_tables(jobs: list[Job], data_dir: Path | None) -> Tables:
    """Load every dataset once, so that a missing one is reported before the work begins."""
    wanted = dict.fromkeys((job.table, get_protocol(job.protocol).data) for job in jobs)
    by_scaffold = {job.table for job in jobs if get_protocol(job.protocol).split == "scaffold"}
    tables = {(name, data): load_dataset(name, protocol=data, data_dir=data_dir) for name, data in wanted}
    return {
        key: replace(table, scaffolds=scaffolds(table.X)) if key[0] in by_scaffold else table
        for key, table in tables.items()
    }


def _run_on_ray(work: Callable[[Job], int], jobs: list[Job], workers: int) -> Iterator[int]:
    """One job is a single-core task; a task whose worker is killed is repeated."""
    from lvd.tables.distributed import cluster, own_errors

    with cluster(n_cpus=workers) as ray, own_errors(ray):
        task, shared = ray.remote(num_cpus=1)(_work_on), ray.put(work)  # send the datasets only once
        pending = [task.remote(shared, job) for job in jobs]
        while pending:
            finished, pending = ray.wait(pending)
            yield from ray.get(finished)


def _work_on(work: Callable[[Job], int], job: Job) -> int:
    return work(job)


_ENGINES: dict[str, Callable[[Callable[[Job], int], list[Job], int], Iterator[int]]] = {
    "local": finish_jobs,
    "ray": _run_on_ray,
}
