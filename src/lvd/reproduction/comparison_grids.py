"""Comparisons with the printed cells as tables to read."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from lvd.reproduction.printed_comparison import P_VALUE, Comparison, Count, count, count_by
from lvd.reproduction.grids import MISSING, Entry, Grid
from lvd.reproduction.layout import method_title

_PLACE = ("table", "metric", "level", "dataset", "method")


def comparison_grids(comparisons: Sequence[Comparison]) -> list[Grid]:
    """Every cell beside the printed one, the counts by table and method, and the cells that do not agree."""
    counted = [comparison for comparison in comparisons if comparison.counted]
    return [
        cells_grid("Cells beside the printed ones", comparisons),
        counts_grid("Agreement by table and method", counted),
        cells_grid("Incompatible cells", [c for c in counted if c.incompatible]),
    ]


def cells_grid(title: str, comparisons: Sequence[Comparison]) -> Grid:
    """One line per cell."""
    return Grid(
        title,
        f"{len(comparisons)} cells; p is that of Welch's test, with an allowance for the rounding in print.",
        (*_PLACE, "ours", "printed", "difference", "p", "same digits"),
        tuple(_line(comparison) for comparison in comparisons),
    )


def counts_grid(title: str, comparisons: Sequence[Comparison]) -> Grid:
    """One line per table and method, and one for all cells."""
    groups = count_by(comparisons, lambda c: f"{c.cell.table}: {method_title(c.cell.method, c.cell.table)}")
    every = count("all", comparisons)
    return Grid(
        title,
        f"{every.sentence}. Without the allowance for rounding {every.compatible_as_printed} are compatible.",
        (
            *("table: method", "tested", f"compatible (p >= {P_VALUE:g})", "same mean", "same mean and std"),
            "not tested",
        ),
        tuple(_count_line(one) for one in (*groups, every)),
    )


def comparison_csv(comparisons: Sequence[Comparison]) -> str:
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


def _line(comparison: Comparison) -> tuple[Entry, ...]:
    cell, printed = comparison.cell, comparison.printed
    digits = max(printed.decimals, 0)
    return (
        *(Entry(text) for text in (cell.table, cell.metric, f"{cell.confidence_level:g}", cell.dataset)),
        Entry(cell.method),
        Entry(f"{cell.sample.mean:.{digits}f}", f"{cell.sample.std:.{digits}f}" if cell.sample.n > 1 else ""),
        Entry(f"{printed.mean:.{digits}f}", f"{printed.std:.{digits}f}"),
        Entry(f"{comparison.difference:+.{digits}f}"),
        Entry(
            MISSING if comparison.untested else f"{comparison.p_value:.2g}",
            emphasis="bold" if comparison.incompatible else "",
        ),
        Entry("yes" if comparison.same_cell else "mean" if comparison.same_mean else "no"),
    )


def _count_line(one: Count) -> tuple[Entry, ...]:
    numbers = (one.cells, one.compatible, one.same_mean, one.same_cell, one.untested)
    return (Entry(one.name), *(Entry(str(number)) for number in numbers))
