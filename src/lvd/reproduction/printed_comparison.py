"""Our cells beside the printed ones.

A printed figure is rounded: 0.07 +- 0.00 stands for any mean in [0.065, 0.075] and any standard deviation below
0.005. Our p-value is the largest that figures so printed allow: the difference of the means is taken to the nearest
mean that would be printed so, and the printed standard deviation is taken half a digit up. Without this allowance
(`p_as_printed`) a rounded figure with a standard deviation of 0.00 differs from everything.

A cell that cannot be tested (`untested` says why) counts neither as agreement nor as disagreement.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from lvd.reproduction import PrintedCell, printed_cells
from lvd.reproduction.paper_methods import REPRODUCED
from lvd.reproduction.names import is_molecules, task_of
from lvd.reproduction.significance import Sample, p_different
from lvd.reproduction.result_tables import Cell

P_VALUE = 0.01
PRINTED_SEEDS = 10
REPEATED = ("width_all", 0.5)
"""Table and level at which the paper's rows of QM8 and QM9 repeat those of level 90%."""


@dataclass(frozen=True)
class Comparison:
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
        """Welch's test on the printed figures as they stand."""
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


def compare(cells: Iterable[Cell]) -> list[Comparison]:
    """Every cell that has a result and stands in the paper, beside the printed one."""
    printed = {
        (cell.table, cell.metric, cell.confidence_level, cell.dataset, cell.method): cell
        for cell in printed_cells()
    }
    places = (
        (cell, (cell.table, cell.metric, cell.confidence_level, cell.dataset, cell.method)) for cell in cells
    )
    return [Comparison(cell, printed[place]) for cell, place in places if cell.sample.n and place in printed]


def untested_reasons(comparisons: Sequence[Comparison]) -> dict[str, int]:
    """Why cells could not be tested, and how many."""
    return dict(Counter(c.untested for c in comparisons if c.untested))


def count(name: str, comparisons: Sequence[Comparison]) -> Count:
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


def count_by(comparisons: Sequence[Comparison], key: Callable[[Comparison], str]) -> list[Count]:
    """The counts over the comparisons with the same `key`, in the order they first appear."""
    groups: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        groups.setdefault(key(comparison), []).append(comparison)
    return [count(name, members) for name, members in groups.items()]
