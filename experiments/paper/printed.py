"""The figures printed in the paper's tables, compared with ours."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib.resources import files

from experiments.paper.formats import MISSING, Grid, GridEntry, csv_text, number_of
from experiments.paper.layout import method_title
from experiments.paper.methods import REPRODUCED
from experiments.paper.result_tables import PLACE, Cell, Placed
from experiments.paper.runs import grouped, has_tasks, task_of
from experiments.paper.significance import Sample, p_different


@dataclass(frozen=True)
class PrintedCell(Placed):
    """Mean and standard deviation over ten seeds, rounded to `decimals` and `std_decimals` digits.

    Negative numbers of digits count before the point: 160 printed as 1.6e+02 is rounded to tens.
    """

    mean: float
    std: float
    bold: bool
    decimals: int
    std_decimals: int

    @property
    def text(self) -> str:
        """The mean as printed."""
        return f"{self.mean:.{max(self.decimals, 0)}f}"


def printed_cells() -> list[PrintedCell]:
    """All cells of the paper's result tables, in the paper's order."""
    with (files("experiments.paper") / "printed_cells.csv").open(encoding="utf-8") as file:
        return [_printed_cell(row) for row in csv.DictReader(file)]


def _printed_cell(row: dict[str, str]) -> PrintedCell:
    place = (row["table"], row["metric"], float(row["confidence_level"]), row["dataset"], row["method"])
    decimals, std_decimals = (-int(Decimal(row[name]).as_tuple().exponent) for name in ("mean", "std"))
    bold = row["bold"] == "1"
    return PrintedCell(*place, float(row["mean"]), float(row["std"]), bold, decimals, std_decimals)


def printed_texts(table: str, metric: str) -> dict[tuple[str, str], str]:
    """The means of one table and metric as printed, by dataset and method."""
    cells = (cell for cell in printed_cells() if (cell.table, cell.metric) == (table, metric))
    return {(cell.dataset, cell.method): cell.text for cell in cells}


COMPATIBLE_P_VALUE = 0.01
PRINTED_SEEDS = 10
REPEATED = ("width_all", 0.5)
"""The table and level at which the paper's rows of QM8 and QM9 repeat those of level 90%."""


@dataclass(frozen=True)
class ComparedCell:
    """One of our cells and the printed one."""

    cell: Cell
    printed: PrintedCell

    @property
    def difference(self) -> float:
        """Our mean minus the printed one."""
        return self.cell.sample.mean - self.printed.mean

    @property
    def p_value(self) -> float:
        """Welch's test allowing for rounding: the closest mean and the largest deviation that print the same."""
        allowance = 0.5 * 10.0**-self.printed.decimals
        distance = math.copysign(max(0.0, abs(self.difference) - allowance), self.difference)
        largest_std = self.printed.std + 0.5 * 10.0**-self.printed.std_decimals
        favourable = Sample(self.cell.sample.mean - distance, largest_std, PRINTED_SEEDS)
        return p_different(self.cell.sample, favourable)

    @property
    def p_as_printed(self) -> float:
        """Welch's test on the printed figures as they are."""
        return p_different(self.cell.sample, Sample(self.printed.mean, self.printed.std, PRINTED_SEEDS))

    @property
    def untested(self) -> str:
        """Why the two cannot be tested against each other; empty if they can."""
        table, level = self.cell.table, self.cell.confidence_level
        if has_tasks(self.cell.dataset.lower()) and not task_of(self.cell.dataset):
            if (table, level) == REPEATED:
                return "misprinted: the row repeats that of level 90%"
            return "averaged over tasks: the printed deviation is over tasks, not seeds"
        if math.isnan(self.p_value):
            return f"our figure exists on {number_of(self.cell.sample.n, 'seed')}"
        return ""

    @property
    def compatible(self) -> bool:
        """Whether the two were tested and did not differ significantly."""
        return not self.untested and self.p_value >= COMPATIBLE_P_VALUE

    @property
    def incompatible(self) -> bool:
        """Whether the two were tested and differ."""
        return not self.untested and self.p_value < COMPATIBLE_P_VALUE

    @property
    def same_mean(self) -> bool:
        """Whether our mean would be printed with the same digits."""
        return _same_digits(self.cell.sample.mean, self.printed.mean, self.printed.decimals)

    @property
    def same_cell(self) -> bool:
        """Whether mean and standard deviation would be printed with the same digits."""
        return self.same_mean and _same_digits(
            self.cell.sample.std, self.printed.std, self.printed.std_decimals
        )

    @property
    def counted(self) -> bool:
        """Whether the printed cell comes from the procedure we follow, not from a faulty version of a rival."""
        return self.cell.method in REPRODUCED


def _same_digits(ours: float, printed: float, digits: int) -> bool:
    unit = 10.0 ** min(digits, 0)
    return f"{ours * unit:.{max(digits, 0)}f}" == f"{printed * unit:.{max(digits, 0)}f}"


