"""Runs the contest over time, skipping finished results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from experiments.over_time.rivals import ALPHA, RIVALS, Stage, run_rival
from experiments.over_time.sequences import SEQUENCES, load_sequence
from experiments.paper.result_store import read_dataclasses, read_result_rows, write_dataclasses
from experiments.paper.runs import check_names
from lvd import InputError
from lvd._progress import Progress, silent
from lvd._typing import Float, NDArray

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
    known = (
        read_dataclasses(file, CourseResult, what="a contest", made_by="over-time") if file.exists() else []
    )
    kept = [one for one in known if not one.error]
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
        write_dataclasses(kept, file, CourseResult)
    return len(missing)


def judged(sequence: str, method: str, stage: Stage) -> CourseResult:
    """The measures of a course: an infinite interval counts as the range of y so far, widened by a tenth."""
    course, (_, begin) = run_rival(stage, method), stage.rows.starts
    y, seen = stage.rows.y[begin:], stage.rows.y[:begin]
    room = 0.1 * float(np.ptp(seen))
    lower, upper = course.ends.T
    covered = (lower <= y) & (y <= upper)
    return CourseResult(
        sequence,
        method,
        len(y),
        float(covered.mean()),
        lowest_in_a_row(covered, WINDOW),
        float(bounded_scores(course.ends, y, seen.min() - room, seen.max() + room).mean()),
        float(np.isinf(upper - lower).mean()),
        course.seconds,
    )


def lowest_in_a_row(covered: NDArray, window: int) -> float:
    """The lowest share of covered rows over any `window` consecutive rows."""
    sums = np.cumsum(np.concatenate([[0], covered]))
    if len(covered) < window:
        raise InputError(f"a sequence needs at least {window} rows, got {len(covered)}")
    return float((sums[window:] - sums[:-window]).min() / window)


def bounded_scores(
    ends: Float[NDArray, "n 2"], y: Float[NDArray, "n"], low: float, high: float
) -> Float[NDArray, "n"]:
    """The interval scores of intervals clipped to a range; an infinite one is as wide as the range."""
    lower, upper = np.clip(ends, low, high).T
    missed = np.maximum(lower - y, 0.0) + np.maximum(y - upper, 0.0)
    infinite = np.isinf(ends).any(axis=1)
    return np.where(infinite, high - low, upper - lower + 2.0 / ALPHA * missed)


def read_contest(source: Path) -> list[CourseResult]:
    """Read all results of a folder, or of a compact table."""
    made_by = "python -m experiments over-time"
    return read_result_rows(source, "runs", CourseResult, what="a contest over time", made_by=made_by)


def write_contest(results: Sequence[CourseResult], path: Path) -> None:
    """Write all results as one compact table."""
    order = {name: place for place, name in enumerate(SEQUENCES)}
    write_dataclasses(sorted(results, key=lambda one: order[one.sequence]), path, CourseResult)
