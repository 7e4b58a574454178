"""The page on the reproduction, the table of features, and what changes between protocols."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from experiments.paper.collect import METRICS, Measured
from experiments.paper.layout import LAYOUTS
from experiments.paper.method_grids import FEATURED, decision_grid, features_grid, seconds_grid, tails_grid
from experiments.paper.methods import MAIN_VARIANT, METHODS, REGRESSORS
from experiments.paper.pages import Note, read_notes, render_small_page, write_small_page
from experiments.paper.printed import printed_cells
from experiments.paper.rerun import pair_runs, rerun_grid
from experiments.paper.result_store import Call
from experiments.paper.result_tables import make_tables
from lvd._validation import InputError

FIELDS = {
    (layout.name, block.metric): block.field or block.metric
    for layout in LAYOUTS
    for panel in layout.panels
    for block in panel
}


@pytest.fixture(scope="module")
def as_printed() -> list[Measured]:
    """Runs on Concrete and Bike whose means are the printed ones; three seeds, all the same."""
    figures: dict[tuple[str, str, float], dict[str, float]] = {}
    for cell in printed_cells():
        if cell.dataset in ("Concrete", "Bike"):
            place = (cell.dataset.lower(), cell.method, cell.confidence_level)
            figures.setdefault(place, {})[FIELDS[cell.table, cell.metric]] = cell.mean
    figures |= {(name, "split", level): {} for name in ("concrete", "bike") for level in (0.5, 0.9)}
    seconds = {"split": 2.0, MAIN_VARIANT: 2.5, "MADSplit": 4.0}
    return [
        Measured("paper", dataset, method, seed, level, 206, **values, seconds=seconds.get(method, 9.0))
        for (dataset, method, level), values in figures.items()
        for seed in range(3)
    ]


def page_of(rows, calls=(), notes=()):
    return " ".join(render_small_page(rows, calls, notes).split())


def test_the_page_counts_what_agrees(as_printed):
    page = page_of(as_printed)
    assert (
        "**176 of 176 tested cells compatible (p >= 0.01), 100.0%; 176 equal to the last printed digit"
        in page
    )
    assert "### Incompatible cells None." in page
    assert "| Bike | 88 | 88 | 88 |" in page
    assert "What changes under the sound protocol" not in page
    assert "No record of the commands" in page


def test_the_page_lists_a_broken_cell_with_what_is_known_of_it(as_printed):
    rows = [
        replace(row, TCR=row.TCR - 30.0) if (row.dataset, row.method) == ("bike", "CQR") else row
        for row in as_printed
    ]
    notes = [Note("Somebody broke it.", dataset="Bike", method="CQR"), Note("Not this.", dataset="Concrete")]
    page = page_of(rows, notes=notes)
    assert "**175 of 176 tested cells compatible" in page
    assert "| coverage | TCR | 0.9 | Bike | CQR | 28.7 ± 0.0 | 58.7 ± 7.3 | -30.0 | **" in page
    assert "- Bike, coverage, TCR at 0.9, CQR: Somebody broke it." in page
    assert "Not this." not in page


def test_the_page_says_what_changes(as_printed):
    sound = [replace(row, protocol="sound", MAD=25.0, MCR=91.0) for row in as_printed]
    page = page_of([*as_printed, *sound])
    assert "its mean error is 0.04. Without them it is 25.00" in page
    assert "| Bike (206) | 90.4 -> 91.0 |" in page
    assert "MADSplit's MCR: Bike 89.9 -> 91.0, Concrete 88.8 -> 91.0." in page
    assert "## Tables, sound protocol" in page


def test_the_page_tells_how_it_was_made_and_what_failed(as_printed):
    made = ("python -m experiments run --out RESULTS", "2024-05-01T10:00:00+00:00", {"lvd": "0.1.0"}, "a box")
    call = Call(*made, runs=660, seconds=90.0, processor_seconds=150.0)
    failed = replace(as_printed[0], method="DJ", error="InputError: needs\n 3 | 4 GB", MCR=math.nan)
    page = page_of([*as_printed, failed, replace(failed, seed=1)], [call])
    assert "python -m experiments run --out RESULTS" in page
    assert "| 2024-05-01T10:00:00+00:00 | 660 | 1.5 | 2.5 | a box | lvd 0.1.0 |" in page
    assert f"| paper | {failed.dataset} | DJ | InputError: needs 3 \\| 4 GB | 2 |" in page


def test_headings_go_down_one_level_at_a_time(as_printed):
    lines = render_small_page(as_printed, [], []).splitlines()
    levels = [len(line.split()[0]) for line in lines if line.startswith("#")]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_the_page_is_written_from_tables_and_notes(as_printed, tmp_path):
    METRICS.write(as_printed, tmp_path / "small.csv")
    (tmp_path / "notes.toml").write_text('[[note]]\ndataset = "Bike"\ntext = "It leaks."\n')
    write_small_page([tmp_path / "small.csv"], tmp_path / "page.md", notes=tmp_path / "notes.toml")
    assert (tmp_path / "page.md").read_text().startswith("# Reproduction\n")
    assert read_notes(tmp_path / "notes.toml") == [Note("It leaks.", dataset="Bike")]


def test_what_the_page_cannot_do_without(as_printed, tmp_path):
    with pytest.raises(InputError, match="needs results of the paper protocol"):
        render_small_page([replace(row, protocol="sound") for row in as_printed], [], [])
    (tmp_path / "notes.toml").write_text("[[note]]\ncolour = 'red'\n")
    with pytest.raises(InputError, match="cannot be read"):
        read_notes(tmp_path / "notes.toml")


def test_features_are_looked_up_and_measured(as_printed):
    grid = features_grid(make_tables(as_printed), as_printed)
    columns = dict(zip(grid.headings, zip(*grid.rows, strict=True), strict=True))
    texts = {name: [entry.text for entry in column] for name, column in columns.items()}
    assert texts[""] == ["Valid", "Discriminative", "Post hoc", "Overhead"]
    assert texts["LVD"] == ["local", "2 of 2", "yes", "0.5 s (25%)"]
    assert texts["MADSplit"] == ["marginal", "2 of 2", "yes", "2.0 s (100%)"]
    assert texts["CQR"][2] == "no"
    assert texts["DJ"][1] == "0 of 2"
    assert texts["split"][3] == "0.0 s (0%)"
    assert set(FEATURED) <= set(REGRESSORS) == set(METHODS)


def test_seconds_stand_by_dataset_and_method(as_printed):
    grid = seconds_grid(make_tables(as_printed), as_printed)
    assert [row[0].text for row in grid.rows] == ["Bike", "Concrete"]
    assert grid.rows[0][grid.headings.index("split")].text == "2.0"


def test_the_methods_at_a_glance(as_printed):
    rows = [replace(row, n_test=400, finite_count=100.0, width_lvd=2.0) for row in as_printed]
    rows = [replace(row, width_lvd=4.0) if row.method == "split" else row for row in rows]
    lines = {line[0].text: [entry.text for entry in line[1:]] for line in decision_grid(rows, "paper").rows}
    assert lines["CQR"] == ["0 of 2", "0 of 2", "2 of 2", "25%", "25%", "0.50"]
    assert lines["LVD"][:2] == ["2 of 2", "2 of 2"]
    without_split = decision_grid([row for row in rows if row.method != "split"], "paper")
    assert {line[-1].text for line in without_split.rows} == {"\N{EN DASH}"}
    assert "split" not in lines


def test_without_split_conformal_the_overhead_is_unknown(as_printed):
    rows = [row for row in as_printed if row.method != "split"]
    grid = features_grid(make_tables(rows), rows)
    assert {entry.text for entry in grid.rows[3][1:]} == {"\N{EN DASH}"}


def test_the_page_counts_a_figure_of_one_seed_apart(as_printed):
    """Kin8nm's widths where all eight variants are finite: a single split has such a row."""
    rows = [
        replace(row, width_variants=math.nan) if row.dataset == "bike" and row.seed else row
        for row in as_printed
    ]
    page = page_of(rows)
    assert "**160 of 160 tested cells compatible" in page
    assert "16 because our figure exists on 1 seed." in page
    assert "### Cells without a test 16 cells" in page


