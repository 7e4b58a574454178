"""From intervals to metrics: one row per run and level."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import numpy as np

from experiments.paper.methods import MAIN_VARIANT, VARIANTS
from experiments.paper.pool import finish_jobs
from experiments.paper.protocols import get_protocol
from experiments.paper.result_store import Result, ResultTable, files_by_split, read_result
from experiments.paper.runs import grouped
from lvd import InputError
from lvd._typing import Bool, Float, NDArray
from lvd.intervals import widths
from lvd.metrics import marginal_coverage_rate, mean_absolute_deviation, residual_auroc, tail_coverage_rate


@dataclass(frozen=True)
class Measured:
    """The metrics of one run at one level; rates in percent, as printed in the paper.

    `width` is over all rows with a finite interval, `width_lvd` over the rows where LVD's main variant is
    finite (the paper's main table), `width_variants` over those where all eight variants are (its variant
    tables), of which there are `finite_variants`. `finite_tail` is the share of finite intervals among the rows
    that enter TCR; NaN in tables from before it was recorded.
    """

    protocol: str
    dataset: str
    method: str
    seed: int
    confidence_level: float
    n_test: int = 0
    MCR: float = math.nan
    TCR: float = math.nan
    AUROC: float = math.nan
    MAD: float = math.nan
    finite_count: float = math.nan
    width: float = math.nan
    width_lvd: float = math.nan
    width_variants: float = math.nan
    finite_variants: float = math.nan
    seconds: float = math.nan
    error: str = ""
    finite_tail: float = math.nan

    @property
    def place(self) -> tuple[str, str, str, int, float]:
        """The key of the run and level."""
        return self.protocol, self.dataset, self.method, self.seed, self.confidence_level


METRICS = ResultTable(
    Measured, "a table of results", "python -m experiments collect", order=attrgetter("place")
)


def collect_folder(folder: Path, *, workers: int = 1) -> list[Measured]:
    """The metrics of all results in a folder, holding a few splits in memory at a time."""
    splits = files_by_split(folder).values()
    return [row for rows in finish_jobs(_collect_files, splits, workers, in_order=True) for row in rows]


def measure_results(results: Iterable[Result]) -> list[Measured]:
    """The metrics of all results; the restricted widths combine the results of a split."""
    rows = []
    for members in grouped(results, lambda one: one.run.split).values():
        by_method = {result.run.method: result for result in members}
        for result in members:
            rows += [_measured(result, index, by_method) for index in range(len(result.run.levels))]
    return rows


def _collect_files(files: Iterable[Path]) -> list[Measured]:
    return measure_results(map(read_result, files))


def _all_finite(by_method: dict[str, Result], methods: list[str], level: float) -> Bool[NDArray, "n"] | None:
    """Rows on which all these methods are finite at the level; None if a method is missing."""
    found = [by_method[method] for method in methods if method in by_method]
    present = [result for result in found if not result.error and level in result.run.levels]
    if len(present) < len(methods):
        return None
    ends = [result.intervals[:, :, result.run.levels.index(level)] for result in present]
    return np.logical_and.reduce([np.isfinite(widths(one)) for one in ends])


def _measured(result: Result, index: int, by_method: dict[str, Result]) -> Measured:
    run, level = result.run, result.run.levels[index]
    place = (run.protocol, run.dataset, run.method, run.seed, level)
    if result.error is not None:
        return Measured(*place, seconds=result.seconds, error=result.error)
    lvd_finite = _all_finite(by_method, [MAIN_VARIANT], level)
    variants_finite = _all_finite(by_method, list(VARIANTS), level)
    y, y_pred, intervals = result.y, result.y_pred[:, index], result.intervals[:, :, index]
    width = widths(intervals)
    finite = np.isfinite(width)
    judged = judged_targets(result, index)
    points = np.where(finite, y, np.nextafter(y, np.inf))  # intervals that contain y only on the finite rows
    return Measured(
        *place,
        n_test=len(y),
        MCR=100 * marginal_coverage_rate(judged, intervals),
        TCR=100 * tail_coverage_rate(judged, intervals),
        AUROC=100 * residual_auroc(y, y_pred, intervals),
        MAD=mean_absolute_deviation(y, y_pred),
        finite_count=float(finite.sum()),
        width=_mean_on(finite, width),
        width_lvd=_mean_on(lvd_finite, width),
        width_variants=_mean_on(variants_finite, width),
        finite_variants=math.nan if variants_finite is None else float(variants_finite.sum()),
        seconds=result.seconds,
        finite_tail=100 * tail_coverage_rate(y, np.stack([points, points], axis=1)),
    )


def judged_targets(result: Result, index: int) -> Float[NDArray, "n"]:
    """The targets, adjusted so that closed intervals at one level cover as the protocol defines it."""
    if get_protocol(result.run.protocol).interval_ends == "closed":
        return result.y
    # Moved out by the smallest step if y is exactly at an end: an open interval does not cover it there.
    y, (lower, upper) = result.y, result.intervals[:, :, index].T
    return np.where(y == upper, np.nextafter(y, np.inf), np.where(y == lower, np.nextafter(y, -np.inf), y))


def _mean_on(rows: Bool[NDArray, "n"] | None, values: Float[NDArray, "n"]) -> float:
    return math.nan if rows is None or not rows.any() else float(values[rows].mean())


def values_by_dataset(
    rows: Iterable[Measured], protocol: str, method: str, level: float, name: str
) -> dict[str, list[float]]:
    """The values of one metric over the seeds, by dataset; missing ones are dropped."""
    wanted = (protocol, method, level, "")
    chosen = (row for row in rows if (row.protocol, row.method, row.confidence_level, row.error) == wanted)
    known = grouped((row for row in chosen if not math.isnan(getattr(row, name))), lambda row: row.dataset)
    return {dataset: [getattr(row, name) for row in same] for dataset, same in known.items()}


def read_results(path: Path) -> list[Measured]:
    """Read metrics from a folder of results, a compact table of them, or a folder of such tables."""
    tables = compact_tables(path)
    rows = [row for table in tables for row in METRICS.read_file(table)] if tables else collect_folder(path)
    for place, count in Counter(row.place for row in rows).most_common(1):
        if count > 1:
            raise InputError(
                f"every run must be in the tables of {path} once, but {place} is there {count} times; give one "
                "table of it"
            )
    return rows


def compact_tables(path: Path) -> list[Path]:
    """The compact tables at a path: itself, or those in the folder; none for a folder of runs."""
    if not path.is_dir():
        return [path] if path.is_file() or path.suffix == ".csv" else []
    return (
        [] if (path / "runs").is_dir() else [file for file in sorted(path.glob("*.csv")) if _is_table(file)]
    )


def _is_table(file: Path) -> bool:
    with file.open(encoding="utf-8", errors="replace") as lines:
        return lines.readline().startswith("protocol,dataset,method,seed,confidence_level,n_test,")
