"""From intervals to figures: one row of metrics per run and level."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lvd._typing import Bool, Float, NDArray
from lvd._validation import InputError
from lvd.intervals import widths
from lvd.metrics import (
    marginal_coverage_rate,
    mean_absolute_deviation,
    residual_auroc,
    tail_coverage_rate,
)
from lvd.reproduction.paper_methods import MAIN_VARIANT, VARIANTS
from lvd.reproduction.pool import map_processes
from lvd.reproduction.protocols import get_protocol
from lvd.reproduction.result_store import (
    Result,
    files_by_split,
    read_dataclasses,
    read_result,
    write_dataclasses,
)


@dataclass(frozen=True)
class Measured:
    """The metrics of one run at one level; rates in percent, as the paper prints them.

    `width` is over all rows with a finite interval, `width_lvd` over the rows where LVD's main variant is finite
    (the paper's main table), `width_variants` over those where all eight variants are (its variant tables);
    `finite_variants` is how many these are. `finite_tail` is the share of finite intervals among the rows that TCR
    is about; NaN in tables made before it was counted.
    """

    protocol: str
    dataset: str
    method: str
    seed: int
    confidence_level: float
    n_test: int
    MCR: float
    TCR: float
    AUROC: float
    MAD: float
    finite_count: float
    width: float
    width_lvd: float
    width_variants: float
    finite_variants: float
    seconds: float
    error: str
    finite_tail: float = math.nan


def collect_folder(folder: Path, *, workers: int = 1) -> list[Measured]:
    """The metrics of all results in a folder, a few splits in memory at a time."""
    return [row for rows in map_processes(_collect_files, files_by_split(folder), workers) for row in rows]


def collect(results: Iterable[Result]) -> list[Measured]:
    """The metrics of all results; results of one split are put together for the restricted widths."""
    splits: dict[tuple[str, str, int], list[Result]] = {}
    for result in results:
        splits.setdefault((result.run.protocol, result.run.dataset, result.run.seed), []).append(result)
    return [row for members in splits.values() for row in _collect_split(members)]


def _collect_files(files: Sequence[Path]) -> list[Measured]:
    return _collect_split([read_result(file) for file in files])


def _collect_split(results: Sequence[Result]) -> list[Measured]:
    by_method = {result.run.method: result for result in results}
    rows = []
    for result in results:
        for index, level in enumerate(result.run.levels):
            lvd_finite = _all_finite(by_method, [MAIN_VARIANT], level)
            variants_finite = _all_finite(by_method, list(VARIANTS), level)
            rows.append(_measured(result, index, lvd_finite, variants_finite))
    return rows


def _all_finite(by_method: dict[str, Result], methods: list[str], level: float) -> Bool[NDArray, "n"] | None:
    """Rows on which all these methods are finite at the level; None when one of them is missing."""
    found = [by_method.get(method) for method in methods]
    present = [
        result for result in found if result is not None and not result.error and level in result.run.levels
    ]
    if len(present) < len(methods):
        return None
    masks = [
        np.isfinite(widths(result.intervals[:, :, result.run.levels.index(level)])) for result in present
    ]
    return np.logical_and.reduce(masks)


def _measured(
    result: Result,
    index: int,
    lvd_finite: Bool[NDArray, "n"] | None,
    variants_finite: Bool[NDArray, "n"] | None,
) -> Measured:
    run, nothing = result.run, math.nan
    if result.error is not None:
        return Measured(
            run.protocol, run.dataset, run.method, run.seed, run.levels[index], 0,
            *(nothing,) * 9, result.seconds, result.error,
        )  # fmt: skip
    y, y_pred, intervals = result.y, result.y_pred[:, index], result.intervals[:, :, index]
    width = widths(intervals)
    finite = np.isfinite(width)
    judged = judged_targets(result, index)
    return Measured(
        protocol=run.protocol,
        dataset=run.dataset,
        method=run.method,
        seed=run.seed,
        confidence_level=run.levels[index],
        n_test=len(y),
        MCR=100 * marginal_coverage_rate(judged, intervals),
        TCR=100 * tail_coverage_rate(judged, intervals),
        AUROC=100 * residual_auroc(y, y_pred, intervals),
        MAD=mean_absolute_deviation(y, y_pred),
        finite_count=float(finite.sum()),
        width=_mean_width(width[finite]),
        width_lvd=nothing if lvd_finite is None else _mean_width(width[lvd_finite]),
        width_variants=nothing if variants_finite is None else _mean_width(width[variants_finite]),
        finite_variants=nothing if variants_finite is None else float(variants_finite.sum()),
        seconds=result.seconds,
        error="",
        finite_tail=100 * tail_coverage_rate(y, _points_on(y, finite)),
    )


def _points_on(y: Float[NDArray, "n"], chosen: Bool[NDArray, "n"]) -> Float[NDArray, "n 2"]:
    """Intervals that hold y on the chosen rows only: their coverage is the share of these rows."""
    ends = np.where(chosen, y, np.nextafter(y, np.inf))
    return np.stack([ends, ends], axis=1)


def judged_targets(result: Result, index: int) -> Float[NDArray, "n"]:
    """The targets by which closed intervals at one level cover as the protocol has it."""
    if get_protocol(result.run.protocol).interval_ends == "closed":
        return result.y
    return _off_the_ends(result.y, result.intervals[:, :, index])


def _off_the_ends(y: Float[NDArray, "n"], intervals: Float[NDArray, "n 2"]) -> Float[NDArray, "n"]:
    """`y` moved out by the smallest step where it is exactly at an end: covered by no open interval."""
    lower, upper = intervals.T
    return np.where(y == upper, np.nextafter(y, np.inf), np.where(y == lower, np.nextafter(y, -np.inf), y))


def _mean_width(values: NDArray) -> float:
    return float(values.mean()) if values.size else math.nan


def read_results(path: Path) -> list[Measured]:
    """The metrics of a folder of results, of a compact table made from one, or of a folder of such tables."""
    tables = compact_tables(path)
    rows = [row for table in tables for row in read_csv(table)] if tables else collect_folder(path)
    places = Counter((r.protocol, r.dataset, r.method, r.seed, r.confidence_level) for r in rows)
    twice = places.most_common(1)
    if twice and twice[0][1] > 1:
        raise InputError(
            f"every run must be in the tables of {path} once, but {twice[0][0]} is there more often; give one "
            "table of it"
        )
    return rows


def compact_tables(path: Path) -> list[Path]:
    """The compact tables that a path means: itself, or those in the folder; none for a folder of runs."""
    if not path.is_dir():
        return [path] if path.is_file() or path.suffix == ".csv" else []
    return (
        [] if (path / "runs").is_dir() else [file for file in sorted(path.glob("*.csv")) if _is_table(file)]
    )


def _is_table(file: Path) -> bool:
    with file.open(encoding="utf-8", errors="replace") as lines:
        return lines.readline().startswith("protocol,dataset,method,seed,confidence_level,n_test,")


def write_csv(rows: Sequence[Measured], path: Path) -> None:
    """The compact form of results, small enough to be committed."""
    ordered = sorted(rows, key=lambda r: (r.protocol, r.dataset, r.method, r.seed, r.confidence_level))
    write_dataclasses(ordered, path, Measured)


def read_csv(path: Path) -> list[Measured]:
    """Metrics written by :func:`write_csv`."""
    try:
        return read_dataclasses(path, Measured)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} is not a table of results ({error}); make one with: lvd bench collect"
        ) from error
