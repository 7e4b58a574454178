"""Tables: the tests behind them, the rules of the captions, and their forms."""

from __future__ import annotations

import csv
import io
import math
from itertools import groupby

import numpy as np
import pytest
import scipy.stats
from rich.console import Console

from experiments.paper import formats
from experiments.paper import significance as emphasis
from experiments.paper.collect import Measured
from experiments.paper.formats import Grid, GridEntry
from experiments.paper.layout import DATASETS, LAYOUTS
from experiments.paper.methods import MAIN_VARIANT, METHODS
from experiments.paper.printed import printed_cells
from experiments.paper.result_tables import LONG_FORM, long_form, make_tables, table_grids
from experiments.paper.significance import Sample, p_above, p_below, p_different, sample_of
from lvd._validation import InputError

NONE = Sample(math.nan, math.nan, 0)


def measured(
    method: str, seed: int, level: float = 0.9, *, protocol: str = "paper", error: str = "", **figures: float
) -> Measured:
    """A run on Yacht whose figures are all 1 but the given ones."""
    rates = ("MCR", "TCR", "AUROC", "MAD")
    names = (*rates, "finite_count", "width", "width_lvd", "width_variants", "finite_variants")
    values = dict.fromkeys(names, 1.0) | figures
    return Measured(protocol, "yacht", method, seed, level, 62, **values, seconds=1.0, error=error)


class TestSignificance:
    a, b = [1.0, 2.0, 4.0, 3.5], [3.0, 4.5, 5.0, 4.0, 6.0]

    def test_samples(self):
        sample = sample_of([*self.a, math.nan])
        assert sample.n == 4
        assert sample.mean == pytest.approx(np.mean(self.a))
        assert sample.std == pytest.approx(np.std(self.a, ddof=1))
        assert sample_of([0.1] * 7) == Sample(0.1, 0.0, 7)
        assert (sample_of([2.0]).mean, sample_of([2.0]).n, sample_of([math.nan]).n) == (2.0, 1, 0)
        assert math.isnan(sample_of([2.0]).std)

    def test_as_scipy_has_them(self):
        a, b = sample_of(self.a), sample_of(self.b)
        stats = scipy.stats
        assert p_below(a, 3.0) == pytest.approx(stats.ttest_1samp(self.a, 3.0, alternative="less").pvalue)
        assert p_above(a, 3.0) == pytest.approx(stats.ttest_1samp(self.a, 3.0, alternative="greater").pvalue)
        less, both = (
            stats.ttest_ind(self.a, self.b, equal_var=False, alternative=side).pvalue
            for side in ("less", "two-sided")
        )
        assert p_different(a, b, "less") == pytest.approx(less)
        assert p_different(a, b) == p_different(b, a) == pytest.approx(both)

    def test_without_spread_or_figures(self):
        five, six = Sample(5.0, 0.0, 10), Sample(6.0, 0.0, 10)
        less = [p_different(a, b, "less") for a, b in ((five, six), (six, five), (five, five))]
        assert less == [0.0, 1.0, 1.0]
        assert (p_different(five, five), p_different(five, six)) == (1.0, 0.0)
        assert (p_below(five, 5.0), p_below(five, 5.1)) == (1.0, 0.0)
        no_test = [
            p_different(Sample(1.0, math.nan, 1), six, "less"),
            p_different(five, Sample(1.0, math.nan, 1)),
            p_different(five, sample_of([1.0, math.inf]), "less"),
            *(p_below(NONE, 90.0), p_above(NONE, 50.0)),
        ]
        assert all(map(math.isnan, no_test))


class TestEmphasis:
    @pytest.mark.parametrize(
        ("rule", "row", "expected"),
        [
            (
                emphasis.not_below_level,
                [Sample(96, 1, 10), Sample(89.5, 3, 10), Sample(85, 2, 10), Sample(89.9, 0, 10), NONE],
                ["bold", "bold", "", "", ""],
            ),
            (
                emphasis.above_chance,
                [Sample(60, 5, 10), Sample(52, 5, 10), Sample(40, 1, 10), Sample(50, 0, 10), NONE],
                ["bold", "", "", "", ""],
            ),
            (
                emphasis.lowest_if_significant,
                [Sample(2, 0.1, 10), Sample(2, 0.1, 10), NONE, Sample(3, 0.1, 10)],
                ["bold", "bold", "", ""],
            ),
            (emphasis.lowest_if_significant, [Sample(2, 3, 10), Sample(3, 3, 10)], ["", ""]),
            (emphasis.lowest_if_significant, [Sample(2, 3, 10), NONE], ["", ""]),
            (emphasis.highest, [Sample(2, 1, 10), NONE, Sample(3, 1, 10)], ["", "", "bold"]),
            (emphasis.lowest, [Sample(2, 1, 10), Sample(3, 1, 10), NONE], ["bold", "", ""]),
            (
                emphasis.lowest_count,
                [Sample(2, 1, 10), Sample(3, 1, 10), Sample(2, 1, 10)],
                ["underline", "", "underline"],
            ),
            (emphasis.lowest, [NONE], [""]),
            (emphasis.nothing, [Sample(2, 1, 10)], [""]),
        ],
    )
    def test_by_hand(self, rule, row, expected):
        assert rule(row) == expected

    def test_the_rules_give_the_printed_bold(self):
        """On the printed figures themselves, but for rows in which rounding has made the best ones equal."""
        rules = {(t.name, b.metric): b.rule for t in LAYOUTS for panel in t.panels for b in panel}
        compared = 0
        for place, group in groupby(
            printed_cells(), key=lambda c: (c.table, c.metric, c.confidence_level, c.dataset)
        ):
            row = list(group)
            if place[3] not in DATASETS[:6] or place[:2] not in rules:  # QM8 and QM9 pool their tasks
                continue
            expected = ["bold" if cell.bold else "" for cell in row]
            ours = rules[place[:2]]([Sample(cell.mean, cell.std, 10) for cell in row])
            best = min if "width" in place or "MAD" in place else max
            tied = [cell.mean for cell in row].count(best(cell.mean for cell in row)) > 1
            if "underline" not in ours and not (tied and place[1] in ("width", "AUROC")):
                assert ours == expected, place
                compared += 1
        assert compared == 88


