"""The figures printed in the paper's tables, and ours beside them."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib.resources import files

from lvd.reproduction.formats import MISSING, Grid, GridEntry
from lvd.reproduction.layout import method_title
from lvd.reproduction.paper_methods import REPRODUCED
from lvd.reproduction.result_tables import Cell
from lvd.reproduction.runs import is_molecules, task_of
from lvd.reproduction.significance import Sample, p_different


@dataclass(frozen=True)
class PrintedCell:
    """Mean and standard deviation over ten seeds, rounded to `decimals` and `std_decimals` digits.

    A negative number of digits is one before the point: 160 printed as 1.6e+02 is rounded to tens.
    """

    table: str
    metric: str
    confidence_level: float
    dataset: str
    method: str
    mean: float
    std: float
    bold: bool
    decimals: int
    std_decimals: int


def printed_cells() -> list[PrintedCell]:
    """All cells of the paper's result tables, in the paper's order."""
    with (files("lvd.reproduction") / "printed_cells.csv").open(encoding="utf-8") as file:
        return [
            PrintedCell(
                table=row["table"],
                metric=row["metric"],
                confidence_level=float(row["confidence_level"]),
                dataset=row["dataset"],
                method=row["method"],
                mean=float(row["mean"]),
                std=float(row["std"]),
                bold=row["bold"] == "1",
                decimals=-int(Decimal(row["mean"]).as_tuple().exponent),
                std_decimals=-int(Decimal(row["std"]).as_tuple().exponent),
            )
            for row in csv.DictReader(file)
        ]


P_VALUE = 0.01
PRINTED_SEEDS = 10
REPEATED = ("width_all", 0.5)
"""Table and level at which the paper's rows of QM8 and QM9 repeat those of level 90%."""


@dataclass(frozen=True)
class ComparedCell:
    """A cell of ours and the printed one."""

    cell: Cell
    printed: PrintedCell

    @property
    def difference(self) -> float:
        """Our mean minus the printed one."""
        return self.cell.sample.mean - self.printed.mean

    @property
    def p_value(self) -> float:
        """Welch's test, with the allowance for rounding."""
        distance = math.copysign(max(0.0, abs(self.difference) - self._half_digit), self.difference)
        favourable = Sample(self.cell.sample.mean - distance, self._largest_std, PRINTED_SEEDS)
        return p_different(self.cell.sample, favourable)

    @property
    def p_as_printed(self) -> float:
        """Welch's test on the printed figures as they are."""
        return p_different(self.cell.sample, Sample(self.printed.mean, self.printed.std, PRINTED_SEEDS))

    @property
    def untested(self) -> str:
        """Why the two cannot be tested against each other; empty where they can."""
        table, level = self.cell.table, self.cell.confidence_level
        if is_molecules(self.cell.dataset.lower()) and not task_of(self.cell.dataset):
            if (table, level) == REPEATED:
                return "misprinted: the row repeats that of level 90%"
            return "averaged over tasks: the printed deviation is over tasks, not seeds"
        if math.isnan(self.p_value):
            return f"our figure exists on {self.cell.sample.n} seed(s)"
        return ""

    @property
    def compatible(self) -> bool:
        """Whether the two were tested, and may come from the same procedure."""
        return not self.untested and self.p_value >= P_VALUE

    @property
    def incompatible(self) -> bool:
        """Whether the two were tested, and differ."""
        return not self.untested and self.p_value < P_VALUE

    @property
    def same_mean(self) -> bool:
        """Whether our mean would be printed with the same digits."""
        return _same_digits(self.cell.sample.mean, self.printed.mean, self.printed.decimals)

    @property
    def same_cell(self) -> bool:
        """Whether mean and standard deviation would be."""
        return self.same_mean and _same_digits(
            self.cell.sample.std, self.printed.std, self.printed.std_decimals
        )

    @property
    def counted(self) -> bool:
        """Whether the printed cell was made by the procedure we follow, not by a faulty version of a rival."""
        return self.cell.method in REPRODUCED

    @property
    def _half_digit(self) -> float:
        return 0.5 * 10.0**-self.printed.decimals

    @property
    def _largest_std(self) -> float:
        """The largest standard deviation that would be printed so."""
        return self.printed.std + 0.5 * 10.0**-self.printed.std_decimals


def _same_digits(ours: float, printed: float, digits: int) -> bool:
    unit = 10.0 ** min(digits, 0)
    return f"{ours * unit:.{max(digits, 0)}f}" == f"{printed * unit:.{max(digits, 0)}f}"


@dataclass(frozen=True)
class Count:
    """How many of some cells agree with the printed ones; `cells` are those tested."""

    name: str
    cells: int
    compatible: int
    compatible_as_printed: int
    same_mean: int
    same_cell: int
    untested: int

    @property
    def sentence(self) -> str:
        """The count in words."""
        share = f"{100 * self.compatible / self.cells:.1f}%" if self.cells else "none"
        return (
            f"{self.compatible} of {self.cells} tested cells compatible (p >= {P_VALUE:g}), {share}; "
            f"{self.same_mean} equal to the last printed digit, {self.same_cell} with their standard deviation"
        )


