"""Runs the contest over time, skipping finished results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view

from experiments.over_time.rivals import ALPHA, RIVALS, Stage, run_rival
from experiments.over_time.sequences import SEQUENCES, load_sequence
from experiments.paper.result_store import ResultTable
from experiments.paper.runs import check_names
from lvd import InputError
from lvd._progress import Progress, silent
from lvd._typing import Float, NDArray
from lvd.intervals import covered, widths
from lvd.metrics.interval_metrics import widened_range

WINDOW = 500
"""The number of consecutive rows over which the lowest coverage is computed."""


@dataclass(frozen=True)
class CourseResult:
    """A rival's results on a sequence; `error` is the reason for a failure."""

    sequence: str
    method: str
    rows: int = 0
    coverage: float = math.nan
    lowest: float = math.nan
    score: float = math.nan
    infinite: float = math.nan
    seconds: float = math.nan
    error: str = ""


COURSE_RESULTS = ResultTable(
    *(CourseResult, "a contest over time", "python -m experiments over-time"),
    order=lambda one: list(SEQUENCES).index(one.sequence),
)


def run_contest(
    sequences: Sequence[str],
    methods: Sequence[str],
    folder: Path,
    *,
    data_dir: Path | None = None,
    progress: Progress = silent,
) -> int:
    """Run what `folder` lacks; return how many courses were added. A killed process loses at most one."""
    check_names(sequences, SEQUENCES, "sequences")
    check_names(methods, RIVALS, "methods")
    torch.set_num_threads(1)
    done = 0
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    with progress("sequences", len(sequences)) as on_done:
        for sequence in sequences:
            done += _run_sequence(sequence, methods, folder / "runs" / f"{sequence}.csv", data_dir)
            on_done(1)
    return done


def _run_sequence(sequence: str, methods: Sequence[str], file: Path, data_dir: Path | None) -> int:
    kept = [one for one in COURSE_RESULTS.known(file) if not one.error]
    missing = [method for method in methods if method not in {one.method for one in kept}]
    stage: Stage | None = None
    for method in missing:
        try:
            stage = Stage.of(load_sequence(sequence, data_dir)) if stage is None else stage
            result = judged(sequence, method, stage)
        except Exception as error:  # whatever fails, the other rivals still run
            result = CourseResult(
                sequence, method, error=" ".join(f"{type(error).__name__}: {error}".split())
            )
        kept.append(result)
        COURSE_RESULTS.write(kept, file)
    return len(missing)


def judged(sequence: str, method: str, stage: Stage) -> CourseResult:
    """The measures of a course: an infinite interval counts as the range of y so far, widened by a tenth."""
    course, (_, begin) = run_rival(stage, method), stage.rows.starts
    y, seen = stage.rows.y[begin:], stage.rows.y[:begin]
    hits = covered(y, course.ends)
    return CourseResult(
        sequence,
        method,
        len(y),
        float(hits.mean()),
        lowest_in_a_row(hits, WINDOW),
        float(bounded_scores(course.ends, y, *widened_range(seen)).mean()),
        float(np.isinf(widths(course.ends)).mean()),
        course.seconds,
    )


def lowest_in_a_row(hits: NDArray, window: int) -> float:
    """The lowest share of covered rows over any `window` consecutive rows."""
    if len(hits) < window:
        raise InputError(f"a sequence needs at least {window} rows, got {len(hits)}")
    return float(sliding_window_view(hits, window).mean(axis=1).min())


def bounded_scores(
    ends: Float[NDArray, "n 2"], y: Float[NDArray, "n"], low: float, high: float
) -> Float[NDArray, "n"]:
    """The interval scores of intervals clipped to a range; an infinite one is as wide as the range."""
    lower, upper = np.clip(ends, low, high).T
    missed = np.maximum(lower - y, 0.0) + np.maximum(y - upper, 0.0)
    infinite = np.isinf(ends).any(axis=1)
    return np.where(infinite, high - low, upper - lower + 2.0 / ALPHA * missed)