def test_tails_say_how_many_of_their_intervals_are_finite(as_printed):
    sound = [
        replace(row, protocol="sound", finite_count=100.0 if row.method == MAIN_VARIANT else 206.0, TCR=91.0)
        for row in as_printed
    ]
    again = [replace(row, finite_tail=13.0 + row.seed) for row in sound if row.method == MAIN_VARIANT]
    lines = [[entry.text for entry in row] for row in tails_grid(sound, "sound", again).rows]
    assert lines == [
        [name, *("91.0", "14%"), *("91.0", "100%") * 3] for name in ("Bike", "Concrete")
    ]  # LVD, DE, CQR, split
    unknown = tails_grid(sound, "sound").rows
    assert {row[2].text for row in unknown} == {"\N{EN DASH}"}


class TestRerun:
    def test_what_moves_is_shown_method_by_method(self, as_printed):
        again = [
            replace(row, MCR=row.MCR + 6.0 * (row.seed - 1), width=row.width * 1.1)
            if (row.dataset, row.method) == ("bike", "CQR")
            else row
            for row in as_printed
        ]
        grid = rerun_grid(pair_runs(as_printed, again, "paper"), "paper")
        lines = {row[0].text: [entry.text for entry in row[1:]] for row in grid.rows}
        # Bike and Concrete; the seeds are 0, 1 and 2, so the mean MCR stays.
        assert lines["CQR"] == [
            *("0 of 6", "6 of 6"), *("6.0", "0.0", "0.0", "0.0", "10.0"), *("0.0", "0.0", "0.0", "10.0"),
        ]  # fmt: skip
        assert lines["LVD"] == ["6 of 6", "6 of 6", *["0.0"] * 9]

    def test_a_figure_that_only_one_has_is_not_the_same(self, as_printed):
        again = [replace(row, width=math.nan) for row in as_printed if row.method == "CQR"]
        (line,) = rerun_grid(pair_runs(as_printed, again, "paper"), "paper").rows
        assert [entry.text for entry in line[1:3]] == ["0 of 6", "0 of 6"]

    def test_without_a_run_in_common(self, as_printed):
        with pytest.raises(InputError, match="have no runs of the sound protocol in common"):
            pair_runs(as_printed, as_printed, "sound")

    def test_the_page_shows_it(self, as_printed):
        assert "## What moves on another processor" not in page_of(as_printed)
        page = " ".join(render_small_page(as_printed, [], [], rerun=as_printed).split())
        assert "### The same runs on another machine (paper protocol)" in page
