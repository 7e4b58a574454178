"""Growth to a million rows and learning curves: what is measured, and the page that comes from it alone."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks import growth_page, learning, million
from benchmarks.million import ALL_ROWS, CALIBRATION, FITS, GROWTH, Cost, Found, Request
from experiments.paper.result_store import write_dataclasses
from lvd import InputError
from lvd.scores import distributional, quantile_trees, scaled, score
from lvd.support import rule

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"


def bounds_now():
    return (
        score.LEARNED_ROWS,
        scaled.NETWORK_ROWS,
        distributional.MOST_ROWS,
        quantile_trees.MOST_TREE_ROWS,
        scaled.KERNEL_ROWS,
        rule.MOST_ROWS,
    )


SHIPPED = bounds_now()


class TestContestants:
    @pytest.fixture(scope="class")
    @classmethod
    def rows(cls):
        return million.rows_of(1500)

    @pytest.mark.parametrize("who", list(FITS))
    def test_each_answers_the_same_rows(self, who, rows):
        if who in {"crepes", "MAPIE split"}:
            pytest.importorskip(who.split()[0].lower())
        X, y = rows
        answer = FITS[who](X[:1000], y[:1000])(X[1000:])
        if who == "model alone":
            assert answer.shape == (500,)
            return
        intervals = np.reshape(answer, (500, 2))
        inside = (intervals[:, 0] <= y[1000:]) & (y[1000:] <= intervals[:, 1])
        assert (0.6 if who == "ten lines" else 0.8) < inside.mean() < 0.98
        assert million.judged(y[1000:], answer, y)[0] > million.judged(y[1000:], answer, y)[1] > 0.0

    def test_others_calibrate_on_as_many_rows_as_lvd(self, monkeypatch):
        X, y = million.rows_of(400)
        assert [len(part) for part in million.set_aside(X, y)] == [300, 300, 100, 100]
        monkeypatch.setattr(million, "MOST_SET_ASIDE", 60)
        assert [len(part) for part in million.set_aside(X, y)] == [340, 340, 60, 60]


@pytest.mark.apart
class TestMeasuring:
    def test_a_process_of_its_own_measures_time_memory_and_quality(self, monkeypatch, capsys):
        monkeypatch.setattr(million, "N_TEST", 400)
        million.main(["--one", GROWTH, "ten lines", "500", "400"])
        found = Found(*map(float, capsys.readouterr().out.split()))
        assert found.fit_seconds > 0.0
        assert found.predict_seconds > 0.0
        assert found.peak_gb > 0.05
        assert found.interval_score > found.width > 0.0
        assert np.isnan(found.effective_rows)

    def test_fewer_calibration_rows_weigh_less(self, monkeypatch):
        monkeypatch.setattr(million, "N_TRAIN", 300)
        monkeypatch.setattr(million, "SEVERAL", (100, 800))
        whole, drawn = (million.measure_calibration(who, 800, 300) for who in (ALL_ROWS, "100"))
        assert 0.0 < drawn.effective_rows <= 100.0 < whole.effective_rows <= 800.0
        assert np.isfinite([drawn.interval_score, drawn.width]).all()

    def test_a_run_goes_on_where_it_stopped(self, monkeypatch, tmp_path):
        asked = []

        def found(request):
            asked.append(request)
            if request.who == "lvd":
                raise InputError("lvd failed at 1,000 rows: it was killed")
            return Found(1.0, 2.0, 3.0, 4.0, 5.0, 6.0)

        monkeypatch.setattr(Request, "in_a_process", found)
        file, plan = tmp_path / "growth.csv", list(million.plan([1000], 0))
        with pytest.raises(InputError, match="it was killed"):
            million.run(plan, file, lambda cost: None)
        assert len(million.read_costs(file)) == len(asked) - 1 == len(FITS) - 1
        monkeypatch.setattr(Request, "in_a_process", lambda request: Found(1.0, 2.0, 3.0, 4.0, 5.0, 6.0))
        costs = million.run(plan, file, lambda cost: None)
        assert [one.who for one in costs] == list(FITS)
        again = million.run(plan, file, lambda cost: pytest.fail("measured twice"))
        assert [one.who for one in again] == list(FITS)
        assert costs[0].date == million.date_to_load()[0]

    def test_a_process_that_fails_says_why(self):
        with pytest.raises(InputError, match=r"nobody failed at 1,000 rows: KeyError: 'nobody'"):
            Request(GROWTH, "nobody", 1000, 10).in_a_process()

    def test_the_plan_holds_all_sizes_and_calibrations(self):
        plan = list(million.plan(million.SIZES, 100))
        assert {(one.who, one.rows) for one in plan if one.part == GROWTH} == {
            (who, size) for who in FITS for size in (10_000, 30_000, 100_000, 400_000, 1_000_000)
        }
        calibrations = [(one.rows, one.who) for one in plan if one.part == CALIBRATION]
        assert calibrations[:2] == [(25_000, ALL_ROWS), (250_000, ALL_ROWS)]
        assert (250_000, "25000") in calibrations


class TestLearningFromMoreAndMoreRows:
    def test_bounds_are_lifted_and_put_back(self):
        with learning.learning_from(150_000):
            assert bounds_now() == (150_000, 150_000, 150_000, 150_000, 20_000, 20_000)
        assert bounds_now() == SHIPPED

        def fail():
            with learning.learning_from(5):
                assert bounds_now() == (5, 5, 5, 5, 5, 5)
                raise RuntimeError

        with pytest.raises(RuntimeError):
            fail()
        assert bounds_now() == SHIPPED

    def test_the_parts_of_a_table_are_disjoint_and_bounded(self, monkeypatch):
        monkeypatch.setattr(learning, "MOST", {"model": 50, "calib": 20, "test": 300})
        X = np.arange(1000.0)[:, None]
        parts = learning.parts_of(X, X[:, 0], 0)
        held = [part[1] for part in (parts.learn, parts.calib, parts.test)]
        assert [len(one) for one in held] == [730, 20, 200]
        assert len(np.unique(np.concatenate(held))) == 950, "the other fifty trained the model"
        assert not np.array_equal(learning.parts_of(X, X[:, 0], 1).test[1], parts.test[1])

    def test_fewer_rows_than_there_are_then_all_then_the_default(self):
        assert learning.ways_of(27_000) == [
            ("rows", 5_000), ("rows", 10_000), ("rows", 20_000), ("rows", 27_000), ("default", 27_000)
        ]  # fmt: skip
        assert learning.ways_of(3_000) == [("rows", 3_000), ("default", 3_000)]

    def test_more_rows_teach_more_and_a_run_goes_on(self, tmp_path, capsys):
        file, load = tmp_path / "curves.csv", partial(learning.table_of, n_synthetic=1500, data=None)
        points = learning.run(["skewed"], [0], file, load, bounds=(100,))
        assert bounds_now() == SHIPPED
        at_90 = {(one.way, one.rows): one for one in points if one.level == 0.9}
        assert list(at_90) == [("rows", 100), ("rows", 900), ("default", 900)]
        assert at_90["rows", 900].interval_score < at_90["rows", 100].interval_score
        assert at_90["default", 900].interval_score < at_90["rows", 100].interval_score
        capsys.readouterr()
        again = learning.run(["skewed"], [0], file, load, bounds=(100,))
        assert capsys.readouterr().out == ""
        assert [(one.rows, one.level) for one in again] == [(one.rows, one.level) for one in points]
        assert len(learning.run(["skewed"], [0, 1], file, load, bounds=(100,))) == 2 * len(points)

    @pytest.mark.parametrize("name", list(learning.SYNTHETIC))
    def test_synthetic_tables_are_the_same_each_time(self, name):
        one, other = (learning.SYNTHETIC[name](500) for _ in range(2))
        np.testing.assert_array_equal(one[1], other[1])
        assert one[0].shape[0] == 500

    @pytest.mark.parametrize("name", ["protein", "diamonds", "house"])
    def test_real_tables_are_whole(self, name, shared_dir):
        X, y = learning.table_of(name, 0, shared_dir / "data")
        assert len(X) == len(y) > 20_000


def cost(part, who, rows, **measured):
    figures = {
        "fit_seconds": 2.0,
        "predict_seconds": 1.0,
        "peak_gb": 0.5,
        "interval_score": 5.0,
        "width": 3.0,
    }
    given = Found(**(figures | {"effective_rows": 10.0} | measured))
    return Cost(*million.date_to_load(), part, who, rows, 1000, *given)


def point(way, rows, level, found, **changed):
    made = learning.Point("2026-01-01", "a machine", "2", "1", "1", "corner", 40_000, 0, way, rows, level, found,
                          1.0, 3.0)  # fmt: skip
    return replace(made, **changed)


class TestThePage:
    def page(self, tmp_path, costs=(), points=()):
        (tmp_path / "images").mkdir(exist_ok=True)
        files = []
        for rows, name, kind in ((costs, "costs.csv", Cost), (points, "curves.csv", learning.Point)):
            if rows:
                write_dataclasses(rows, tmp_path / name, kind)
                files.append(tmp_path / name)
        growth_page.write_page(tmp_path, files)
        text = (tmp_path / "growth.md").read_text(encoding="utf-8")
        assert "\n\n\n" not in text
        return text

    def test_costs_and_aims(self, tmp_path):
        sizes = (100_000, 400_000)
        costs = [
            cost(GROWTH, who, size, fit_seconds=size / 1e5) for size in sizes for who in FITS if who != "lvd"
        ]
        costs += [
            cost(GROWTH, "lvd", 100_000, fit_seconds=2.5),
            cost(GROWTH, "lvd", 400_000, fit_seconds=9.0),
        ]
        text = self.page(tmp_path, costs)
        assert "| lvd | 2.5 s (2.5) | 9 s (2.2) | 0.92 |" in text
        assert "of 100,000 rows in at most 3 times the time of ten lines: reached, 2.5 times" in text
        assert "of 400,000 rows in at most 2 times the time of ten lines: not reached, 2.2 times" in text
        assert "of 1,000,000 rows in at most 2 times the time of ten lines: not measured yet" in text
        assert (tmp_path / "images" / "growth.png").stat().st_size > 10_000
        assert text.count("Not measured yet: run") == 2

    @pytest.mark.parametrize(
        ("seconds", "said"), [(2.9, "reached, 2.9 times"), (6.0, "not reached with all rows, 6 times")]
    )
    def test_what_many_calibration_rows_cost(self, seconds, said, tmp_path):
        costs = [
            cost(CALIBRATION, ALL_ROWS, 25_000),
            cost(CALIBRATION, ALL_ROWS, 250_000, predict_seconds=seconds, effective_rows=125_000.0),
            cost(CALIBRATION, "25000", 250_000, interval_score=5.1, width=2.997),
        ]  # fmt: skip
        text = self.page(tmp_path, costs)
        assert said in text
        assert "rests on 50% of them" in text
        assert "| 250,000 | 25,000 | 2 s | 1 s | 1.00 | 10 | 5.1 (+2.00%) | 2.997 (-0.10%) |" in text

    @pytest.mark.parametrize(("worst", "holds"), [(10.09, True), (10.11, False)])
    def test_whether_the_default_is_within_one_percent(self, worst, holds, tmp_path):
        points = [point("rows", size, level, 10.0 + 1.0 * (size < 9000)) for size in (5_000, 20_000)
                  for level in learning.LEVELS]  # fmt: skip
        points += [
            point("default", 20_000, level, worst if level == 0.95 else 9.9) for level in learning.LEVELS
        ]
        text = self.page(tmp_path, points=points)
        said = f"corner (at most {worst / 10 - 1:+.2%}, at 95%)"
        assert (f"all rows on\n{said}." in text) == holds
        assert (f"It is not on {said}." in text) != holds
        assert "| corner, 20,000 | +10.0% | -1.0% |" in text.replace("| +0.0% ", "")
        assert (tmp_path / "images" / "learning_curves.png").stat().st_size > 10_000

    def test_a_table_that_was_not_measured_to_the_end_is_left_out(self, tmp_path):
        ended = [point(way, 20_000, level, 10.0) for way in ("rows", "default") for level in learning.LEVELS]
        begun = [point("rows", 5_000, level, 9.0, table="house") for level in learning.LEVELS]
        text = self.page(tmp_path, points=[*ended, *begun])
        assert "house" not in text
        assert "corner 40,000 rows" in text

    def test_the_page_in_the_documentation_holds_the_results(self, tmp_path):
        (tmp_path / "images").mkdir()
        files = [RESULTS / name for name in ("growth.csv", "learning_curves.csv")]
        growth_page.write_page(tmp_path, [file for file in files if file.exists()])
        assert (tmp_path / "growth.md").read_text() == (ROOT / "docs" / "growth.md").read_text()

    def test_without_a_folder_of_images(self, tmp_path):
        with pytest.raises(InputError, match="--docs: there is no folder"):
            growth_page.write_page(tmp_path, [RESULTS / "learning_curves.csv"])


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        (million, [], "benchmarks.million: --out is missing"),
        (million, ["--out", "nowhere/growth.csv"], "benchmarks.million: --out: there is no folder nowhere"),
        (million, ["--out", "a.csv", "--sizes", "7"], "benchmarks.million: --sizes must be at least 100"),
        (million, ["--out", "a.csv", "--predictions", "-1"], "benchmarks.million: --predictions must be"),
        (million, ["--page", "nowhere.csv"], "benchmarks.million: --page: cannot read nowhere.csv"),
        (million, ["--page", "README.md"], "benchmarks.million: README.md is not a file of learning curves"),
        (learning, ["--out", "nowhere/a.csv"], "benchmarks.learning: --out: there is no folder nowhere"),
        (learning, ["--out", "a.csv", "--synthetic", "5"], "benchmarks.learning: --synthetic must be"),
        (learning, ["--out", "a.csv", "--data", "nowhere", "--tables", "house"], "benchmarks.learning: data_dir"),
    ],
)  # fmt: skip
def test_bad_arguments(command, arguments, message, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as stop:
        command.main(arguments)
    assert stop.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith(message)
    assert not re.search(r"Traceback", told)
