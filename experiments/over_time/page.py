"""The page on intervals over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.over_time.contest import WINDOW, CourseResult
from experiments.over_time.rivals import BLOCK, NEWEST, RIVALS
from experiments.over_time.sequences import CALIBRATED, SEQUENCES, TRAINED
from experiments.paper.formats import Grid, GridEntry, bare_table, figure_text, render_markdown
from experiments.paper.result_store import Call, read_dataclasses
from lvd import InputError
from lvd._files import write_text

OURS = "lvd-online"
ADAPTED = 0.02
"""Scores are compared among methods whose long-run coverage is within this distance of the level."""
NOTES = {
    "turbine": "NOx of a gas turbine, every third hour of five years",
    "bike": "bicycles hired, every hour of two years",
    "sml": "temperature in a house, every quarter of an hour of 40 days",
    "abrupt": "synthetic: after 70% of the time half of the rows are 3 higher, and the noise doubles",
    "slow": "synthetic: an input gains influence, and the noise grows",
}


@dataclass(frozen=True)
class Speed:
    """A figure of ``python -m benchmarks.online``."""

    what: str
    value: float


def read_speed(file: Path) -> Grid:
    """The figures of a file, as a table."""
    found = read_dataclasses(
        file, Speed, what="a file of speeds", made_by="python -m benchmarks.online --out"
    )
    texts = (f"{one.value:,.0f}" if one.value >= 1000.0 else f"{one.value:.3g}" for one in found)
    return Grid("", "", ("", ""), [[one.what, text] for one, text in zip(found, texts, strict=True)])


def write_over_time_page(
    results: Sequence[CourseResult], calls: Sequence[Call], out: Path, speed: Path | None = None
) -> None:
    """Write the page: a table for each sequence, how often LVD over time is best, and how fast it is."""
    by_name = {name: [one for one in results if one.sequence == name] for name in SEQUENCES}
    shown = {name: rows for name, rows in by_name.items() if any(not one.error for one in rows)}
    if not shown:
        raise InputError("no course has a result, so there is no page to write; run the contest first")
    reached = [sequence_line(rows) for rows in shown.values()]
    failed = {f"{one.sequence}, {RIVALS[one.method][0]}": one.error for one in results if one.error}
    page = render_markdown(
        "over_time/over_time.md.jinja",
        grids={name: bare_table(sequence_grid(rows)) for name, rows in shown.items()},
        notes=NOTES,
        missing=[name for name in SEQUENCES if name not in shown],
        n_best=sum(best for best, _, _ in reached),
        n_sequences=len(reached),
        long_run=span([coverage for _, coverage, _ in reached]),
        lowest=span([lowest for _, _, lowest in reached]),
        window=WINDOW,
        newest=NEWEST,
        block=BLOCK,
        trained=TRAINED,
        calibrated=CALIBRATED,
        adapted=ADAPTED,
        failed=failed,
        speed=None if speed is None else bare_table(read_speed(speed)),
        calls=calls,
    )
    write_text(out, page)


def sequence_line(rows: Sequence[CourseResult]) -> tuple[bool, float, float]:
    """Whether LVD over time has the best score among methods that keep the level, its coverage and its lowest."""
    ours = next((one for one in rows if one.method == OURS and not one.error), None)
    if ours is None:
        return False, math.nan, math.nan
    others = [one.score for one in keeping(rows) if not one.method.startswith(OURS)]
    return ours.score <= min(others, default=math.inf), ours.coverage, ours.lowest


def keeping(rows: Sequence[CourseResult]) -> list[CourseResult]:
    """The results whose long-run coverage is near the level."""
    return [one for one in rows if not one.error and abs(one.coverage - 0.9) <= ADAPTED]


def sequence_grid(rows: Sequence[CourseResult]) -> Grid:
    """The courses of one sequence; the best score among those that keep the level is emphasised."""
    best = min((one.score for one in keeping(rows)), default=math.nan)
    names = list(RIVALS)
    lines: list[list[str | GridEntry]] = [
        [
            RIVALS[one.method][0],
            f"{one.coverage:.1%}",
            f"{one.lowest:.1%}",
            GridEntry(f"{one.score:.4g}", emphasis="bold" if one.score == best else ""),
            f"{one.infinite:.1%}",
            figure_text(1000.0 * one.seconds, ".2g"),
        ]
        for one in sorted(rows, key=lambda one: names.index(one.method))
        if not one.error
    ]
    headings = ("", "long-run coverage", f"lowest of {WINDOW}", "interval score", "infinite", "ms a row")
    return Grid("", "", headings, lines)


def span(figures: Sequence[float]) -> str:
    """The lowest and the highest of these shares."""
    known = [one for one in figures if not math.isnan(one)]
    return f"{min(known):.1%} to {max(known):.1%}" if known else "unknown"
