"""The page on small samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, geometric_mean, stdev
from typing import Any

from experiments.arena.measures import lowest_pooled_group
from experiments.paper.formats import MISSING, Grid, figure_text, number_of, render_markdown
from experiments.paper.result_store import Call
from experiments.paper.runs import grouped
from experiments.small.samples import SAMPLES
from experiments.small.study import SMALL_LEVELS, SMALL_METHODS, TEST_ROWS, SmallResult
from lvd import InputError
from lvd._files import write_text

METHOD_TITLES = {
    "split": "split conformal",
    "cv-plus": "CV+",
    "lvd-split": "LVD, split",
    "lvd-cross": "LVD, cross",
    "lvd-ensemble": "LVD, ensemble",
}
REFERENCE = "split"
Cells = dict[tuple[str, int, str, float], list[SmallResult]]
"""The draws of a sample, a size, a method and a level."""


class SmallBoard:
    """The results with one model, restricted to draws for which all its methods have a result."""

    def __init__(self, results: Sequence[SmallResult], model: str) -> None:
        own = [one for one in results if one.model == model and not one.error]
        self.model = model
        self.methods = [name for name in SMALL_METHODS if any(one.method == name for one in own)]
        wanted = len(self.methods) * len(SMALL_LEVELS)
        draws = grouped(own, lambda one: (one.sample, one.n_rows, one.draw))
        kept = [one for members in draws.values() if len(members) == wanted for one in members]
        self.samples = [name for name in SAMPLES if any(one.sample == name for one in kept)]
        self.sizes = sorted({one.n_rows for one in kept})
        self.cells: Cells = grouped(kept, lambda one: (one.sample, one.n_rows, one.method, one.level))

    def of(self, n_rows: int, method: str, level: float) -> list[list[SmallResult]]:
        """The draws of each sample."""
        places = [(sample, n_rows, method, level) for sample in self.samples]
        return [self.cells[place] for place in places if place in self.cells]

    def coverage(self, n_rows: int, method: str, level: float) -> tuple[float, float]:
        """The mean over samples of the mean coverage, and its standard error."""
        draws = [[one.coverage for one in cell] for cell in self.of(n_rows, method, level)]
        mean = fmean(map(fmean, draws)) if draws else math.nan
        if not draws or min(map(len, draws)) < 2:
            return mean, math.nan
        return mean, math.sqrt(sum(stdev(one) ** 2 / len(one) for one in draws)) / len(draws)

    def worst_group(self, n_rows: int, method: str, level: float) -> float:
        """The mean over samples of the coverage of the worst of five groups, each pooled over the draws."""
        found = [lowest_pooled_group(cell) for cell in self.of(n_rows, method, level)]
        return fmean(found) if found else math.nan

    def score(self, n_rows: int, method: str, level: float) -> float:
        """The geometric mean over samples of the interval score relative to split conformal prediction."""
        own, split = self.of(n_rows, method, level), self.of(n_rows, REFERENCE, level)
        if not own or not split:
            return math.nan
        return geometric_mean(_score(a) / _score(b) for a, b in zip(own, split, strict=True))

    def mean(self, name: str, n_rows: int, method: str, level: float) -> float:
        """The mean of a measure over all draws."""
        cells = self.of(n_rows, method, level)
        return fmean(getattr(one, name) for cell in cells for one in cell) if cells else math.nan

    def grid(self, level: float) -> Grid:
        """One row per method and measure, one column per size."""

        def line(title: str, text: Callable[[int, str, float], str], method: str) -> list[str]:
            return [title, METHOD_TITLES[method], *(text(size, method, level) for size in self.sizes)]

        measures: dict[str, Callable[[int, str, float], str]] = {
            "coverage": self._coverage_text,
            "worst of five groups": lambda *place: _percent(self.worst_group(*place)),
            "score": lambda *place: figure_text(self.score(*place), ".3f"),
            "processor seconds of a fit": lambda *place: figure_text(self.mean("seconds", *place), ".2f"),
            "finite": lambda *place: _percent(self.mean("finite", *place)),
        }
        counts = [str(len(self.of(size, self.methods[0], level)[0])) for size in self.sizes]
        return Grid(
            f"{self.model.capitalize()}, {100 * level:g}%",
            "",
            ("", "", *(f"{size} rows" for size in self.sizes)),
            [
                *(line(title, text, method) for title, text in measures.items() for method in self.methods),
                ["draws of each sample", "", *counts],
            ],
        )

    def by_sample(self, level: float) -> Grid:
        """The coverage of each sample."""

        def text(*place: Any) -> str:
            cell = self.cells.get(place)
            return MISSING if cell is None else _percent(fmean(one.coverage for one in cell))

        lines = [
            [sample, METHOD_TITLES[method], *(text(sample, size, method, level) for size in self.sizes)]
            for sample in self.samples
            for method in self.methods
        ]
        headings = ("", "", *(f"{size} rows" for size in self.sizes))
        return Grid(f"{self.model.capitalize()}, coverage at {100 * level:g}%", "", headings, lines)

    def _coverage_text(self, n_rows: int, method: str, level: float) -> str:
        mean, error = self.coverage(n_rows, method, level)
        return f"{_percent(mean)} ± {figure_text(100 * error, '.1f')}"


def _score(cell: Sequence[SmallResult]) -> float:
    return fmean(one.winkler for one in cell)


def _percent(share: float) -> str:
    return MISSING if math.isnan(share) else f"{100 * share:.1f}"


def write_small_page(results: Sequence[SmallResult], calls: Sequence[Call], out: Path) -> None:
    """Write the page."""
    boards = [SmallBoard(results, model) for model in dict.fromkeys(one.model for one in results)]
    boards = [board for board in boards if board.sizes and REFERENCE in board.methods]
    if not boards:
        raise InputError("the page needs draws of which all methods have results, split conformal among them")
    levels = sorted(SMALL_LEVELS, reverse=True)
    page = render_markdown(
        "small/small.md.jinja",
        grids=[board.grid(level) for level in levels for board in boards],
        by_sample=[board.by_sample(level) for level in levels[:1] for board in boards],
        test_rows=TEST_ROWS,
        n_failed=number_of(sum(bool(one.error) for one in results), "result"),
        any_failed=any(one.error for one in results),
        processors=", ".join(sorted({one.processor for one in results if one.processor})),
        calls=calls,
    )
    write_text(out, page)
