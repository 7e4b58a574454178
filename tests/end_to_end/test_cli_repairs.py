"""The command line loses no file, leaves none half written, and says in one line what is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from command_line import COMMAND, run_here

ROWS = "".join(f"{i % 7},{i % 3 + i / 10}\n" for i in range(80))
NOBODY = 65534


def check_refused(outcome, message):
    assert outcome.code == 2, outcome.err
    assert outcome.err.startswith("error: ")
    assert message in outcome.err
    assert "Traceback" not in outcome.err
    assert outcome.out == ""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def table(tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n" + ROWS)
    return tmp_path / "t.csv"


def fit_words(table, out):
    return ("fit", table, "--target", "y", "--epochs", 1, "--preset", "paper", "--out", out)


class TestInputsStay:
    def test_fit(self, lvd_here, table, tmp_path):
        (tmp_path / "link.csv").symlink_to(table)
        before = table.read_bytes()
        for test_out in (table, tmp_path / "link.csv"):
            words = (*fit_words(table, tmp_path / "model"), "--test-out", test_out)
            check_refused(lvd_here(*words), "--test-out")
            check_refused(lvd_here(*words), "would overwrite its own input")
        same = (*fit_words(table, tmp_path / "m.csv"), "--test-out", tmp_path / "m.csv")
        check_refused(lvd_here(*same), "would overwrite")
        assert table.read_bytes() == before
        assert names(tmp_path) == ["link.csv", "t.csv"]

    def test_predict_and_report(self, lvd_here, homes, tmp_path):
        data = shutil.copy(homes.new, tmp_path / "new.csv")
        (tmp_path / "hard.csv").hardlink_to(data)
        before = data.read_bytes()
        for out in (data, tmp_path / "hard.csv"):
            check_refused(
                lvd_here("predict", homes.model, data, "--out", out), "would overwrite its own input"
            )
        report = ("report", homes.model, data, "--out")
        check_refused(lvd_here(*report, data), "would overwrite its own input")
        check_refused(lvd_here(*report, homes.model / "manifest.json"), "would overwrite its own input")
        fitted_on = ("--fitted-on", shutil.copy(homes.table, tmp_path / "old.csv"))
        check_refused(lvd_here(*report, tmp_path / "old.csv", *fitted_on), "would overwrite its own input")
        assert data.read_bytes() == before
        assert (tmp_path / "old.csv").read_bytes() == homes.table.read_bytes()

    def test_data_export(self, lvd_here, tmp_path):
        lvd_here("data", "export", "diabetes", tmp_path / "yacht.csv")
        before = (tmp_path / "yacht.csv").read_bytes()
        outcome = lvd_here("data", "export", "diabetes", tmp_path / "yacht.csv", "--folder", tmp_path)
        check_refused(outcome, "would overwrite its own input")
        assert (tmp_path / "yacht.csv").read_bytes() == before


def test_a_model_that_appears_during_the_training_stays(lvd_here, homes, table, tmp_path, monkeypatch):
    from lvd.tables.table_model import TableModel

    fit, out = TableModel.fit, tmp_path / "model"

    def slow_fit(*arguments, **options):
        fitted = fit(*arguments, **options)
        shutil.copytree(homes.model, out)
        return fitted

    monkeypatch.setattr(TableModel, "fit", slow_fit)
    outcome = lvd_here(*fit_words(table, out))
    assert (outcome.code, outcome.out) == (1, "")
    assert f"the result was saved to '{tmp_path / 'model-2'}'" in outcome.err
    assert (out / "manifest.json").read_bytes() == (homes.model / "manifest.json").read_bytes()
    assert lvd_here("evaluate", tmp_path / "model-2", table).code == 0
    assert names(tmp_path) == ["model", "model-2", "t.csv"]


DEAF = """
import contextlib, os, signal, time
import lvd.cli.app

lvd.cli.app.ONCE_MORE = 0.05
with lvd.cli.app.ending_orderly():
    with contextlib.suppress(SystemExit):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(50)
    time.sleep(50)