class TestTables:
    def test_mean_and_spread_over_the_seeds(self):
        rows = [measured("CQR", seed, MCR=80.0 + seed, width=math.nan) for seed in range(3)]
        tables = make_tables([*rows, measured("CQR", 9, error="MemoryError", MCR=math.nan)])
        cells = {(c.table, c.metric, c.confidence_level, c.method): c for c in tables.cells}
        assert cells["coverage", "MCR", 0.9, "CQR"].sample == Sample(81.0, 1.0, 3)
        assert cells["width_all", "width", 0.9, "CQR"].sample.n == 0
        assert cells["coverage", "MCR", 0.9, "DJ"].sample.n == 0
        assert (tables.protocol, tables.test_sizes) == ("paper", {"Yacht": 62})

    def test_each_table_takes_its_own_width(self):
        row = measured(MAIN_VARIANT, 0, 0.5, width=1.0, width_lvd=2.0, width_variants=3.0)
        other = measured("MADSplit", 0, 0.5, width=1.0, width_lvd=2.0, width_variants=3.0)
        widths = {
            (cell.table, cell.method): cell.sample.mean
            for cell in make_tables([row, other]).cells
            if cell.metric == "width" and cell.sample.n
        }
        assert widths == {
            ("width", MAIN_VARIANT): 2.0,
            ("width", "MADSplit"): 2.0,
            ("width_all", "MADSplit"): 1.0,
            ("width_variants", MAIN_VARIANT): 3.0,
        }

    def test_the_places_are_those_of_the_paper(self):
        rows = [
            measured(method, seed, level) for method in METHODS for seed in range(2) for level in (0.5, 0.9)
        ]
        ours = {
            (c.table, c.metric, c.confidence_level, c.method): c.decimals
            for c in make_tables(rows).cells
            if c.table != "split"
        }
        printed = {
            (c.table, c.metric, c.confidence_level, c.method): c.decimals
            for c in printed_cells()
            if c.dataset == "Yacht"
        }
        assert ours == printed

    def test_the_protocol_is_asked_for_where_there_are_two(self):
        rows = [measured("CQR", 0), measured("CQR", 0, protocol="sound")]
        assert make_tables(rows, "sound").protocol == "sound"
        for wrong in (None, "honest"):
            with pytest.raises(
                InputError, match="protocol must be one of those the results have, paper, sound"
            ):
                make_tables(rows, wrong)
        with pytest.raises(InputError, match="none, got"):
            make_tables([])

    def test_long_form(self):
        text = long_form(make_tables([measured("CQR", s, MCR=80.0 + s) for s in range(3)]).cells)
        lines = list(csv.DictReader(io.StringIO(text)))
        assert tuple(lines[0]) == LONG_FORM
        assert list(lines[0].values()) == ["coverage", "MCR", "0.9", "Yacht", "CQR", "81", "1", "3"]
        places = {(c.table, c.metric, str(c.confidence_level), c.dataset, c.method) for c in printed_cells()}
        assert {tuple(line[name] for name in LONG_FORM[:5]) for line in lines} <= places


class TestFormats:
    grid = Grid(
        "Title_1",
        "A caption with 90%.",
        ("", "a|b", "c"),
        (
            (GridEntry("Yacht"), GridEntry("1.0", "0.5", "bold"), GridEntry("2.0", emphasis="underline")),
            (GridEntry("Bike"), GridEntry("\N{EN DASH}"), GridEntry("\N{INFINITY}", "1.0")),
        ),
    )

    def test_markdown(self):
        assert formats.to_markdown([self.grid]).splitlines() == [
            "### Title_1",
            "",
            "A caption with 90%.",
            "",
            "|  | a\\|b | c |",
            "|---|---|---|",
            "| Yacht | **1.0** ± 0.5 | <u>2.0</u> |",
            "| Bike | \N{EN DASH} | \N{INFINITY} ± 1.0 |",
        ]

    def test_latex(self):
        text = formats.to_latex([self.grid])
        assert r"\caption{Title\_1. A caption with 90\%.}" in text
        assert r"Yacht & \textbf{1.0}$\pm$0.5 & \underline{2.0} \\" in text
        assert r"Bike & \textendash & $\infty$$\pm$1.0 \\" in text
        assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 1

    def test_terminal(self):
        console = Console(width=80, record=True, file=io.StringIO())
        for part in formats.to_terminal([self.grid]):
            console.print(part)
        assert "Yacht  1.0 ± 0.5      2.0" in console.export_text()

    def test_all_grids_have_a_text_for_every_heading(self):
        grids = table_grids(
            make_tables([measured(method, 0, level) for method in METHODS for level in (0.5, 0.9)])
        )
        assert [len(grid.rows) for grid in grids] == [1] * len(grids)
        assert all(len(row) == len(grid.headings) for grid in grids for row in grid.rows)
        assert grids[0].rows[0][1].text == "308 (62)"
        assert grids[5].headings == ("", "# finite @ 50%", "LVD", "MADSplit", "CQR")
        assert grids[5].rows[0][0].text == "Yacht (62)"
