from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from experiments.arena.costs import COSTS, ArenaCost
from experiments.arena.measures import ArenaResult
from experiments.arena.page import (
    NEAR,
    choices_grid,
    draw_scatter,
    draw_seconds,
    failures_grid,
    make_boards,
    outside_grid,
    seeds_grid,
    tables_of_few_rows,
    write_arena_page,
)
from experiments.arena.summary import ArenaBoard
from lvd import InputError


def result(table, method, winkler, seed=0, *, model="network", level=0.9, **others):
    given = {
        "rows": 100, "finite": 1.0, "coverage": 0.9, "tail_coverage": 0.8, "worst_slab": 0.7, "ert": 0.05,
        "ert_under": 0.03, "ert_over": 0.02, "groups": "9/10 8/10", "width": winkler, "median_width": 1.0,
        "auroc": 0.6, "width_error": 0.1, "fit_seconds": 1.0, "predict_seconds": 0.1,
    }  # fmt: skip
    return ArenaResult(table, model, seed, level, method, winkler=winkler, **(given | others))


def small_arena():
    return [
        *(result("a", "split", 10.0, seed) for seed in (0, 1)),
        *(result("b", "split", 2.0, seed) for seed in (0, 1)),
        result("a", "lvd", 6.0, 0),
        result("a", "lvd", 8.0, 1),
        *(result("b", "lvd", 2.2, seed) for seed in (0, 1)),
        *(result("a", "ten-lines", 8.0, seed) for seed in (0, 1)),
        *(result("b", "ten-lines", 1.6, seed, ert=0.01) for seed in (0, 1)),
        result("a", "cv-plus", math.nan, error="ValueError: too | few"),
    ]


def test_scores_are_means_over_seeds_beside_split():
    board = ArenaBoard(small_arena(), "network", 0.9)
    assert board.score("a", "lvd") == pytest.approx(0.7)
    assert board.score("b", "lvd") == pytest.approx(1.1)
    assert math.isnan(board.score("a", "cv-plus"))
    standings = {row.method: row for row in board.standings}
    assert standings["lvd"].score == pytest.approx(math.sqrt(0.7 * 1.1))
    assert standings["lvd"].worst == pytest.approx(1.1)
    assert (standings["lvd"].wins, standings["lvd"].losses) == (1, 1)
    assert standings["ten-lines"].ert == pytest.approx(0.03)
    assert "cv-plus" not in standings


def test_a_seed_that_split_lacks_does_not_count():
    board = ArenaBoard([*small_arena(), result("a", "lvd", 1e9, 7)], "network", 0.9)
    assert board.score("a", "lvd") == pytest.approx(0.7)


def test_ranks_by_hand_and_the_critical_difference():
    board = ArenaBoard(small_arena(), "network", 0.9)
    assert board.ranks() == {"split": 2.5, "lvd": 2.0, "ten-lines": 1.5}
    # Demsar (2006), table 5: q = 2.343 for three methods
    assert board.critical_difference() == pytest.approx(2.343 * math.sqrt(3 * 4 / (6 * 2)), rel=1e-3)


def test_no_table_decides_a_mean_of_ratios():
    """Twice split conformal's score on one table and half of it on another is as good as split conformal."""
    results = [
        *(result(table, "split", 1.0) for table in "ab"),
        result("a", "lvd", 2.0),
        result("b", "lvd", 0.5),
    ]
    standings = {row.method: row for row in ArenaBoard(results, "network", 0.9).standings}
    assert standings["lvd"].score == pytest.approx(1.0)
    assert standings["lvd"].score_band == pytest.approx((0.5, 2.0))


def test_two_methods_are_compared_on_the_seeds_that_both_have():
    board = ArenaBoard([*small_arena(), result("a", "ten-lines", 1e9, 5)], "network", 0.9)
    found = board.compare("lvd", "ten-lines")
    assert found.ratio == pytest.approx(math.sqrt(0.7 / 0.8 * 1.1 / 0.8))
    assert found.band[0] <= found.ratio <= found.band[1]
    assert (found.wins, found.losses) == (1, 1)


def test_the_way_to_the_floor():
    results = [result("c", "split", 10.0, floor=5.0), result("c", "lvd", 6.0, floor=5.0), *small_arena()]
    way = {row.method: row.way for row in ArenaBoard(results, "network", 0.9).standings}
    assert way["lvd"] == pytest.approx(0.8)
    assert way["split"] == 0.0


def test_bands_hold_the_mean_and_grow_with_the_spread(rng):
    def board(spread):
        scores = 1.0 + spread * rng.normal(size=(12, 4))
        tables = [
            one
            for table, seeds in enumerate(scores)
            for seed, score in enumerate(seeds)
            for one in (result(f"t{table}", "split", 1.0, seed), result(f"t{table}", "lvd", score, seed))
        ]
        return {row.method: row for row in ArenaBoard(tables, "network", 0.9).standings}["lvd"]

    narrow, wide = board(0.01), board(0.2)
    for row in (narrow, wide):
        assert row.score_band[0] < row.score < row.score_band[1]
    assert np.diff(wide.score_band) > 5 * np.diff(narrow.score_band)


