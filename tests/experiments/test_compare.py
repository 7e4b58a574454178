"""Our cells beside the printed ones: what counts as the same, and a broken value that does not."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

import pytest
from scipy.stats import ttest_ind_from_stats

from experiments.paper.pages import agreement
from experiments.paper.printed import (
    ComparedCell,
    Count,
    PrintedCell,
    compare_with_printed,
    comparison_csv,
    comparison_grids,
    count_cells_by,
    printed_cells,
)
from experiments.paper.result_tables import Cell
from experiments.paper.significance import Sample

PRINTED = PrintedCell("coverage", "MCR", 0.9, "Yacht", "MADSplit", 82.4, 7.1, False, 1, 1)


def ours(mean: float, std: float, n: int = 10, printed: PrintedCell = PRINTED) -> ComparedCell:
    return ComparedCell(Cell(*printed.place, Sample(mean, std, n), printed.decimals, ""), printed)


def test_the_printed_cell_itself():
    same = ours(82.4, 7.1)
    assert (same.difference, same.p_value, same.compatible) == (0.0, 1.0, True)
    assert same.same_mean
    assert same.same_cell
    assert not ours(82.4, 7.3).same_cell
    assert not ours(82.46, 7.1).same_mean


def test_a_broken_value_is_incompatible():
    assert ours(82.4 + 6.0, 7.1).compatible
    broken = ours(82.4 + 12.0, 7.1)
    assert not broken.compatible
    assert broken.difference == pytest.approx(12.0)
    assert broken.p_value < 0.01


@pytest.mark.parametrize(
    ("mean", "std", "compatible", "as_printed"),
    [
        (0.0749, 0.001, True, False),  # would be printed 0.07, and differs from 0.0700 exactly
        (0.0749, 0.0, True, False),
        (0.0700, 0.0, True, True),
        (0.0760, 0.004, True, False),
        (0.0900, 0.001, False, False),
        (0.0900, 0.0, False, False),
    ],
)
def test_rounding_makes_no_rejection(mean, std, compatible, as_printed):
    rounded = replace(PRINTED, metric="MAD", mean=0.07, std=0.0, decimals=2, std_decimals=2)
    comparison = ours(mean, std, printed=rounded)
    assert (comparison.compatible, comparison.p_as_printed >= 0.01) == (compatible, as_printed)
    assert comparison.p_value >= comparison.p_as_printed


def test_the_allowance_never_lowers_the_p_value():
    for mean in (70.0, 80.0, 82.3, 82.5, 90.0):
        for std in (0.0, 0.05, 3.0):
            assert ours(mean, std).p_value >= ours(mean, std).p_as_printed


def test_a_cell_that_cannot_be_tested_counts_as_nothing():
    alone = ours(10.0, math.nan, 1)
    assert math.isnan(alone.p_value)
    assert (alone.compatible, alone.incompatible) == (False, False)
    assert alone.untested == "our figure exists on 1 seed"
    total = Count("all", [alone, ours(82.4, 7.1)])
    assert (total.cells, total.compatible, total.untested) == (1, 1, 1)
    assert agreement([alone, ours(82.4, 7.1)])["untested"] == {alone.untested: 1}


def test_rows_averaged_over_tasks_and_misprints_are_not_tested():
    average = ours(82.4, 7.1, 160, replace(PRINTED, dataset="QM8"))
    assert average.untested.startswith("averaged over tasks")
    repeated = replace(PRINTED, table="width_all", metric="width", confidence_level=0.5, dataset="QM9")
    assert ours(82.4, 7.1, 120, repeated).untested.startswith("misprinted")
    assert not any(c.compatible or c.incompatible for c in (average, ours(0.0, 0.1, 120, repeated)))
    assert ours(82.4, 7.1, 10, replace(PRINTED, dataset="QM8(E1-CC2)")).compatible


def test_the_criterion_is_that_of_scipy():
    """An average of the committed molecule tables that three printed deviations let pass."""
    shifted = replace(PRINTED, mean=33.53, std=0.36, decimals=2, std_decimals=2)
    comparison = ours(32.60, 0.30, 7, shifted)
    expected = ttest_ind_from_stats(32.60, 0.30, 7, 33.53 - 0.005, 0.365, 10, equal_var=False).pvalue
    assert comparison.p_value == pytest.approx(expected)
    assert comparison.incompatible


def test_only_cells_with_a_result_and_a_printed_counterpart_are_compared():
    cells = [
        ours(82.4, 7.1).cell,
        replace(ours(82.4, 7.1).cell, dataset="Boats"),
        replace(ours(82.4, 7.1).cell, sample=Sample(math.nan, math.nan, 0)),
    ]
    (found,) = compare_with_printed(cells)
    assert found.printed == PRINTED


def test_counts():
    dj = next(cell for cell in printed_cells() if cell.method == "DJ")
    comparisons = [ours(82.4, 7.1), ours(84.0, 7.1), ours(99.0, 1.0), ours(0.0, 0.1, printed=dj)]
    counted = [comparison for comparison in comparisons if comparison.counted]
    assert len(counted) == 3
    total = Count("all", counted)
    assert (total.cells, total.compatible, total.same_mean, total.same_cell) == (3, 2, 1, 1)
    assert total.sentence.startswith(
        "2 of 3 tested cells compatible (p >= 0.01), 66.7%; 1 equal to the last printed"
    )
    assert [(one.name, one.cells) for one in count_cells_by(comparisons, lambda c: c.cell.method)] == [
        ("MADSplit", 3),
        ("DJ", 1),
    ]
    assert Count("none", []).sentence.startswith("0 of 0 tested cells compatible (p >= 0.01), none")


def test_grids_and_csv():
    comparisons = [ours(82.4, 7.1), ours(99.0, 1.0)]
    cells, counts, incompatible = comparison_grids(comparisons)
    assert [entry.text for entry in cells.rows[0]] == [
        *("coverage", "MCR", "0.9", "Yacht", "MADSplit"),
        *("82.4", "82.4", "+0.0", "1", "yes"),
    ]
    assert [entry.text for entry in counts.rows[-1]] == ["all", "2", "1", "1", "1", "0"]
    assert [row[5].text for row in incompatible.rows] == ["99.0"]
    lines = list(csv.DictReader(io.StringIO(comparison_csv(comparisons))))
    assert (lines[1]["mean"], lines[1]["difference"], lines[1]["counted"]) == ("99", "16.6", "1")