class Count:
    """How many of these cells agree with the printed ones; `cells` are those tested."""

    def __init__(self, name: str, comparisons: Sequence[ComparedCell]) -> None:
        tested = [c for c in comparisons if not c.untested]
        self.name, self.cells, self.untested = name, len(tested), len(comparisons) - len(tested)
        self.compatible = sum(c.compatible for c in tested)
        self.compatible_as_printed = sum(c.p_as_printed >= COMPATIBLE_P_VALUE for c in tested)
        self.same_mean = sum(c.same_mean for c in tested)
        self.same_cell = sum(c.same_cell for c in tested)

    @property
    def sentence(self) -> str:
        """The count in words."""
        share = f"{100 * self.compatible / self.cells:.1f}%" if self.cells else "none"
        return (
            f"{self.compatible} of {self.cells} tested cells compatible (p >= {COMPATIBLE_P_VALUE:g}), {share}; "
            f"{self.same_mean} equal to the last printed digit, {self.same_cell} with their standard deviation"
        )


def compare_with_printed(cells: Iterable[Cell]) -> list[ComparedCell]:
    """Compare every cell with a result with the paper's, if it has one."""
    printed = {cell.place: cell for cell in printed_cells()}
    return [ComparedCell(one, printed[one.place]) for one in cells if one.sample.n and one.place in printed]


def count_cells_by(comparisons: Sequence[ComparedCell], key: Callable[[ComparedCell], str]) -> list[Count]:
    """The counts over comparisons with the same `key`, in the order they first appear."""
    return [Count(name, members) for name, members in grouped(comparisons, key).items()]


def comparison_grids(comparisons: Sequence[ComparedCell]) -> list[Grid]:
    """Every cell next to the printed one, the counts by table and method, and the cells that disagree."""
    counted = [comparison for comparison in comparisons if comparison.counted]
    return [
        cells_grid("Cells compared with the printed ones", comparisons),
        counts_grid("Agreement by table and method", counted),
        cells_grid("Incompatible cells", [c for c in counted if c.incompatible]),
    ]


def cells_grid(title: str, comparisons: Sequence[ComparedCell]) -> Grid:
    """One line per cell."""
    caption = (
        f"{len(comparisons)} cells; p is that of Welch's test, with an allowance for the rounding in print."
    )
    place = ("table", "metric", "level", "dataset", "method")
    headings = (*place, "ours", "printed", "difference", "p", "same digits")
    return Grid(title, caption, headings, map(_cell_line, comparisons))


def counts_grid(title: str, comparisons: Sequence[ComparedCell]) -> Grid:
    """One line per table and method, and one for all cells."""
    groups = count_cells_by(
        comparisons, lambda c: f"{c.cell.table}: {method_title(c.cell.method, c.cell.table)}"
    )
    every = Count("all", comparisons)
    shown = ("name", "cells", "compatible", "same_mean", "same_cell", "untested")
    compatible = f"compatible (p >= {COMPATIBLE_P_VALUE:g})"
    return Grid(
        title,
        f"{every.sentence}. Without the allowance for rounding {every.compatible_as_printed} are compatible.",
        ("table: method", "tested", compatible, "same mean", "same mean and std", "not tested"),
        [[str(getattr(one, name)) for name in shown] for one in (*groups, every)],
    )


def comparison_csv(comparisons: Sequence[ComparedCell]) -> str:
    """All comparisons as CSV, one line per cell."""
    figures = ("mean", "std", "n", "printed_mean", "printed_std", "difference", "p", "p_as_printed")
    lines = (
        [
            *c.cell.place,
            *(f"{c.cell.sample.mean:.9g}", f"{c.cell.sample.std:.9g}", c.cell.sample.n),
            *(c.printed.mean, c.printed.std),
            *(f"{c.difference:.6g}", f"{c.p_value:.3g}", f"{c.p_as_printed:.3g}"),
            *(int(c.same_mean), int(c.same_cell), int(c.counted), c.untested),
        ]
        for c in comparisons
    )
    return csv_text((*PLACE, *figures, "same_mean", "same_cell", "counted", "untested"), lines)


def _cell_line(comparison: ComparedCell) -> Sequence[str | GridEntry]:
    cell, printed = comparison.cell, comparison.printed
    digits = max(printed.decimals, 0)
    spread = f"{cell.sample.std:.{digits}f}" if cell.sample.n > 1 else ""
    p_value = MISSING if comparison.untested else f"{comparison.p_value:.2g}"
    return (
        *(cell.table, cell.metric, f"{cell.confidence_level:g}", cell.dataset, cell.method),
        GridEntry(f"{cell.sample.mean:.{digits}f}", spread),
        GridEntry(printed.text, f"{printed.std:.{digits}f}"),
        f"{comparison.difference:+.{digits}f}",
        GridEntry(p_value, emphasis="bold" if comparison.incompatible else ""),
        "yes" if comparison.same_cell else "mean" if comparison.same_mean else "no",
    )