def test_levels_and_models_are_kept_apart():
    others = [result("a", "split", 1.0, level=0.5), result("a", "split", 1.0, model="trees")]
    boards = make_boards([*others, *small_arena()])
    assert [(board.model, board.level) for board in boards] == [
        ("network", 0.9), ("trees", 0.9), ("network", 0.5),
    ]  # fmt: skip


def test_the_page_says_where_lvd_loses_and_what_did_not_run(tmp_path):
    written = write_arena_page(small_arena(), [], tmp_path / "arena.md")
    text = (tmp_path / "arena.md").read_text()
    assert [path.name for path in written] == [
        *(f"arena-network{end}.svg" for end in ("", "-ranks", "-seconds")),
        "arena.md",
    ]
    assert "**This is only a part of the arena**: 2 of 20 tables and 2 of 10 seeds" in text
    assert "| b | 1.100 | ten lines | 0.800 |" in text
    assert "| a | 0.700 |" not in text  # there LVD is the best
    assert (
        "**LVD** is number 2 of 3 methods that calibrate on rows of their own, LVD's other forms aside."
        in text
    )
    assert "times that of the best rival, ten lines" in text
    assert "better on 1 of 2 tables and worse on 1." in text
    assert "They were not run yet." in text
    assert "| CV+ | network | a | 1 | ValueError: too \\| few |" in text
    assert "<svg" in (tmp_path / "images" / "arena-network.svg").read_text()


def test_equal_reasons_are_told_once():
    failed = [result(table, "cv-plus", math.nan, seed, error="E") for table in "ab" for seed in (0, 1)]
    (line,) = failures_grid(failed).rows
    assert [entry.text for entry in line] == ["CV+", "network", "a, b", "4", "E"]


def test_a_page_without_the_main_level_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"needs results at level 0\.9"):
        write_arena_page([result("a", "split", 1.0, level=0.5)], [], tmp_path / "arena.md")
    assert not list(tmp_path.iterdir())


class TestChoices:
    def test_each_wish_names_the_first_by_the_figures(self):
        grid = choices_grid(make_boards(small_arena()))
        texts = {row[0].text: row[1].text for row in grid.rows}
        assert texts["the best interval score"] == "ten lines (0.800, ERT 0.030)"
        assert texts["coverage near each row, with a promise"] == "LVD (0.877, ERT 0.050)"
        assert texts["the best score with fewer than 2,000 rows"] == "ten lines (0.800, ERT 0.030)"
        assert texts["the best score with more than 5,000 rows"] == "\N{EN DASH}"

    def test_what_takes_long_to_fit_is_no_quick_choice(self):
        slow = [
            dataclasses.replace(one, fit_seconds=9.0) if one.method == "ten-lines" else one
            for one in small_arena()
        ]
        texts = {row[0].text: row[1].text for row in choices_grid(make_boards(slow)).rows}
        assert texts["a fit that takes at most 1.5 times split's"] == "LVD (0.877, ERT 0.050)"

    def test_what_fails_on_a_table_is_no_choice(self):
        """The best mean does not help who has the table where it is more than a tenth worse than split."""
        failing = [
            result("c", "split", 1.0),
            result("c", "ten-lines", 1.3),
            result("c", "lvd", 1.05),
            *small_arena(),
        ]
        failing += [result("a", "rcp", 0.1), result("b", "rcp", 0.1), result("c", "rcp", 1.2)]
        texts = {row[0].text: row[1].text for row in choices_grid(make_boards(failing)).rows}
        assert texts["the best interval score"].startswith("LVD (")

    def test_what_ran_on_small_tables_alone_is_no_choice(self):
        large = [result("c", method, 1.0, rows=9000) for method in ("split", "lvd", "ten-lines")]
        partly = [result(table, "rcp", 0.1) for table in "ab"]
        texts = {
            row[0].text: row[1].text
            for row in choices_grid(make_boards([*small_arena(), *large, *partly])).rows
        }
        assert texts["the best score with fewer than 2,000 rows"].startswith("ten lines (")


def test_far_methods_are_at_the_border_with_their_figure():
    far = [result("a", "rcp", 50.0), result("b", "rcp", 10.0), *small_arena()]
    (board,) = make_boards(far)
    for draw in (draw_scatter, draw_seconds):
        axes = draw(board).axes[0]
        assert axes.get_xlim()[1] == NEAR
        assert max(line.get_xdata()[0] for line in axes.lines) == NEAR
        assert any(text.get_text() == "RCP  5.000" for text in axes.texts)


def test_who_ran_on_a_part_of_the_tables_is_not_first(tmp_path):
    write_arena_page([*small_arena(), result("b", "rcp", 0.01)], [], tmp_path / "arena.md")
    text = (tmp_path / "arena.md").read_text()
    assert "**Sharpest: ten lines**" in text
    assert "**LVD** is number 2 of 3 methods" in text
    assert (
        "| RCP | 1 | 1 | 0.005 | 220.000 (220.00 to 220.00) | 0 : 1 |" in text
    )  # LVD beside it where both ran


