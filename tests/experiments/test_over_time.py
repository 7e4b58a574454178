"""The contest over time: measures by hand, what is finished is not done again, and the page of the results that are
kept."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import lvd
from experiments.over_time.contest import (
    COURSE_RESULTS,
    CourseResult,
    bounded_scores,
    lowest_in_a_row,
    run_contest,
)
from experiments.over_time.page import OURS, sequence_line, write_over_time_page
from experiments.over_time.rivals import RIVALS
from experiments.over_time.sequences import SEQUENCES, Sequence
from experiments.paper.result_store import read_calls

RESULTS = Path(__file__).resolve().parents[2] / "results" / "over_time.csv"


def test_measures_by_hand():
    covered = np.array([1, 1, 0, 0, 1, 1], bool)
    assert lowest_in_a_row(covered, 3) == pytest.approx(1 / 3)
    with pytest.raises(lvd.InputError, match="needs at least 7 rows, got 6"):
        lowest_in_a_row(covered, 7)
    ends = np.array([[0.0, 2.0], [0.0, 2.0], [-np.inf, np.inf], [-9.0, 2.0]])
    found = bounded_scores(ends, np.array([1.0, 3.0, 1.0, 1.0]), -5.0, 5.0)
    np.testing.assert_allclose(found, [2.0, 2.0 + 20.0, 10.0, 7.0])


@pytest.fixture
def short(monkeypatch):
    """A sequence of 1,200 rows in place of one."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(1200, 2))
    rows = Sequence(X, X[:, 0] + 0.1 * rng.normal(size=1200))
    monkeypatch.setitem(SEQUENCES, "slow", lambda _: rows)


def test_what_is_finished_is_not_done_again(short, tmp_path, monkeypatch):
    methods = ["split", "split-dtaci", "split-pid"]
    assert run_contest(["slow"], methods[:2], tmp_path) == 2
    first = COURSE_RESULTS.read(tmp_path)
    assert all(0.85 < one.coverage < 0.95 and not one.error for one in first)

    def fail(stage):
        raise RuntimeError("no memory")

    monkeypatch.setitem(RIVALS, "split-pid", ("split", fail))
    assert run_contest(["slow"], methods, tmp_path) == 1
    assert [one.error for one in COURSE_RESULTS.read(tmp_path)] == ["", "", "RuntimeError: no memory"]
    monkeypatch.undo()


def test_the_best_is_among_those_that_keep_the_level():
    ours = CourseResult("slow", OURS, 900, 0.9, 0.88, 10.0)
    sharp = CourseResult("slow", "split", 900, 0.7, 0.3, 5.0)
    better = CourseResult("slow", "split-aci", 900, 0.89, 0.86, 9.0)
    assert sequence_line([ours, sharp]) == (True, 0.9, 0.88)
    assert sequence_line([ours, sharp, better])[0] is False


def test_the_kept_results_meet_what_was_aimed_at_and_make_a_page(tmp_path):
    rows = COURSE_RESULTS.read(RESULTS)
    ours = [one for one in rows if one.method == OURS]
    assert len(ours) == len(SEQUENCES) == 5
    assert all(abs(one.coverage - 0.9) <= 0.01 and one.lowest >= 0.85 for one in ours)
    lines = [sequence_line([one for one in rows if one.sequence == name]) for name in SEQUENCES]
    assert sum(best for best, _, _ in lines) >= 4
    write_over_time_page(rows, read_calls(RESULTS), tmp_path / "page.md", RESULTS.with_name("online_cpu.csv"))
    kept = RESULTS.parents[1] / "docs" / "over_time.md"
    assert (tmp_path / "page.md").read_text() == kept.read_text()
    failed = [dataclasses.replace(one, error="no table") for one in rows]
    with pytest.raises(lvd.InputError, match="run the contest first"):
        write_over_time_page(failed, [], tmp_path / "page.md")
