"""Nothing that was written is lost or overwritten, and the exit status tells whether anything was written."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from command_line import run_here
from homes import write_homes
from lvd._progress import listening
from lvd.store import locked
from lvd.store.folder import MANIFEST, WAITING, Contents, read_manifest, write_folder
from lvd.tables import watching
from lvd.tables.model_card import ModelCard
from lvd.tables.table_model import TableModel

HOLD = """
import sys, time
from lvd.store import locked
with locked(sys.argv[1]):
    print("locked", flush=True)
    time.sleep(600)
"""
DISK_FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def check_refused(outcome, message):
    assert (outcome.code, outcome.out) == (2, ""), outcome.err
    assert message in outcome.err
    assert len(outcome.err.splitlines()) == 1


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def model(homes, tmp_path):
    return shutil.copytree(homes.model, tmp_path / "model")


@pytest.fixture
def fit_words(homes, tmp_path):
    words = ("fit", homes.table, "--target", "price", "--drop", "id", "--epochs", 1, "--preset", "paper")
    return (*words, "--out", tmp_path / "new-model")


class TestUpdatesAtOnce:
    def test_all_rows_are_there(self, lvd_start, model, tmp_path):
        processes, n_before = [], TableModel.load(model).regressor.n_calib_
        for number in range(4):
            write_homes(tmp_path / f"{number}.csv", 30 + number, seed=10 + number)
            processes.append(lvd_start("update", model, tmp_path / f"{number}.csv"))
        for process in processes:
            _, err = process.communicate(timeout=280)
            assert process.returncode == 0, err
        updated = TableModel.load(model)
        assert updated.regressor.n_calib_ == n_before + 30 + 31 + 32 + 33
        assert sorted(known.name for _, known in ModelCard.from_dict(updated.card).updates) == [
            f"{number}.csv" for number in range(4)
        ]
        assert names(tmp_path) == ["0.csv", "1.csv", "2.csv", "3.csv", "model"]

    def test_who_has_waited_finds_what_was_written_meanwhile(self, tmp_path):
        folder = tmp_path / "model"
        write_folder(folder, Contents({"n": 0}, {}, {}))
        waiting, found = threading.Event(), []

        def change_once_more():
            with listening(lambda stage: stage == WAITING and waiting.set()), locked(folder):
                found.append(read_manifest(folder)["n"])
                write_folder(folder, Contents({"n": found[0] + 1}, {}, {}))

        other = threading.Thread(target=change_once_more)
        with locked(folder):
            other.start()
            assert waiting.wait(60)
            write_folder(folder, Contents({"n": 1}, {}, {}))
        other.join(60)
        assert (found, read_manifest(folder)["n"]) == ([1], 2)

    def test_whatever_replaces_a_model_waits(self, model):
        with locked(model):
            before = (model / MANIFEST).read_bytes()
            writer = threading.Thread(target=write_folder, args=(model, Contents({"n": 7}, {}, {})))
            writer.start()
            writer.join(1)
            assert writer.is_alive()
            assert (model / MANIFEST).read_bytes() == before
        writer.join(60)
        assert read_manifest(model)["n"] == 7

    def test_the_lock_of_a_killed_process_is_gone(self, model):
        command = [sys.executable, "-c", HOLD, model]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"locked\n"
            stages = []
            with listening(lambda stage: (stages.append(stage), process.kill())), locked(model):
                assert stages == [WAITING]
        assert process.returncode == -signal.SIGKILL

    def test_a_disk_without_locks_is_told(self, model, monkeypatch):
        import fcntl

        def refuse(*_):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        monkeypatch.setattr(fcntl, "flock", refuse)
        with pytest.warns(UserWarning, match="cannot be locked"), locked(model):
            pass


def test_an_update_overwrites_no_model_that_was_written_meanwhile(homes, model, tmp_path, monkeypatch):
    update, out, before = watching.update, tmp_path / "out", names(model)

    def slow_update(*arguments, **options):
        shutil.copytree(homes.model, out)
        return update(*arguments, **options)

    monkeypatch.setattr(watching, "update", slow_update)
    outcome = run_here("update", model, homes.new, "--out", out)
    assert outcome.code == 1
    assert "was not replaced; the result was saved to" in outcome.err
    assert f"written before: {tmp_path / 'out-2'}" in outcome.err
    assert (out / MANIFEST).read_bytes() == (homes.model / MANIFEST).read_bytes()
    assert names(tmp_path) == ["model", "out", "out-2"]
    assert names(tmp_path / "out-2") == before


def refused_by_experiments(*words):
    """The message with which the experiments' commands refuse these words."""
    command = [sys.executable, "-m", "experiments", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == 2
    return done.stderr


class TestInputsAndOutputs:
    def test_the_page_of_a_fit_replaces_nothing(self, homes, fit_words, tmp_path):
        checkpoint, other = tmp_path / "best.pt", tmp_path / "other.csv"
        checkpoint.write_bytes(b"a network")
        refused = (
            (homes.table, ()),
            (tmp_path / "new-model", ()),
            (tmp_path / "new-model" / "page.html", ()),
            (other, ("--test-out", other)),
        )
        for page, more in refused:
            check_refused(run_here(*fit_words, "--report", page, *more), "would overwrite")
        of_network = ("--smiles", "smiles", "--checkpoint", checkpoint, "--trust", "--report", checkpoint)
        words = ("fit", homes.table, "--target", "price", "--out", tmp_path / "new-model", *of_network)
        check_refused(run_here(*words), "would overwrite its own input")
        assert checkpoint.read_bytes() == b"a network"
        assert names(tmp_path) == ["best.pt"]

    def test_an_update_stays_out_of_the_model(self, homes, model):
        before = names(model)
        check_refused(run_here("update", model, homes.new, "--out", model / "new"), "would overwrite")
        check_refused(run_here("update", model, model.parent), "is a folder; give one file")
        assert names(model) == before
        rows = shutil.copy(homes.new, model / "rows.csv")
        check_refused(run_here("update", model, rows), "would overwrite its own input")

    def test_a_table_of_results_and_the_file_beside_it(self, tmp_path):
        (tmp_path / "results" / "runs").mkdir(parents=True)
        words = ("collect", tmp_path / "results", "--out", tmp_path / "all.json")
        assert "would overwrite --out" in refused_by_experiments(*words)

    def test_a_figure_of_results(self, tmp_path):
        results = tmp_path / "synthetic.png"
        results.write_text("protocol,dataset,method,seed,confidence_level,n_test,\n")
        words = ("figures", results, "--out", tmp_path)
        assert "would overwrite its own input" in refused_by_experiments(*words)


class TestExitStatus:
    def test_the_page_finds_a_full_disk(self, fit_words, tmp_path, monkeypatch):
        from lvd.page import render

        def fail(*_):
            raise DISK_FULL

        monkeypatch.setattr(render, "write_text", fail)
        outcome = run_here(*fit_words, "--report", tmp_path / "page.html")
        assert outcome.code == 1
        assert "page.html: No space left on device" in outcome.err
        assert f"written before: {tmp_path / 'new-model'}" in outcome.err
        assert names(tmp_path) == ["new-model"]

    def test_the_model_finds_a_full_disk(self, fit_words, tmp_path, monkeypatch):
        from lvd.store import folder

        def fail(*_):
            raise DISK_FULL

        monkeypatch.setattr(folder.Path, "write_bytes", fail)
        outcome = run_here(
            *fit_words, "--test-out", tmp_path / "test.csv", "--report", tmp_path / "page.html"
        )
        assert outcome.code == 2
        assert "No space left on device" in outcome.err
        assert "written before" not in outcome.err
        assert names(tmp_path) == []

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
    def test_standard_output_on_a_full_device(self, fit_words, tmp_path):
        with contextlib.suppress(OSError), Path("/dev/full").open("w") as full:  # closing it fails too
            outcome = run_here(*fit_words, out=full)
        assert outcome.code == 1
        assert "No space left on device" in outcome.err
        assert outcome.err.endswith(
            f"standard output is incomplete; written before: {tmp_path / 'new-model'}\n"
        )
        TableModel.load(tmp_path / "new-model")

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
    def test_a_page_on_a_full_device(self, fit_words, tmp_path):
        check_refused(run_here(*fit_words, "--report", "/dev/full"), "it is a device or a pipe")
        assert names(tmp_path) == []

    def test_a_command_after_one_that_wrote(self, homes, model, tmp_path):
        assert run_here("predict", model, homes.new, "--out", tmp_path / "out.csv").code == 0
        check_refused(
            run_here("predict", model, tmp_path / "no.csv", "--out", tmp_path / "out.csv"), "no.csv"
        )

    def test_rows_that_were_printed_before_one_is_refused(self, homes, model, tmp_path, monkeypatch):
        from lvd.tables import reading

        lines = homes.new.read_text().splitlines()
        (tmp_path / "rows.csv").write_text("\n".join([*lines[:101], lines[1].replace(",", ",x", 1), ""]))
        outcome = run_here("predict", model, tmp_path / "rows.csv", "--out", "-")
        assert (outcome.code, outcome.out) == (2, "")  # all of one batch
        read = reading.read_rows
        monkeypatch.setattr(reading, "read_rows", lambda *paths, **_: read(*paths, batch_rows=50))
        outcome = run_here("predict", model, tmp_path / "rows.csv", "--out", "-")
        assert outcome.code == 1
        assert len(outcome.out.splitlines()) == 101
        assert outcome.err.endswith("what is on standard output is incomplete\n")


class TestWordsOfUsers:
    def test_names_that_look_like_options(self, model, tmp_path):
        table = tmp_path / "x drop=[oops].csv"
        outcome = run_here("predict", model, table, "--out", tmp_path / "out.csv")
        check_refused(outcome, str(table))
        table.write_text("skip_invalid=True,x drop=[oops]\n1,\n2,3\n3,4.5\n")
        outcome = run_here("fit", table, "--target", "skip_invalid=True", "--out", tmp_path / "new")
        assert outcome.code == 2
        assert "column 'x drop=[oops]': 1 missing value" in outcome.err
        assert "or fit with --impute median" in outcome.err
        assert "to leave out: --drop 'x drop=[oops]'" in outcome.err

    def test_the_card_holds_no_markup_of_theirs(self, homes, tmp_path):
        lines = homes.table.read_text().splitlines()
        column, target = '"<script>alert(1)</script>\n## Forged"', "*price*|_[x](y)_"
        header = lines[0].replace("rooms", column).replace("price", target)
        table = tmp_path / "1. `homes`.csv"
        table.write_text("\n".join([header, *lines[1:], ""]))
        words = ("--target", target, "--drop", "id", "--epochs", 1, "--preset", "paper")
        outcome = run_here("fit", table, *words, "--out", tmp_path / "model")
        assert outcome.code == 0, outcome.err
        card = (tmp_path / "model" / "card.md").read_text()
        assert "- 1\\. \\`homes\\`.csv: 500 rows" in card
        assert "&lt;script&gt;alert(1)&lt;/script&gt;\\\\n## Forged" in card
        assert "| \\*price\\*\\|\\_\\[x\\](y)\\_ | 90%" in card
        assert [line for line in card.splitlines() if line.startswith("#")] == [
            *("# Model card", "## Data", "## Settings", "## On the test rows, which no step had seen"),
            "## Versions",
        ]