def test_unseen_tables_are_apart_from_the_others(tmp_path):
    unseen = [result("gpa2", "split", 1.0), result("gpa2", "lvd", 0.01), result("gpa2", "ten-lines", 0.02)]
    write_arena_page([*small_arena(), *unseen], [], tmp_path / "arena.md")
    text = (tmp_path / "arena.md").read_text()
    assert "### Never looked at, network, 90%" in text
    assert "| **LVD** | 0.010 (0.01 to 0.01) |" in text
    assert "2 of 20 tables and 2 of 10 seeds" in text
    assert "| gpa2 |" not in text


def test_who_ran_with_fewer_seeds_is_told():
    rows = {
        row[0].text: [one.text for one in row[1:]]
        for row in seeds_grid(
            [
                *(one for one in small_arena() if (one.table, one.method, one.seed) != ("a", "lvd", 1)),
                result("a", "rcp", 1.0),
            ]
        ).rows
    }
    assert rows == {
        "LVD": ["network", "2", "1 to 2", "3 of 4"],
        "RCP": ["network", "1", "1", "1 of 4"],
    }


def test_all_that_is_relative_is_of_common_splits(tmp_path):
    """Split conformal is ten times worse with the seeds that LVD lacks, and a rival is better there alone."""
    results = [
        *(result("a", "split", score, seed) for seed, score in enumerate((10.0, 100.0, 100.0))),
        result("a", "lvd", 8.0),
        *(result("a", "ten-lines", score, seed) for seed, score in enumerate((9.0, 10.0, 10.0))),
    ]
    board = ArenaBoard(results, "network", 0.9)
    rows = {row.method: row for row in board.standings}
    assert (rows["lvd"].score, rows["lvd"].splits) == (pytest.approx(0.8), 1)
    assert (rows["ten-lines"].score, rows["ten-lines"].splits) == (pytest.approx(29 / 210), 3)
    assert rows["lvd"].relative("width") == pytest.approx(0.8)
    found = board.compare("lvd", "ten-lines")
    assert (found.ratio, found.wins, found.losses, found.splits) == (pytest.approx(8 / 9), 1, 0, 1)
    assert board.scores("a", "lvd", "ten-lines") == pytest.approx([0.8, 0.9])
    write_arena_page(results, [], tmp_path / "arena.md")
    text = (tmp_path / "arena.md").read_text()
    assert "On no table." in text  # where LVD loses
    assert "on the 1 split that both have, better on 1 of 1 tables and worse on 0." in text
    (line,) = [line for line in text.splitlines() if line.startswith("| LVD | 1 | 1 |")]
    assert "| 0.800 |" in line
    assert "| LVD | network | 1 | 1 | 1 of 3 |" in text


def test_the_page_says_where_cross_calibration_has_more_folds(tmp_path):
    few, many = result("a", "split", 1.0, rows=249), result("b", "split", 1.0, rows=250)
    assert tables_of_few_rows([few, many]) == ["a"]
    write_arena_page([few, many], [], tmp_path / "arena.md")
    assert "rows train and calibrate together, here on a, and five elsewhere" in (
        tmp_path / "arena.md"
    ).read_text().replace("\n", " ")


def test_rows_from_outside_are_a_table_of_their_own(tmp_path):
    outside = [
        result("concrete-old", "split", 5.0, outside_rows=9, outside_flagged=0.0, outside_coverage=0.4),
        result("concrete-old", "lvd", 5.0, finite=0.99, outside_rows=9, outside_flagged=1.0),
    ]
    (board,) = make_boards([*small_arena(), *outside])
    assert board.tables == ["a", "b"]
    rows = {row[0].text: [one.text for one in row[1:]] for row in outside_grid(board).rows}
    assert rows["split"] == ["0.0", "0.0", "40.0"]
    assert rows["LVD"] == ["1.0", "100.0", "\N{EN DASH}"]
    write_arena_page([*small_arena(), *outside], [], tmp_path / "arena.md")
    assert "Rows from outside, network" in (tmp_path / "arena.md").read_text()


def test_costs_are_listed_by_the_seconds_of_a_fit_and_failures_are_not(tmp_path):
    costs = [
        ArenaCost("a", "network", "lvd", 60, 200, 14.0, 0.002, 31.0),
        ArenaCost("a", "network", "split", 60, 200, 3.0, 0.001, 2.0),
        ArenaCost("a", "network", "cv-plus", error="ImportError: gone"),
    ]
    COSTS.write(costs, tmp_path / "costs.csv")
    page = tmp_path / "arena.md"
    write_arena_page(small_arena(), [], page, COSTS.read_file(tmp_path / "costs.csv"))
    text = page.read_text()
    assert text.index("| split | 3.00 | 5 | 2 |") < text.index("| LVD | 14.00 | 10 | 31 |")
    assert "`a` (60 training rows)" in text
    assert "gone" not in text
    write_arena_page(small_arena(), [], page)
    assert "Seconds and memory" not in page.read_text()
