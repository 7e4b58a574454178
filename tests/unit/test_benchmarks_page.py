"""The bench page: growth and the skip rule on made-up times, the page from a made-up file, and one small run."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import sweeps
from benchmarks.cell import NOTHING, Measured, Request, case
from benchmarks.contestants import CONTESTANTS, LEVELS
from benchmarks.growth import expected_seconds, slope
from benchmarks.results import (
    Cell,
    Environment,
    duration,
    footnotes,
    number,
    read_cells,
    select,
    write_cells,
)
from benchmarks.table import table_of
from benchmarks.worker import Worker

pytestmark = pytest.mark.apart

SIZES = (1e3, 1e4, 1e5, 1e6)
HERE = Environment("2026-01-02", "Abacus, 2 cores", 2, "3.11", "2.9", "2.4", "-", "0.1", "0.9", "-")
PLAN = sweeps.plan("cpu", quick=False, limit=None)


def made_up(seconds_of, monkeypatch, names, plan=PLAN):
    """All cells, with times from a formula instead of a process."""

    class FormulaWorker:
        def __init__(self, threads):
            pass

        def ask(self, request, stop_after):
            reply = seconds_of(request)
            if isinstance(reply, float):
                reply = Measured(1e-6, reply, reply, 1.5)
            return (NOTHING, reply) if isinstance(reply, str) else (reply, "")

        def close(self):
            pass

    monkeypatch.setattr(sweeps, "Worker", FormulaWorker)
    return list(sweeps.run(names, plan, HERE))


def test_slope_of_a_power():
    assert slope(SIZES, [3e-4 * size**1.5 for size in SIZES]) == pytest.approx(1.5)


def test_slope_leaves_the_constant_overhead_out():
    seconds = [1.0 + size / 1e4 for size in (1e1, 1e2, 1e5, 1e6, 1e7)]
    assert slope((1e1, 1e2, 1e5, 1e6, 1e7), seconds) == pytest.approx(1.0, abs=0.03)


def test_slope_of_the_last_two_sizes_where_nothing_rises_above_the_overhead():
    assert slope(SIZES, [2.0, 2.0, 2.0, 2.0]) == 0.0
    assert slope(SIZES, [1.0, 10.0, np.nan, np.nan]) == pytest.approx(1.0)


def test_no_slope_from_one_size():
    assert np.isnan(slope(SIZES, [1.0, np.nan, np.nan, np.nan]))


@pytest.mark.parametrize(
    ("seconds", "size", "expected"),
    [
        ([], 1e3, 0.0),
        ([2.0], 1e4, 20.0),
        ([1.0, 100.0], 1e5, 1e4),
        ([1.0, 100.0], 1e3, 1.0),
        ([5.0, 4.0], 1e5, 4.0),
    ],
    ids=["before the first", "proportional", "as it went on", "as measured", "never less"],
)
def test_expected_seconds(seconds, size, expected):
    assert expected_seconds(SIZES[: len(seconds)], seconds, size) == pytest.approx(expected)


def test_too_long_cells_are_not_run(monkeypatch):
    cells = made_up(lambda request: 1e-9 * request.n * request.m**1.5, monkeypatch, ["lvd"])
    rows = select(cells, "rows", "lvd")
    # 1,000 queries: 0.03 s, 1 s, then 32 s would be above the limit of 20 s.
    assert [cell.measured for cell in rows] == [True, True, False, False]
    assert {cell.note for cell in rows[2:]} == {"not run where it would take longer than 20 s"}
    assert all(np.isnan(cell.predict_seconds) for cell in rows[2:])
    assert [cell.measured for cell in select(cells, "queries", "lvd")] == [True] * 5 + [False]


def test_the_first_cell_of_the_queries_is_expected_from_the_rows(monkeypatch):
    asked = []

    def seconds_of(request):
        asked.append((request.n, request.m))
        return 2500.0 * request.n / 1000 * request.m / 1000

    made_up(seconds_of, monkeypatch, ["lvd"])
    # 25,000 s for 1,000 x 10,000, so 25 s for 1 x 10,000.
    assert asked == [(1000, 1000)]


def test_more_queries_take_no_more_calibrating(monkeypatch):
    """Ten seconds each time would be a hundred if they grew with the queries."""
    cells = made_up(lambda request: Measured(request.m / 1000, 1e-3, 1e-3, 1.5), monkeypatch, ["torch"])
    assert [cell.measured for cell in cells if cell.sweep == "queries"] == [True] * 6


def test_a_failure_ends_a_sweep_only(monkeypatch):
    cells = made_up(lambda request: "failed" if request.n == 1000 else 0.1, monkeypatch, ["lvd"])
    assert [cell.measured for cell in cells] == [False] * 4 + [True] * 3 + [False] * 3
    assert footnotes(cells) == ["lvd: failed"]


def test_no_cell_is_begun_after_the_time_is_over(monkeypatch):
    monkeypatch.setattr(sweeps, "Worker", lambda threads: SimpleNamespace(close=lambda: None))
    cells = list(sweeps.run(["lvd", "torch"], PLAN, HERE, stop_after=-1.0))
    assert footnotes(cells) == ["lvd; plain torch, batched: not reached before the run was stopped"]


def test_a_missing_package_is_a_footnote(monkeypatch):
    monkeypatch.setattr(sweeps, "find_spec", lambda package: None if package == "crepes" else package)
    cells = made_up(lambda request: 0.1, monkeypatch, ["lvd", "crepes"])
    assert footnotes(cells) == ["crepes, KNN: crepes not installed"]
    assert {cell.contestant for cell in cells if cell.measured} == {"lvd"}


def test_sizes_on_a_gpu():
    plan = sweeps.plan("cuda", quick=False, limit=None)
    assert plan.rows[-1] == (1000, 10**7)
    assert plan.queries[-1] == (10**5, 10**6)


@pytest.mark.parametrize("name", ["lvd", "rows", "torch"])
def test_contestants_with_the_same_question_agree(name):
    contestant = CONTESTANTS[name]
    points, scores, queries = case(contestant, 30, 700, "cpu")
    radii = np.asarray(contestant.calibrate(points, scores)(queries))
    weights = np.exp(-np.square(queries[:, None] - points[None]).sum(-1))[:, np.argsort(scores)]
    shares = weights.cumsum(1) / (weights.sum(1, keepdims=True) + 1.0)
    ranks = np.stack([(shares < level).sum(1) for level in LEVELS], 1)
    expected = np.append(np.sort(scores), np.inf)[ranks]
    assert (radii == expected).mean() > (0.99 if name == "lvd" else 0.9)


@pytest.mark.parametrize("name", ["crepes", "mapie", "mapie-conditional"])
@pytest.mark.filterwarnings("ignore")
def test_packages_answer_all_queries_at_both_levels(name):
    contestant = CONTESTANTS[name]
    for package in contestant.packages:
        pytest.importorskip(package)
    points, scores, queries = case(contestant, 5, 200, "cpu")
    answer = contestant.calibrate(points, scores)(queries)
    intervals = np.stack(answer, -1) if name == "crepes" else answer[1]
    assert intervals.shape == (5, 2, 2)


ALLOCATING = """
import numpy as np
from benchmarks.cell import with_peak_memory
held = np.ones(4_000_000)
print(*with_peak_memory(lambda: np.ones(8_000_000).sum(), "cpu"), len(held))
"""
"""In a process of its own, in which no thread of another test takes or gives back memory."""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="resident memory is read as on Linux")
def test_peak_memory_is_what_a_call_adds():
    command, root = [sys.executable, "-c", ALLOCATING], Path(__file__).parents[2]
    found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    result, megabytes, n_held = map(float, found.stdout.split())
    assert (result, n_held) == (8e6, 4e6)
    assert 60.0 < megabytes < 80.0


def test_a_worker_outlives_errors_and_is_ended_when_it_takes_too_long():
    worker = Worker(1)
    try:
        measured, note = worker.ask(Request("nobody", 10, 200, "cpu", 0.0), 60.0)
        assert np.isnan(measured.predict_seconds)
        assert note == "failed at 10 queries x 200 rows (KeyError: 'nobody')"
        measured, note = worker.ask(Request("torch", 10, 200, "cpu", 0.0), 60.0)
        assert (note, measured.predict_seconds > 0.0) == ("", True)
        assert worker.ask(Request("torch", 10, 300, "cpu", 0.0), 0.0)[1].startswith("stopped at 10 queries")
    finally:
        worker.close()


def test_figures_as_text():
    assert [duration(s) for s in (0.0123456, 12.3456, 1234.5, 3e-6, np.nan)] == [
        "12.3 ms",
        "12.3 s",
        "1,234 s",
        "3 µs",
        "-",
    ]
    assert (number(1234.0), number(np.nan)) == ("1,234", "-")


def test_results_come_back(tmp_path, monkeypatch):
    cells = made_up(lambda request: 0.5 if request.m < 10**6 else "failed", monkeypatch, ["lvd", "torch"])
    write_cells(tmp_path / "bench.csv", cells)
    again = read_cells(tmp_path / "bench.csv")
    assert [repr(cell) for cell in again] == [repr(cell) for cell in cells]
    assert table_of(again).row_count == len(cells)


def test_the_page_shows_what_the_file_holds(tmp_path, monkeypatch):
    (tmp_path / "images").mkdir()

    def seconds_of(request):
        return {"lvd": 1e-9, "torch": 7e-9}.get(request.name, 1e-4) * request.n * request.m

    monkeypatch.setattr(sweeps, "find_spec", lambda package: package)
    cells = made_up(seconds_of, monkeypatch, ["lvd", "torch", "mapie-conditional"])
    write_cells(tmp_path / "bench_toy.csv", cells)
    command.main(["--page", str(tmp_path / "bench_toy.csv"), "--docs", str(tmp_path)])
    page = (tmp_path / "benchmarks.md").read_text()
    assert "(images/bench_toy.png)" in page
    assert (tmp_path / "images" / "bench_toy.png").stat().st_size > 10_000
    assert (
        "## Abacus, 2 cores\n\n2026-01-02, 2 threads; python 3.11, torch 2.9, numpy 2.4, lvd 0.1, crepes 0.9."
        in page
    )
    assert "| **lvd** | 1 ms | 10 ms | 100 ms | 1 s | 1.00 |" in page
    assert (
        "lvd predicts in 1 s, slope 1.00 over the rows. Times as long as lvd: plain torch, batched 7;" in page
    )
    assert "- MAPIE, conditional: not run where it would take longer than 20 s.\n\n## Adding" in page
    assert "nan" not in page.replace("another", "")


def test_every_cell_is_flat():
    assert {type(value) for value in asdict(HERE).values()} == {str, int}
    assert issubclass(Cell, Environment)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--only", "lvd,nobody"],
            "--only names no contestant 'nobody'; choose among lvd, lvd-local, rows, torch",
        ),
        (["--threads", "0"], "--threads must be at least 1, got 0"),
        (["--limit", "-1"], "--limit must be above 0 seconds, got -1"),
        (["--out", "nowhere/bench.csv"], "--out: there is no folder nowhere; make it first"),
        (["--page", "nothing.csv"], "cannot read nothing.csv (No such file or directory)"),
        (["--page", "text.csv"], "cannot read text.csv (not what --out writes)"),
        (["--page", "empty.csv"], "cannot read empty.csv (no cell in it)"),
        (["--page", "strange.csv"], "cannot read strange.csv (unknown contestant nobody)"),
        (["--page", "good.csv", "--docs", "nowhere"], "--docs: there is no folder nowhere/images"),
    ],
    ids=["only", "threads", "limit", "out", "no file", "text", "empty", "strange", "docs"],
)
def test_refusals_are_one_line(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("text.csv").write_text("one,two\n1,2\n")
    Path("empty.csv").write_text("")
    place = {"sweep": "rows", "device": "cpu", "queries": 10, "rows": 10, "note": "none"}
    for name, contestant in (("strange", "nobody"), ("good", "lvd")):
        cell = Cell(**asdict(HERE), **place, contestant=contestant, **NOTHING._asdict())
        write_cells(Path(f"{name}.csv"), [cell])
    with pytest.raises(SystemExit) as end:
        command.main(arguments)
    error = capsys.readouterr().err
    assert end.value.code == 2
    assert error.startswith(f"benchmarks: {message}")
    assert error.count("\n") == 1


def test_a_run_from_the_command_line(tmp_path, monkeypatch, capsys):
    few = {
        "rows": ((10, 50), (10, 100)),
        "queries": ((5, 50),),
    }
    monkeypatch.setattr(command, "plan", lambda *_, **choices: sweeps.plan(*_, **choices)._replace(**few))
    for name in command.THREAD_VARIABLES:  # which the command sets for the processes it starts
        monkeypatch.setenv(name, "1")
    names = ["lvd", "torch"]
    command.main(
        ["--quick", "--threads", "1", "--only", ",".join(names), "--out", str(tmp_path / "bench.csv")]
    )
    shown = capsys.readouterr().out
    for text in ("plain torch, batched", "peak MB", "slope", "times lvd"):
        assert text in shown
    cells = read_cells(tmp_path / "bench.csv")
    assert [cell.contestant for cell in cells] == [name for name in names for _ in range(3)]
    assert all(cell.measured and cell.predict_seconds > 0.0 for cell in cells)
    assert {cell.torch for cell in cells} == {torch.__version__}
