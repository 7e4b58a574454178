"""Today's methods on QM8 and QM9, with random splits and on unseen scaffolds: their runs and measures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.molecules.group_counts import GroupCount
from experiments.molecules.groups import GROUPS, RULES, group_members
from experiments.paper.methods import MAIN_VARIANT
from experiments.paper.networks import AROUND_MEMBERS, HELD_OUT_MADSPLIT, parts_of
from experiments.paper.pool import finish_jobs
from experiments.paper.protocols import get_protocol
from experiments.paper.result_store import Result, ResultTable, path_of, read_result
from experiments.paper.runner import Tables, do_job, execute, load_tables, plan
from experiments.paper.runs import BenchRun, Job, group_by_split, parse_names, parse_seeds, task_of
from lvd import InputError, metrics
from lvd._progress import Progress, silent
from lvd._typing import NDArray
from lvd._validation import check_choice
from lvd.intervals import covered, widths
from lvd.metrics.interval_metrics import widened_range
from lvd.molecules.domain import count_fingerprints

STUDY_METHODS = (*AROUND_MEMBERS, MAIN_VARIANT, "split", HELD_OUT_MADSPLIT, "CQR", "DE")
STUDY_SPLITS = {"random": "sound", "scaffold": "scaffold"}
"""The kinds of split, with the protocol of each."""
STUDY_LEVEL = 0.9


@dataclass(frozen=True)
class MoleculeResult:
    """A method on one task and split; `error` is the reason for a failure, and then figures are NaN.

    Rates are in percent. `ert` is the L1 excess risk of the target coverage predicted from fingerprints, with
    its parts from under- and over-covered molecules. For `score`, the Winkler score, intervals are clipped to
    the range of the training y widened by a tenth, so that an infinite one counts as that range. `groups` holds
    "covered/rows" for the functional groups, by each of the rules.
    """

    split: str
    dataset: str
    seed: int
    method: str
    n_test: int = 0
    finite: float = math.nan
    MCR: float = math.nan
    TCR: float = math.nan
    MAD: float = math.nan
    width: float = math.nan
    score: float = math.nan
    ert: float = math.nan
    ert_under: float = math.nan
    ert_over: float = math.nan
    seconds: float = math.nan
    groups: str = ""
    error: str = ""

    def group_counts(self) -> list[GroupCount]:
        """The functional groups, each with its covered rows."""
        keys = [(rule, group.name) for rule in RULES for group in GROUPS]
        pairs = [tuple(map(int, pair.split("/"))) for pair in self.groups.split()]
        place = (STUDY_SPLITS[self.split], self.dataset, self.method, self.seed, STUDY_LEVEL)
        return [GroupCount(*place, *key, n, hits) for key, (hits, n) in zip(keys, pairs, strict=True)]


STUDY_RESULTS = ResultTable(
    *(MoleculeResult, "a table of the study on molecules", "python -m experiments molecules"),
    digits=6,
    part="measures",
)


def plan_study(
    *,
    tables: str,
    splits: str = "random,scaffold",
    methods: str = "all",
    seeds: str,
) -> list[BenchRun]:
    """The runs of these names, seed by seed."""
    named, kinds = parse_names(tables), parse_names(splits)
    for split in kinds:
        check_choice(split, "splits", tuple(STUDY_SPLITS))
    chosen: dict[str, Any] = {"methods": parse_names(methods, STUDY_METHODS), "levels": [STUDY_LEVEL]}
    return [
        run
        for seed in parse_seeds(seeds)
        for split in kinds
        for run in plan(protocol=STUDY_SPLITS[split], datasets=named, seeds=[seed], **chosen)
    ]


def run_study(
    runs: Sequence[BenchRun],
    folder: Path,
    *,
    workers: int = 1,
    data_dir: Path | None = None,
    progress: Progress = silent,
) -> int:
    """Run what `folder` lacks; return how many results were added. A killed process loses at most one task."""
    missing = len(unmeasured(runs, folder))
    execute(runs, folder, workers=workers, data_dir=data_dir, progress=progress, work=do_and_measure)
    jobs = group_by_split(unmeasured(runs, folder))  # for runs finished by other processes
    work = partial(measure_job, folder=folder.absolute(), tables=load_tables(jobs, data_dir))
    with progress("measures", len(jobs)) as on_done:
        for _ in finish_jobs(work, jobs, workers):
            on_done(1)
    return missing


def do_and_measure(job: Job, *, folder: Path, tables: Tables) -> int:
    """Do the runs of a task and measure them."""
    done = do_job(job, folder=folder, tables=tables)
    measure_job(job, folder=folder, tables=tables)
    return done


def measure_job(job: Job, *, folder: Path, tables: Tables) -> int:
    """Measure the finished runs of a task."""
    torch.set_num_threads(1)
    protocol = get_protocol(job.protocol)
    dataset = tables[job.table, protocol.data]
    train, _, test = parts_of(dataset, protocol.split, job.seed, protocol.sizes)
    smiles, task = dataset.X[test], dataset.target_names.index(task_of(job.runs[0].dataset))
    by_group = group_members(smiles)
    measure = partial(
        _measure,
        test=test,
        fingerprints=count_fingerprints(smiles),
        members=[by_group[rule, group.name] for rule in RULES for group in GROUPS],
        y_range=widened_range(dataset.y[train, task]),
    )
    for run in job.runs:
        file = measure_file(folder, run)
        file.parent.mkdir(parents=True, exist_ok=True)
        STUDY_RESULTS.write([measure(read_result(path_of(folder, run)))], file)
    return len(job.runs)


def _measure(
    result: Result,
    test: NDArray,
    fingerprints: NDArray,
    members: Sequence[NDArray],
    y_range: tuple[float, float],
) -> MoleculeResult:
    run = result.run
    place = (get_protocol(run.protocol).split, run.dataset, run.seed, run.method)
    if result.error is not None:
        return MoleculeResult(*place, error=result.error)
    if not np.array_equal(result.rows, test):
        raise InputError(f"the result of {run.key} is about other rows; delete it and run again")
    y, intervals = result.y, result.intervals[:, :, run.levels.index(STUDY_LEVEL)]
    ert = metrics.excess_risk_of_target_coverage(fingerprints, y, intervals, STUDY_LEVEL)
    cut, hits = np.clip(intervals, *y_range), covered(y, intervals)
    return MoleculeResult(
        *place,
        n_test=len(y),
        finite=100 * metrics.finite_fraction(intervals),
        MCR=100 * metrics.marginal_coverage_rate(y, intervals),
        TCR=100 * metrics.tail_coverage_rate(y, intervals),
        MAD=metrics.mean_absolute_deviation(y, result.y_pred[:, 0]),
        width=float(widths(cut).mean()),
        score=metrics.winkler_score(y, cut, STUDY_LEVEL),
        ert=100 * ert.total,
        ert_under=100 * ert.under,
        ert_over=100 * ert.over,
        seconds=result.seconds,
        groups=" ".join(f"{int(hits[one].sum())}/{int(one.sum())}" for one in members),
    )


def measure_file(folder: Path, run: BenchRun) -> Path:
    """The file of a run's measures."""
    return folder / "measures" / f"{run.key}.csv"


def unmeasured(runs: Iterable[BenchRun], folder: Path) -> list[BenchRun]:
    """The runs without measures, and those that failed."""
    return [
        run
        for run in runs
        if not (file := measure_file(folder, run)).exists()
        or any(one.error for one in STUDY_RESULTS.read(file))
    ]
