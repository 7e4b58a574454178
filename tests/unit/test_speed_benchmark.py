"""The speed benchmark: its rivals compute the same, and its page comes from figures alone."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.speed import __main__ as command
from benchmarks.speed import calls, company, on_gpu, training
from benchmarks.speed.cases import FAR, LEVELS, NEAR, Case, count_equal, race
from benchmarks.speed.figures import Recorder, read_figures, this_setting
from benchmarks.speed.page import write_page

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture
def record(tmp_path):
    return Recorder(tmp_path / "speed.csv", this_setting("cpu"), lambda figure: None)


@pytest.mark.parametrize("kind", [NEAR, FAR])
def test_all_contestants_answer_the_same_question(kind):
    case = Case.of(7, 300, kind)
    expected = case.by_oracle(7)
    assert np.isfinite(expected).any()
    found = case.conformal().radius(case.queries, LEVELS)
    assert count_equal(found, expected) == {"equal": 14.0, "checked": 14.0}
    assert count_equal(case.by_differences(), expected)["equal"] == 14.0
    # Float32 products may err by a row here and there.
    assert count_equal(case.plain_torch()(), expected)["equal"] >= 12.0


def test_what_is_slow_is_timed_once(monkeypatch):
    monkeypatch.setattr("benchmarks.speed.cases.SLOW_SECONDS", -1.0)
    counts = {"slow": 0}

    def slow():
        counts["slow"] += 1

    assert race({"slow": slow}, 0.0)["slow"] > 0.0
    assert counts["slow"] == 1


def test_a_rehearsal_makes_a_page_without_typed_figures(record, tmp_path):
    sizes = calls.QUICK._replace(calls=((1, 100, NEAR), (5, 600, FAR)), seconds=0.001)
    calls.radii(record, sizes, [1])
    calls.guarantees(record, sizes._replace(guarantees=(3, 60)))
    company.in_company(record, 5, 600, 0.001)
    training.one_step(record, 300, 0.001)
    page = tmp_path / "speed.md"
    write_page(page, [record.path, *sorted(RESULTS.glob("h200_*.csv"))])
    text = page.read_text()
    figures = read_figures([record.path])
    # As many digits as are written.
    assert [one.value for one in figures] == pytest.approx([one.value for one in record.figures], rel=1e-4)
    assert {one.section for one in figures} == {"radius", "guarantee", "company", "step"}
    assert "| 5 x 600, far apart |" in text
    assert "10 of 10" in text
    assert "80 of 80" in text
    assert text.count("Not measured yet: run `python -m benchmarks.speed --out") == 2
    assert text.count("Not measured yet: run `python -m benchmarks.speed --device cuda --out") == 4
    with (RESULTS / "h200_engine.csv").open() as file:
        first = next(csv.DictReader(file))
    assert f"{1e3 * float(first['lvd']):.3g} µs" in text
    assert not re.search(r"\n\n\n", text)


def test_what_is_past_plain_lvd_runs_where_a_gpu_would(record):
    sizes = on_gpu.GPU_QUICK._replace(calls=((3, 200),), seconds=0.001)
    on_gpu.radii(record, sizes, "cpu")
    names = {one.who for one in record.figures}
    assert {"lvd", "plain torch", "adaptive bandwidth", "transductive"} <= names
    assert all(one.value == 0 for one in record.figures if one.measure == "uncertified")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--out is missing"),
        (["--out", "nowhere/speed.csv"], "--out: there is no folder nowhere"),
        (["--out", "speed.csv", "--threads", "0"], "--threads must be at least 1, got 0"),
        (["--page", "README.md"], "--page: README.md holds none of the figures of this page"),
        (["--page", "nowhere.csv"], "--page: cannot read nowhere.csv"),
    ],
)
def test_bad_arguments(arguments, message, capsys, monkeypatch):
    monkeypatch.chdir(RESULTS.parent)
    with pytest.raises(SystemExit) as stop:
        command.main(arguments)
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith(f"benchmarks.speed: {message}")
