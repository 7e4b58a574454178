"""Runs the plan: in this process, in several, or on a Ray cluster. What is finished is not done again."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from lvd._validation import InputError, check_choice, check_positive
from lvd.data import load
from lvd.experiments import store
from lvd.experiments.methods import METHODS
from lvd.experiments.protocols import get_protocol
from lvd.experiments.runs import Job, Run, group_by_split
from lvd.experiments.split import Split

ENGINES = ("local", "ray")


def execute(
    runs: Iterable[Run],
    folder: Path,
    *,
    workers: int = 1,
    engine: str = "local",
    data_dir: Path | None = None,
    on_done: Callable[[int], None] | None = None,
) -> None:
    """Do all runs that are not finished in `folder` yet.

    A failed run is recorded with its error, does not stop the rest, and is tried again next time. A killed
    process loses the runs in flight, no more. `on_done` is told how many runs were just done.
    """
    check_choice(engine, "engine", ENGINES)
    check_positive(workers, "workers", integer=True)
    jobs = group_by_split(unfinished(runs, folder))
    _fetch_tables(jobs, data_dir)
    folder.mkdir(parents=True, exist_ok=True)
    work = partial(do_job, folder=folder, data_dir=data_dir)
    for done in _ENGINES[engine](work, jobs, workers):
        if on_done is not None:
            on_done(done)


def unfinished(runs: Iterable[Run], folder: Path) -> list[Run]:
    """The runs that have no result yet, and those that failed."""
    paths = ((run, store.path_of(folder, run)) for run in runs)
    return [run for run, path in paths if not path.exists() or store.read_error(path) is not None]


def failures(runs: Iterable[Run], folder: Path) -> list[tuple[Run, str]]:
    """The runs that failed, with their errors."""
    paths = ((run, store.path_of(folder, run)) for run in runs)
    errors = ((run, store.read_error(path)) for run, path in paths if path.exists())
    return [(run, error) for run, error in errors if error is not None]


def do_job(job: Job, *, folder: Path, data_dir: Path | None) -> int:
    """Do the runs of one split, storing each as it ends; returns how many there were."""
    torch.set_num_threads(1)
    protocol = get_protocol(job.protocol)
    split = Split(load(job.dataset, protocol=protocol.data, data_dir=data_dir), protocol, job.seed)
    for run in job.runs:
        store.write(folder, _do_run(run, split))
    return len(job.runs)


def _do_run(run: Run, split: Split) -> store.Result:
    start = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # small calibration sets are part of the experiment
            prediction, seconds = split.stages.as_if_alone(
                lambda: METHODS[run.method](split, np.array(run.levels))
            )
    except Exception as error:  # whatever it is, the other runs go on
        return store.failure(run, f"{type(error).__name__}: {error}", time.process_time() - start)
    return store.Result(
        run, split.test, split.y[split.test], prediction.y_pred, prediction.intervals, seconds
    )


def _fetch_tables(jobs: list[Job], data_dir: Path | None) -> None:
    """Load every dataset once: a missing one is told before the work begins, and none is downloaded twice."""
    for dataset in dict.fromkeys(job.dataset for job in jobs):
        load(dataset, data_dir=data_dir)


def _run_locally(work: Callable[[Job], int], jobs: list[Job], workers: int) -> Iterator[int]:
    if workers == 1:
        yield from map(work, jobs)
        return
    # Fresh interpreters: a forked one would inherit torch's threads in an undefined state.
    context = get_context("spawn")
    with ProcessPoolExecutor(
        workers, mp_context=context, initializer=_end_with_parent, initargs=(os.getpid(),)
    ) as pool:
        try:
            for future in as_completed([pool.submit(work, job) for job in jobs]):
                yield future.result()
        except BrokenProcessPool:
            raise InputError(
                "a worker was killed, maybe for want of memory; finished runs are kept: "
                "start again with fewer workers"
            ) from None


def _run_on_ray(work: Callable[[Job], int], jobs: list[Job], workers: int) -> Iterator[int]:
    try:
        import ray
    except ModuleNotFoundError:
        raise InputError("engine='ray' needs Ray: pip install 'lvd[ray]'") from None
    ray.init(
        ignore_reinit_error=True, log_to_driver=False, num_cpus=workers if not ray.is_initialized() else None
    )
    remote = ray.remote(num_cpus=1)(work)
    pending = [remote.remote(job) for job in jobs]
    while pending:
        finished, pending = ray.wait(pending)
        yield from ray.get(finished)


_ENGINES = {"local": _run_locally, "ray": _run_on_ray}


def _end_with_parent(parent: int) -> None:
    """A worker whose parent was killed would wait for work for ever; this ends it."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
