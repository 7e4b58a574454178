"""Many draws of small samples: LVD with split and cross calibration, split conformal prediction and CV+."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from operator import attrgetter
from pathlib import Path

import numpy as np
import torch
from sklearn.base import clone

from experiments.arena.rivals import ToIntervals
from experiments.arena.split import ARENA_MODELS, SharedModel
from experiments.paper.pool import finish_jobs
from experiments.paper.result_store import ResultTable, processor_name
from experiments.paper.runs import grouped, parse_names, parse_seeds
from experiments.paper.stages import Stages
from experiments.small.samples import GROUPS, SAMPLES, Sample
from lvd import LVDRegressor, NetRegressor, SplitConformalRegressor, TreesRegressor, metrics
from lvd._progress import Progress, silent
from lvd._typing import Float, NDArray
from lvd._validation import check_positive
from lvd.engine import jackknife_plus_intervals
from lvd.intervals import covered
from lvd.metrics.interval_metrics import widened_range
from lvd.models.candidates import held_out_folds

SMALL_SIZES = ("60", "120", "250", "500")
"""Numbers of rows, by name."""
SMALL_LEVELS = (0.5, 0.9)
TEST_ROWS = 1000
DRAWS_TOGETHER = 10
"""How many draws share a file of results."""


@dataclass(frozen=True)
class SmallResult:
    """A method on one draw at one level; `error` is the reason for a failure, and then figures are NaN.

    `groups` holds "covered/rows" for each of the five groups. For the interval (Winkler) score, intervals are
    clipped to the range of the sample's y widened by a tenth, so that an infinite one counts as that range.
    `seconds` is the processor time of one fit, as if no model were shared.
    """

    sample: str
    model: str
    n_rows: int
    draw: int
    level: float
    method: str
    coverage: float = math.nan
    groups: str = ""
    finite: float = math.nan
    winkler: float = math.nan
    seconds: float = math.nan
    error: str = ""
    processor: str = ""


SMALL_RESULTS = ResultTable(
    SmallResult, "a table of small samples", "python -m experiments small-samples", digits=5
)
PLACE = attrgetter("draw", "method")


@dataclass(frozen=True)
class SmallJob:
    """Some draws of one size with one model."""

    sample: str
    model: str
    n_rows: int
    draws: tuple[int, ...]
    methods: tuple[str, ...]

    def file(self, folder: Path) -> Path:
        """The file of its results."""
        place = f"{self.draws[0] // DRAWS_TOGETHER * DRAWS_TOGETHER:03d}"
        return folder / "runs" / f"{self.sample}-{self.model}-{self.n_rows}-{place}.csv"

    def missing(self, folder: Path) -> list[tuple[int, str]]:
        """The methods without a result, or whose result is a failure."""
        done = {PLACE(one) for one in SMALL_RESULTS.known(self.file(folder)) if not one.error}
        return [place for place in product(self.draws, self.methods) if place not in done]


def plan_small(
    *,
    samples: str = "all",
    models: str = "all",
    methods: str = "all",
    sizes: str = "all",
    draws: str = "0:500",
) -> list[SmallJob]:
    """The jobs of these names, all samples and sizes of the first draws before the next ones."""
    generators = parse_names(samples, SAMPLES, "samples")
    around = parse_names(models, ARENA_MODELS, "models")
    learners = parse_names(methods, SMALL_METHODS, "methods")
    counts = parse_names(sizes, SMALL_SIZES, "sizes")
    return [
        SmallJob(sample, model, size, tuple(block), tuple(learners))
        for block in grouped(parse_seeds(draws), lambda draw: draw // DRAWS_TOGETHER).values()
        for model in around
        for size in sorted(map(int, counts), reverse=True)
        for sample in generators
    ]


def run_small(
    jobs: Sequence[SmallJob],
    folder: Path,
    *,
    workers: int = 1,
    minutes: float | None = None,
    progress: Progress = silent,
) -> None:
    """Run what `folder` lacks; a killed process loses at most one draw. No draw starts after `minutes`."""
    check_positive(workers, "jobs", integer=True)
    if minutes is not None:
        check_positive(minutes, "minutes")
    until = math.inf if minutes is None else time.time() + 60.0 * minutes
    todo = [job for job in jobs if job.missing(folder)]
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    with progress("jobs", len(todo)) as on_done:
        for _ in finish_jobs(partial(_do_small_job, folder=folder.absolute(), until=until), todo, workers):
            on_done(1)


def _do_small_job(job: SmallJob, *, folder: Path, until: float) -> None:
    """Run what is missing, rewriting the file after each draw."""
    torch.set_num_threads(1)
    missing = job.missing(folder)
    for draw in sorted({draw for draw, _ in missing}):
        if time.time() > until:
            return
        methods = [method for number, method in missing if number == draw]
        found = run_draw(job.sample, job.model, job.n_rows, draw, methods)
        SMALL_RESULTS.put(found, job.file(folder), PLACE)


def run_draw(sample: str, model: str, n_rows: int, draw: int, methods: Sequence[str]) -> list[SmallResult]:
    """Run the methods on one sample and on new rows from its distribution; all share trained models."""
    rng = np.random.default_rng([draw, n_rows, list(SAMPLES).index(sample)])
    given, new = SAMPLES[sample](rng, n_rows), SAMPLES[sample](rng, TEST_ROWS)
    stages, results = Stages(), []
    for method in methods:
        place: tuple[str, str, int, int] = (sample, model, n_rows, draw)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # too few rows is exactly what this study is about
                learn = partial(SMALL_METHODS[method], _estimator(model, stages, draw), given, draw)
                intervals_of, seconds = stages.as_if_alone(learn)
                intervals = intervals_of(new.X)
        except Exception as error:  # whatever fails, the other methods still run
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            results += [SmallResult(*place, level, method, error=reason) for level in SMALL_LEVELS]
            continue
        for number, level in enumerate(SMALL_LEVELS):
            found = _measured(level, given, new, intervals[..., number])
            results.append(SmallResult(*place, level, method, *found, seconds=seconds))
    return [replace(one, processor=processor_name()) for one in results]


def _estimator(model: str, stages: Stages, seed: int) -> SharedModel:
    """The built-in model of that kind, trained once on the same rows."""
    if model == "network":
        return SharedModel(NetRegressor(device="cpu", random_state=seed), stages)
    return SharedModel(TreesRegressor(random_state=seed), stages)


def _measured(
    level: float, given: Sample, new: Sample, intervals: Float[NDArray, "n 2"]
) -> tuple[float, str, float, float]:
    """Coverage, overall and by group, the share of finite intervals, and the score."""
    hits = covered(new.y, intervals)
    groups = " ".join(f"{hits[new.group == g].sum()}/{(new.group == g).sum()}" for g in range(GROUPS))
    score = metrics.winkler_score(new.y, intervals, level, y_range=widened_range(given.y))
    return float(hits.mean()), groups, metrics.finite_fraction(intervals), score


def _split(estimator: SharedModel, given: Sample, seed: int) -> ToIntervals:
    reg = SplitConformalRegressor(estimator, device="cpu", random_state=seed).fit(given.X, given.y)
    return lambda X: reg.predict_interval(X, list(SMALL_LEVELS))[1]


def _lvd(estimator: SharedModel, given: Sample, seed: int, *, calibration: str) -> ToIntervals:
    reg = LVDRegressor(
        estimator,
        calibration=calibration,
        confidence_level=list(SMALL_LEVELS),
        device="cpu",
        random_state=seed,
    ).fit(given.X, given.y)
    return lambda X: reg.predict_interval(X)[1]


def _cv_plus(estimator: SharedModel, given: Sample, seed: int) -> ToIntervals:
    """CV+ (Barber et al. 2021), with the folds of the cross-validated errors and their models."""
    X, y = given.X, given.y[:, None]
    folds, models, residuals = np.empty(len(y), np.int64), [], np.empty_like(y)
    for number, (inside, outside) in enumerate(held_out_folds(len(y), seed)):
        models.append(clone(estimator).fit(X[inside], y[inside]))
        folds[outside] = number
        residuals[outside] = np.abs(y[outside] - models[-1].evaluate(X[outside]).y_pred)

    def intervals(X_new: NDArray) -> NDArray:
        by_fold = np.stack([model.evaluate(X_new).y_pred for model in models])
        return jackknife_plus_intervals(by_fold[folds], residuals, np.array(SMALL_LEVELS))[..., 0]

    return intervals


SMALL_METHODS: dict[str, Callable[[SharedModel, Sample, int], ToIntervals]] = {
    "split": _split,
    "cv-plus": _cv_plus,
    "lvd-split": partial(_lvd, calibration="split"),
    "lvd-cross": partial(_lvd, calibration="cross"),
    "lvd-ensemble": partial(_lvd, calibration="ensemble"),
}


def count_small(folder: Path) -> int:
    """The number of results in a folder."""
    return sum(len(SMALL_RESULTS.read_file(file)) for file in (folder / "runs").glob("[!.]*.csv"))