"""
"""Catches the first exit that a signal asks for."""


class TestSignals:
    @pytest.mark.skipif(
        signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, reason="hangups are ignored (nohup)"
    )
    def test_an_ended_fit_leaves_nothing(self, lvd_start, tmp_path):
        (tmp_path / "t.csv").write_text("x,y\n" + ROWS * 100)
        words = ("fit", tmp_path / "t.csv", "--target", "y", "--epochs", 100_000, "--out", tmp_path / "model")
        with lvd_start(*words, "--test-out", tmp_path / "test.csv") as process:
            deadline = time.monotonic() + 120
            while len(names(tmp_path)) == 1 and time.monotonic() < deadline:
                time.sleep(0.05)  # until it has begun to write
            assert len(names(tmp_path)) == 2
            process.send_signal(signal.SIGHUP)
            _, err = process.communicate(timeout=120)
        assert process.returncode == 128 + signal.SIGHUP
        assert err == b""
        assert names(tmp_path) == ["t.csv"]

    def test_code_that_catches_everything_ends_too(self):
        """In a process of its own: libraries of other tests may have taken the signal over in this one."""
        outcome = subprocess.run([sys.executable, "-c", DEAF], check=False, timeout=60)
        assert outcome.returncode == 128 + signal.SIGTERM


class TestStandardOutput:
    def run(self, *words, redirect):
        """The command under a shell, which redirects."""
        command = " ".join(map(str, ("exec", COMMAND, *words, redirect)))
        return subprocess.run(
            ["bash", "-c", command],
            check=False,
            capture_output=True,
            text=True,
            timeout=200,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
    @pytest.mark.parametrize("command", ["predict", "evaluate"])
    def test_full(self, homes, command):
        options = ("--out", "-") if command == "predict" else ("--json",)
        with contextlib.suppress(OSError), Path("/dev/full").open("w") as full:  # closing it fails too
            outcome = run_here(command, homes.model, homes.new, *options, out=full)
        assert outcome.code == 1
        assert "No space left on device" in outcome.err
        assert len(outcome.err.splitlines()) == 1

    def test_closed(self, homes):
        outcome = self.run("predict", homes.model, homes.new, "--out", "-", redirect=">&-")
        assert outcome.returncode == 2
        assert outcome.stderr.startswith("error: standard output is closed")

    @pytest.mark.parametrize("words", [("--version",), ("fit", "--help")])
    def test_a_reader_that_has_gone(self, words):
        read, write = os.pipe()
        os.close(read)
        with subprocess.Popen([COMMAND, *words], stdout=write, stderr=subprocess.PIPE) as process:
            os.close(write)
            assert process.stderr.read() == b""
        assert process.returncode == 1


class TestPlaces:
    def test_names_that_are_too_long(self, lvd_here, homes, table, tmp_path):
        long = tmp_path / ("a" * 300 + ".csv")
        calls = [
            fit_words(table, long),
            (*fit_words(table, tmp_path / "model"), "--test-out", long),
            ("predict", homes.model, table, "--out", long),
            ("report", homes.model, homes.new, "--out", long),
            ("predict", long, table, "--out", tmp_path / "out.csv"),
            ("data", "export", "diabetes", long),
            ("demo", "--out", long),
        ]
        for words in calls:
            outcome = lvd_here(*words)
            check_refused(outcome, "File name too long")
        assert names(tmp_path) == ["t.csv"]

    @pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody who may not enter a folder")
    @pytest.mark.skipif(
        not all(folder.stat().st_mode & 0o001 for folder in Path(sys.prefix).resolve().parents),
        reason="the environment is in a folder that others may not enter",
    )
    def test_a_folder_that_may_not_be_entered(self, homes, tmp_path):
        """As another user: root may enter every folder."""
        program = f"""
import json, os, sys
import lvd.tables.table_model, lvd.page.render, rich.progress
from lvd.cli import main
os.setuid({NOBODY})
for words in json.loads(sys.argv[1]):
    sys.argv = ["lvd", *words]
    try:
        main()
    except SystemExit as end:
        print(end.code)
"""
        shut = tmp_path / "shut"
        shut.mkdir(mode=0o700)
        made_by_pytest = ("pytest-", "popen-", "homes")
        above = {folder for path in (tmp_path, homes.model) for folder in path.parents}
        for folder in (tmp_path, homes.model, *(f for f in above if f.name.startswith(made_by_pytest))):
            folder.chmod(0o755)
        calls = (
            fit_words(homes.new, shut / "model"),
            ("predict", homes.model, homes.new, "--out", shut / "o.csv"),
            ("report", homes.model, homes.new, "--out", shut / "o.html"),
        )
        given = json.dumps([list(map(str, words)) for words in calls])
        outcome = subprocess.run(
            [sys.executable, "-c", program, given], check=False, capture_output=True, text=True, timeout=200
        )
        assert outcome.stdout == "2\n" * 3, outcome.stderr
        messages = outcome.stderr.splitlines()
        assert len(messages) == 3
        assert all(message.startswith("error: cannot ") for message in messages)
        assert names(shut) == []


@pytest.mark.parametrize("device", ["mps", "meta", "cuda:99", "xpu"])
def test_devices_that_are_not_there(lvd_here, tmp_path, device):
    """Before the table is read: this one is not even there."""
    words = fit_words(tmp_path / "missing.csv", tmp_path / "model")
    check_refused(lvd_here(*words, "--device", device), f"--device {device}")


def test_control_characters_are_spelled(lvd_here, tmp_path):
    name = "x\x1b[31m\x9b2J\u202e"
    (tmp_path / "t.csv").write_text(f"x,{name},y\n" + ROWS.replace(",", ",1,"))
    (tmp_path / name).mkdir()
    good = (*fit_words(tmp_path / "t.csv", tmp_path / "model"), "--drop", name)
    for words in (
        good,
        (*good, "--force", "--drop", "\x1b]0;title\x07"),
        fit_words(tmp_path / name, tmp_path / "other"),
    ):
        outcome = lvd_here(*words)
        shown = outcome.out + outcome.err
        assert "\\x1b" in shown
        assert not set(shown) & set("\x1b\x07\x9b\u202e")
    assert names(tmp_path) == sorted(["model", "t.csv", name])