def compare_with_printed(cells: Iterable[Cell]) -> list[ComparedCell]:
    """Every cell with a result that the paper has too, beside the printed one."""
    printed = {
        (cell.table, cell.metric, cell.confidence_level, cell.dataset, cell.method): cell
        for cell in printed_cells()
    }
    places = (
        (cell, (cell.table, cell.metric, cell.confidence_level, cell.dataset, cell.method)) for cell in cells
    )
    return [
        ComparedCell(cell, printed[place]) for cell, place in places if cell.sample.n and place in printed
    ]


def untested_reasons(comparisons: Sequence[ComparedCell]) -> dict[str, int]:
    """Why cells could not be tested, and how many."""
    return dict(Counter(c.untested for c in comparisons if c.untested))


def count_cells(name: str, comparisons: Sequence[ComparedCell]) -> Count:
    """The counts over some comparisons."""
    tested = [c for c in comparisons if not c.untested]
    return Count(
        name,
        len(tested),
        sum(c.compatible for c in tested),
        sum(c.p_as_printed >= P_VALUE for c in tested),
        sum(c.same_mean for c in tested),
        sum(c.same_cell for c in tested),
        len(comparisons) - len(tested),
    )


def count_cells_by(comparisons: Sequence[ComparedCell], key: Callable[[ComparedCell], str]) -> list[Count]:
    """The counts over the comparisons with the same `key`, in the order they first appear."""
    groups: dict[str, list[ComparedCell]] = {}
    for comparison in comparisons:
        groups.setdefault(key(comparison), []).append(comparison)
    return [count_cells(name, members) for name, members in groups.items()]


_PLACE = ("table", "metric", "level", "dataset", "method")


def comparison_grids(comparisons: Sequence[ComparedCell]) -> list[Grid]:
    """Every cell beside the printed one, the counts by table and method, and the cells that do not agree."""
    counted = [comparison for comparison in comparisons if comparison.counted]
    return [
        cells_grid("Cells beside the printed ones", comparisons),
        counts_grid("Agreement by table and method", counted),
        cells_grid("Incompatible cells", [c for c in counted if c.incompatible]),
    ]


def cells_grid(title: str, comparisons: Sequence[ComparedCell]) -> Grid:
    """One line per cell."""
    return Grid(
        title,
        f"{len(comparisons)} cells; p is that of Welch's test, with an allowance for the rounding in print.",
        (*_PLACE, "ours", "printed", "difference", "p", "same digits"),
        tuple(_cell_line(comparison) for comparison in comparisons),
    )


def counts_grid(title: str, comparisons: Sequence[ComparedCell]) -> Grid:
    """One line per table and method, and one for all cells."""
    groups = count_cells_by(
        comparisons, lambda c: f"{c.cell.table}: {method_title(c.cell.method, c.cell.table)}"
    )
    every = count_cells("all", comparisons)
    return Grid(
        title,
        f"{every.sentence}. Without the allowance for rounding {every.compatible_as_printed} are compatible.",
        (
            *("table: method", "tested", f"compatible (p >= {P_VALUE:g})", "same mean", "same mean and std"),
            "not tested",
        ),
        tuple(_count_line(one) for one in (*groups, every)),
    )


def comparison_csv(comparisons: Sequence[ComparedCell]) -> str:
    """All comparisons as CSV, one line per cell."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    figures = ("mean", "std", "n", "printed_mean", "printed_std", "difference", "p", "p_as_printed")
    writer.writerow(
        (
            "table",
            "metric",
            "confidence_level",
            "dataset",
            "method",
            *figures,
            "same_mean",
            "same_cell",
            "counted",
            "untested",
        )
    )
    for c in comparisons:
        cell, sample = c.cell, c.cell.sample
        writer.writerow(
            [
                *(cell.table, cell.metric, cell.confidence_level, cell.dataset, cell.method),
                *(f"{sample.mean:.9g}", f"{sample.std:.9g}", sample.n, c.printed.mean, c.printed.std),
                *(f"{c.difference:.6g}", f"{c.p_value:.3g}", f"{c.p_as_printed:.3g}"),
                *(int(c.same_mean), int(c.same_cell), int(c.counted), c.untested),
            ]
        )
    return file.getvalue()


def _cell_line(comparison: ComparedCell) -> tuple[GridEntry, ...]:
    cell, printed = comparison.cell, comparison.printed
    digits = max(printed.decimals, 0)
    return (
        *(GridEntry(text) for text in (cell.table, cell.metric, f"{cell.confidence_level:g}", cell.dataset)),
        GridEntry(cell.method),
        GridEntry(
            f"{cell.sample.mean:.{digits}f}", f"{cell.sample.std:.{digits}f}" if cell.sample.n > 1 else ""
        ),
        GridEntry(f"{printed.mean:.{digits}f}", f"{printed.std:.{digits}f}"),
        GridEntry(f"{comparison.difference:+.{digits}f}"),
        GridEntry(
            MISSING if comparison.untested else f"{comparison.p_value:.2g}",
            emphasis="bold" if comparison.incompatible else "",
        ),
        GridEntry("yes" if comparison.same_cell else "mean" if comparison.same_mean else "no"),
    )


def _count_line(one: Count) -> tuple[GridEntry, ...]:
    numbers = (one.cells, one.compatible, one.same_mean, one.same_cell, one.untested)
    return (GridEntry(one.name), *(GridEntry(str(number)) for number in numbers))
