"""``lvd bench``: run, be killed, go on, and show the results."""

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

from lvd.reproduction.collect import Measured, write_csv
from lvd.reproduction.paper_methods import METHODS
from lvd.reproduction.result_store import read_all

RUN = (
    *("bench", "run", "--protocol", "sound", "--datasets", "synthetic", "--seeds", "0:2"),
    *("--methods", "split,LVD-NN-smooth-base"),
)


@pytest.fixture(scope="module")
def undisturbed(lvd_here, tmp_path_factory) -> Path:
    """The results of a run that nobody has killed; not to be changed."""
    folder = tmp_path_factory.mktemp("bench") / "results"
    outcome = lvd_here(*RUN, "--out", folder)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == "4 runs: 0 were finished before, 4 done now, 0 failed\n"
    return folder


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    """A compact table: every method on two seeds of Yacht."""
    path = tmp_path_factory.mktemp("table") / "small.csv"
    figures = dict.fromkeys(("MCR", "TCR", "AUROC", "MAD", "finite_count"), 60.0)
    widths = dict.fromkeys(("width", "width_lvd", "width_variants", "finite_variants"), 3.0)
    write_csv(
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


def test_ended_it_leaves_whole_files_and_no_process_and_goes_on(lvd_start, lvd_here, undisturbed, tmp_path):
    run = (*RUN[:-1], "split")  # networks alone: outside, kernels train as long as users have it
    with lvd_start(*run, "--seeds", "0:2000", "--workers", 2, "--out", tmp_path) as process:
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
    outcome = lvd_here(*RUN, "--out", tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    assert "0 failed" in outcome.out
    check_same(tmp_path, undisturbed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_twenty_times_with_two_workers(lvd_start, lvd_here, tmp_path):
    run = (*RUN, "--seeds", "0:10")
    lvd_here(*run, "--out", tmp_path / "undisturbed")
    folder, chance = tmp_path / "results", random.Random(1)
    for _ in range(20):
        process = lvd_start(*run, "--workers", 2, "--out", folder, start_new_session=True)
        kill_while_it_works(process, folder, chance)
    left = 20 - n_results(folder)
    outcome = lvd_here(*run, "--out", folder)
    assert outcome.out == f"20 runs: {20 - left} were finished before, {left} done now, 0 failed\n"
    check_same(folder, tmp_path / "undisturbed")


def test_what_is_finished_is_not_done_again(lvd_here, undisturbed):
    before = {path: path.stat().st_mtime_ns for path in undisturbed.glob("runs/*")}
    outcome = lvd_here(*RUN, "--out", undisturbed)
    assert outcome.out == "4 runs: 4 were finished before, 0 done now, 0 failed\n"
    assert {path: path.stat().st_mtime_ns for path in undisturbed.glob("runs/*")} == before


def test_progress_is_shown_on_a_terminal_only(lvd_on_terminal, undisturbed):
    assert "runs" in lvd_on_terminal(*RUN, "--out", undisturbed).err


def test_without_ray_the_engine_is_refused(lvd_here, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    outcome = lvd_here(*RUN, "--engine", "ray", "--out", tmp_path)
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
def test_refusals(lvd_here, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    outcome = lvd_here("bench", *words)
    assert outcome.code == 2
    assert outcome.err.startswith("error: ")
    assert message in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_collect_then_tables_give_what_the_folder_gives(lvd_here, undisturbed, tmp_path):
    compact = tmp_path / "results" / "small.csv"
    assert lvd_here("bench", "collect", undisturbed, "--out", compact).code == 0
    lines, compact_lines = (
        list(csv.DictReader(io.StringIO(lvd_here("bench", "tables", source, "--csv", "-").out)))
        for source in (undisturbed, compact)
    )
    assert {(line["dataset"], line["n"]) for line in lines} == {("Synthetic", "2")}
    for one, other in zip(lines, compact_lines, strict=True):
        assert float(one.pop("mean")) == pytest.approx(float(other.pop("mean")), rel=1e-7)
        assert float(one.pop("std")) == pytest.approx(float(other.pop("std")), rel=1e-6, abs=1e-7)
        assert one == other
    calls = compact.with_suffix(".json").read_text()
    assert "lvd bench run --protocol sound --datasets synthetic" in calls
    assert str(undisturbed) not in calls


def test_tables_in_every_format(lvd_here, table, tmp_path):
    terminal = lvd_here("bench", "tables", table)
    assert (terminal.code, terminal.err) == (0, "")
    assert "Coverage (paper protocol): MCR" in terminal.out
    markdown = lvd_here("bench", "tables", table, "--format", "markdown").out
    assert "| Yacht | 60.0 ± 0.0 |" in markdown
    latex = lvd_here("bench", "tables", table, "--format", "latex").out
    assert r"Yacht & 60.0$\pm$0.0" in latex
    cells = lvd_here("bench", "tables", table, "--format", "csv").out
    assert "coverage,MCR,0.9,Yacht,LVD-NN-smooth-base,60,0,2\n" in cells
    assert lvd_here("bench", "tables", table, "--csv", tmp_path / "cells.csv").out == ""
    lvd_here("bench", "tables", table, "--compare", "--out", tmp_path / "all")
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


def test_compare_counts_by_table_and_method(lvd_here, table):
    out = lvd_here("bench", "tables", table, "--compare").out
    assert "Cells beside the printed ones" in out
    assert "of 88 tested cells compatible (p >= 0.01)" in out
    assert "coverage: LVD" in out
    assert "coverage: DJ" not in out


def test_the_page(lvd_here, table, tmp_path):
    outcome = lvd_here("bench", "page", table, "--out", tmp_path / "page.md")
    assert outcome.out == f"{tmp_path / 'page.md'}\n"
    assert "of 88 tested cells compatible" in (tmp_path / "page.md").read_text()


def test_counts_of_groups_belong_to_the_page_on_molecules(lvd_here, table, tmp_path):
    outcome = lvd_here("bench", "page", table, "--groups", tmp_path / "g.csv", "--out", tmp_path / "page.md")
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
def test_a_study_of_molecules_that_cannot_be(lvd_here, tmp_path, words, message):
    outcome = lvd_here("bench", "molecules", *words, "--out", tmp_path / "study")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(message)
    assert list(tmp_path.iterdir()) == []


def test_figures_are_drawn(lvd_here, undisturbed, tmp_path, monkeypatch):
    from lvd.reproduction import bench_figures

    quick = ("three_bands", "width_error", "coverage_level")
    monkeypatch.setattr(bench_figures, "FIGURES", {name: bench_figures.FIGURES[name] for name in quick})
    outcome = lvd_here("bench", "figures", undisturbed, "--out", tmp_path)
    assert outcome.code == 0, outcome.err
    assert outcome.out.split() == [str(tmp_path / f"{name}.png") for name in quick]


@pytest.mark.slow
def test_the_figures_that_train(lvd_here, undisturbed, tmp_path):
    outcome = lvd_here("bench", "figures", undisturbed, "--out", tmp_path)
    assert outcome.code == 0, outcome.err
    assert len(list(tmp_path.glob("*.png"))) == 5


@pytest.mark.parametrize("command", ["run", "collect", "tables", "figures", "compare", "page", "molecules"])
def test_help_has_examples(lvd_here, command):
    outcome = lvd_here("bench", command, "--help")
    assert outcome.code == 0
    assert f"lvd bench {command}" in outcome.out.split("Examples:")[1]


class TestFolderOfTables:
    """The committed form of results: compact tables beside other files."""

    @pytest.fixture
    def folder(self, table, tmp_path) -> Path:
        folder = tmp_path / "results"
        folder.mkdir()
        (folder / "small.csv").write_bytes(table.read_bytes())
        (folder / "speed.csv").write_text("rows,seconds\n10,0.5\n")
        return folder

    def test_tables(self, lvd_here, table, folder):
        outcome = lvd_here("bench", "tables", folder)
        assert (outcome.code, outcome.err) == (0, "")
        assert outcome.out == lvd_here("bench", "tables", table).out

    def test_figures_that_need_no_intervals(self, lvd_here, folder, tmp_path, monkeypatch):
        from lvd.reproduction import bench_figures

        quick = ("width_error", "coverage_level")
        monkeypatch.setattr(bench_figures, "FIGURES", {name: bench_figures.FIGURES[name] for name in quick})
        outcome = lvd_here("bench", "figures", folder, "--out", tmp_path / "figures")
        assert outcome.code == 0
        assert outcome.out == f"{tmp_path / 'figures' / 'coverage_level.png'}\n"
        assert outcome.err.startswith("warning: width_error is not drawn: it needs the interval of every row")

    def test_compare(self, lvd_here, table, folder):
        outcome = lvd_here("bench", "compare", folder, table)
        assert outcome.code == 0, outcome.err
        assert "The same runs on another machine (paper protocol)" in outcome.out
        refused = lvd_here("bench", "compare", folder, table, "--protocol", "sound")
        assert (refused.code, refused.out) == (2, "")
        assert "have no runs of the sound protocol in common" in refused.err

    def test_a_folder_without_any(self, lvd_here, folder):
        (folder / "small.csv").unlink()
        outcome = lvd_here("bench", "tables", folder)
        assert outcome.code == 2
        assert f"no results in {folder}; make some with" in outcome.err

    @pytest.mark.slow
    def test_the_committed_results(self, lvd_here):
        results = Path(__file__).resolve().parents[2] / "results"
        outcome = lvd_here("bench", "tables", results, "--protocol", "paper", "--csv", "-")
        assert outcome.code == 0, outcome.err
        assert {line["dataset"] for line in csv.DictReader(io.StringIO(outcome.out))} >= {"Yacht", "QM9(mu)"}


def test_a_rerun_belongs_to_the_page_on_the_small_tables(lvd_here, table, tmp_path):
    outcome = lvd_here("bench", "page", "--molecules", table, "--rerun", table, "--out", tmp_path / "page.md")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: --rerun is for the page on the small tables")
