"""``python -m experiments``: run, be killed, go on, and show the results."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from command_line import Terminal, experiments_here, start_experiments
from experiments.paper import figures
from experiments.paper.collect import METRICS, Measured
from experiments.paper.methods import METHODS
from experiments.paper.result_store import read_all

RUN = (
    *("run", "--protocol", "sound", "--datasets", "synthetic", "--seeds", "0:2"),
    *("--methods", "split,LVD-NN-smooth-base"),
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    """The results of a run that nobody has killed; not to be changed."""
    folder = tmp_path_factory.mktemp("bench") / "results"
    outcome = experiments_here(*RUN, "--out", folder)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == "4 runs: 0 were finished before, 4 done now, 0 failed\n"
    return folder


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    """A compact table: every method on two seeds of Yacht."""
    path = tmp_path_factory.mktemp("table") / "small.csv"
    figures = dict.fromkeys(("MCR", "TCR", "AUROC", "MAD", "finite_count"), 60.0)
    widths = dict.fromkeys(("width", "width_lvd", "width_variants", "finite_variants"), 3.0)
    METRICS.write(
        [
            Measured("paper", "yacht", m, seed, level, 62, **figures, **widths, seconds=1.0)
            for m in METHODS
            for seed in (0, 1)
            for level in (0.5, 0.9)
        ],
        path,
    )
    return path


def check_same(folder: Path, expected: Path) -> None:
    """Equal bit for bit, but for the time taken."""
    ours, theirs = read_all(folder), read_all(expected)
    assert [result.run for result in ours] == [result.run for result in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one.error is None
        for name in ("rows", "y", "y_pred", "intervals"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def n_results(folder: Path) -> int:
    return len(list(folder.glob("runs/[!.]*")))


def kill_while_it_works(process, folder: Path, chance: random.Random) -> None:
    """``kill -9`` the command and its workers: as it starts, or at a random moment after up to two results."""
    wanted = n_results(folder) + chance.randrange(3)
    while process.poll() is None and n_results(folder) < wanted:
        time.sleep(0.01)
    time.sleep(chance.random())
    with contextlib.suppress(ProcessLookupError):  # it may have come to its end meanwhile
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.apart
def test_ended_it_leaves_whole_files_and_no_process_and_goes_on(undisturbed, tmp_path):
    run = (*RUN[:-1], "split")  # networks alone: outside, kernels train as long as users have it
    with start_experiments(*run, "--seeds", "0:2000", "--workers", 2, "--out", tmp_path) as process:
        deadline = time.monotonic() + 120
        while not n_results(tmp_path) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)  # the pipes are open as long as a worker has them
    assert process.returncode == 128 + signal.SIGTERM
    assert b"Traceback" not in err
    assert 0 < n_results(tmp_path) < 2000
    assert not list(tmp_path.rglob("*.part*"))
    wanted = {path.name for path in undisturbed.glob("runs/*")}
    for path in tmp_path.glob("runs/*"):
        if path.name not in wanted:
            path.unlink()
    outcome = experiments_here(*RUN, "--out", tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    assert "0 failed" in outcome.out
    check_same(tmp_path, undisturbed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_twenty_times_with_two_workers(tmp_path):
    run = (*RUN, "--seeds", "0:10")
    experiments_here(*run, "--out", tmp_path / "undisturbed")
    folder, chance = tmp_path / "results", random.Random(1)
    for _ in range(20):
        process = start_experiments(*run, "--workers", 2, "--out", folder, start_new_session=True)
        kill_while_it_works(process, folder, chance)
    left = 20 - n_results(folder)
    outcome = experiments_here(*run, "--out", folder)
    assert outcome.out == f"20 runs: {20 - left} were finished before, {left} done now, 0 failed\n"
    check_same(folder, tmp_path / "undisturbed")


def test_what_is_finished_is_not_done_again(undisturbed):
    before = {path: path.stat().st_mtime_ns for path in undisturbed.glob("runs/*")}
    outcome = experiments_here(*RUN, "--out", undisturbed)
    assert outcome.out == "4 runs: 4 were finished before, 0 done now, 0 failed\n"
    assert {path: path.stat().st_mtime_ns for path in undisturbed.glob("runs/*")} == before


def test_progress_is_shown_on_a_terminal_only(undisturbed):
    assert "runs" in experiments_here(*RUN, "--out", undisturbed, stream_type=Terminal).err


def test_without_ray_the_engine_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    outcome = experiments_here(*RUN, "--engine", "ray", "--out", tmp_path)
    assert outcome.code == 2
    assert outcome.err == "error: engine='ray' needs Ray: pip install 'lvd[ray]'\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "--datasets", "boats", "--out", "x"), "unknown name 'boats' in datasets"),
        (("run", "--seeds", "ten", "--out", "x"), "seeds must look like 0:10"),
        (("run", "--levels", "90", "--out", "x"), "did you mean 0.9?"),
        (("tables", "nowhere.csv"), "nowhere.csv is not a table of results"),
        (("figures", "nowhere", "--out", "x"), "no results in nowhere"),
        (("collect", "nowhere", "--out", "x.csv"), "no results in nowhere"),
    ],
)
def test_refusals(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    outcome = experiments_here(*words)
    assert outcome.code == 2
    assert outcome.err.startswith("error: ")
    assert message in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_collect_then_tables_give_what_the_folder_gives(undisturbed, tmp_path):
    compact = tmp_path / "results" / "small.csv"
    assert experiments_here("collect", undisturbed, "--out", compact).code == 0
    lines, compact_lines = (
        list(csv.DictReader(io.StringIO(experiments_here("tables", source, "--csv", "-").out)))
        for source in (undisturbed, compact)
    )
    assert {(line["dataset"], line["n"]) for line in lines} == {("Synthetic", "2")}
    for one, other in zip(lines, compact_lines, strict=True):
        assert float(one.pop("mean")) == pytest.approx(float(other.pop("mean")), rel=1e-7)
        assert float(one.pop("std")) == pytest.approx(float(other.pop("std")), rel=1e-6, abs=1e-7)
        assert one == other
    calls = compact.with_suffix(".json").read_text()
    assert "python -m experiments run --protocol sound --datasets synthetic" in calls
    assert str(undisturbed) not in calls


def test_tables_in_every_format(table, tmp_path):
    terminal = experiments_here("tables", table)
    assert (terminal.code, terminal.err) == (0, "")
    assert "Coverage (paper protocol): MCR" in terminal.out
    markdown = experiments_here("tables", table, "--format", "markdown").out
    assert "| Yacht | 60.0 ± 0.0 |" in markdown
    latex = experiments_here("tables", table, "--format", "latex").out
    assert r"Yacht & 60.0$\pm$0.0" in latex
    cells = experiments_here("tables", table, "--format", "csv").out
    assert "coverage,MCR,0.9,Yacht,LVD-NN-smooth-base,60,0,2\n" in cells
    assert experiments_here("tables", table, "--csv", tmp_path / "cells.csv").out == ""
    experiments_here("tables", table, "--compare", "--out", tmp_path / "all")
    assert {path.name: path.read_text() for path in (tmp_path / "all").glob("cells.csv")} == {
        "cells.csv": (tmp_path / "cells.csv").read_text()
    }
    assert (tmp_path / "cells.csv").read_text() == cells
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == [
        "cells.csv",
        "comparison.csv",
        "tables.md",
        "tables.tex",
    ]


def test_compare_counts_by_table_and_method(table):
    out = experiments_here("tables", table, "--compare").out
    assert "Cells compared with the printed ones" in out
    assert "of 88 tested cells compatible (p >= 0.01)" in out
    assert "coverage: LVD" in out
    assert "coverage: DJ" not in out


def test_the_page(table, tmp_path):
    outcome = experiments_here("page", table, "--out", tmp_path / "page.md")
    assert outcome.out == f"{tmp_path / 'page.md'}\n"
    assert "of 88 tested cells compatible" in (tmp_path / "page.md").read_text()


def test_counts_of_groups_belong_to_the_page_on_molecules(table, tmp_path):
    outcome = experiments_here("page", table, "--groups", tmp_path / "g.csv", "--out", tmp_path / "page.md")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        "error: --groups is for the page on molecules; add --molecules, or leave --groups out\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--splits", "time"), "error: splits must be one of"),
        (
            ("--tables", "yacht", "--splits", "scaffold"),
            "error: protocol scaffold is for molecules, qm8 and qm9",
        ),
        (("--tables", "qm8", "--methods", "magic"), "error: unknown name 'magic' in methods for qm8(E1-CC2)"),
    ],
)
def test_a_study_of_molecules_that_cannot_be(tmp_path, words, message):
    outcome = experiments_here("molecules", *words, "--out", tmp_path / "study")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(message)
    assert list(tmp_path.iterdir()) == []


def test_figures_are_drawn(undisturbed, tmp_path, monkeypatch):
    quick = ("three_bands", "width_error", "coverage_level")
    monkeypatch.setattr(figures, "FIGURES", {name: figures.FIGURES[name] for name in quick})
    outcome = experiments_here("figures", undisturbed, "--out", tmp_path)
    assert outcome.code == 0, outcome.err
    assert outcome.out.split() == [str(tmp_path / f"{name}.png") for name in quick]


@pytest.mark.slow
def test_the_figures_that_train(undisturbed, tmp_path):
    outcome = experiments_here("figures", undisturbed, "--out", tmp_path)
    assert outcome.code == 0, outcome.err
    assert len(list(tmp_path.glob("*.png"))) == 5


@pytest.mark.parametrize(
    "command",
    ["run", "collect", "groups", "tables", "figures", "compare", "page", "molecules", "arena", "arena-page"],
)
def test_help_has_examples(command):
    outcome = experiments_here(command, "--help")
    assert outcome.code == 0
    assert f"python -m experiments {command}" in outcome.out.split("Examples:")[1]


class TestFolderOfTables:
    """The committed form of results: compact tables beside other files."""

    @pytest.fixture
    def folder(self, table, tmp_path) -> Path:
        folder = tmp_path / "results"
        folder.mkdir()
        (folder / "small.csv").write_bytes(table.read_bytes())
        (folder / "speed.csv").write_text("rows,seconds\n10,0.5\n")
        return folder

    def test_tables(self, table, folder):
        outcome = experiments_here("tables", folder)
        assert (outcome.code, outcome.err) == (0, "")
        assert outcome.out == experiments_here("tables", table).out

    def test_figures_that_need_no_intervals(self, folder, tmp_path, monkeypatch):
        quick = ("width_error", "coverage_level")
        monkeypatch.setattr(figures, "FIGURES", {name: figures.FIGURES[name] for name in quick})
        outcome = experiments_here("figures", folder, "--out", tmp_path / "figures")
        assert outcome.code == 0
        assert outcome.out == f"{tmp_path / 'figures' / 'coverage_level.png'}\n"
        assert outcome.err.startswith("warning: width_error is not drawn: it needs the interval of every row")

    def test_compare(self, table, folder):
        outcome = experiments_here("compare", folder, table)
        assert outcome.code == 0, outcome.err
        assert "The same runs on another machine (paper protocol)" in outcome.out
        refused = experiments_here("compare", folder, table, "--protocol", "sound")
        assert (refused.code, refused.out) == (2, "")
        assert "have no runs of the sound protocol in common" in refused.err

    def test_a_folder_without_any(self, folder):
        (folder / "small.csv").unlink()
        outcome = experiments_here("tables", folder)
        assert outcome.code == 2
        assert f"no results in {folder}; make some with" in outcome.err

    @pytest.mark.slow
    def test_the_committed_results(self):
        results = Path(__file__).resolve().parents[2] / "results"
        outcome = experiments_here("tables", results, "--protocol", "paper", "--csv", "-")
        assert outcome.code == 0, outcome.err
        assert {line["dataset"] for line in csv.DictReader(io.StringIO(outcome.out))} >= {"Yacht", "QM9(mu)"}


def test_a_rerun_belongs_to_the_page_on_the_small_tables(table, tmp_path):
    outcome = experiments_here("page", "--molecules", table, "--rerun", table, "--out", tmp_path / "page.md")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: --rerun is for the page on the small tables")


def check_refused(outcome, message):
    assert outcome.code == 2
    assert outcome.err.startswith("error: ")
    assert message in outcome.err
    assert "Traceback" not in outcome.err


def test_nothing_that_is_read_is_overwritten(tmp_path):
    header = "protocol,dataset,method,seed,confidence_level,n_test,\n"
    runs, cells, notes = tmp_path / "results" / "runs", tmp_path / "cells.csv", tmp_path / "notes.toml"
    runs.mkdir(parents=True)
    for path in (runs / "a.json", runs / "a.csv", cells, notes):
        path.write_text(header)
    results = tmp_path / "results"
    for words in (
        ("collect", results, "--out", runs / "a.csv"),
        ("groups", cells, "--out", cells),
        ("tables", cells, "--csv", cells),
        ("tables", cells, "--out", tmp_path),
        ("tables", tmp_path, "--csv", cells),
        ("page", cells, "--out", cells),
        ("page", results, "--notes", notes, "--out", notes),
    ):
        check_refused(experiments_here(*words), "would overwrite its own input")
    assert {path.read_text() for path in tmp_path.rglob("*.*")} == {header}


def test_names_that_are_too_long(tmp_path):
    long = tmp_path / ("a" * 300)
    run = ("run", "--datasets", "synthetic", "--seeds", "0", "--methods", "split", "--out", long)
    check_refused(experiments_here(*run), "File name too long")
    check_refused(experiments_here("collect", tmp_path, "--out", long), "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seeds", ["0:99999999999", "0:" + "9" * 4000, "5:4294967297", "99999999999"])
def test_too_many_seeds(tmp_path, seeds):
    outcome = experiments_here("run", "--seeds", seeds, "--out", tmp_path / "results")
    check_refused(outcome, "seeds must be from 0" if seeds == "99999999999" else "at most 10,000 seeds")
    assert list(tmp_path.iterdir()) == []
