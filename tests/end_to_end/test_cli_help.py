"""``lvd`` and its help: examples on every command, and nothing heavy loaded for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import lvd

COMMANDS = [
    ("fit",),
    ("predict",),
    ("evaluate",),
    ("explain",),
    ("report",),
    ("update",),
    ("monitor",),
    ("demo",),
    ("serve",),
    ("data", "list"),
    ("data", "export"),
    ("export",),
]


@pytest.mark.parametrize("command", [(), *COMMANDS])
def test_help_has_examples(lvd_here, command):
    outcome = lvd_here(*command, "--help")
    assert outcome.code == 0
    examples = outcome.out.split("Examples:")[1]
    assert " ".join(("lvd", *command)) in examples
    assert outcome == lvd_here(*command, "-h")


def test_help_loads_nothing_that_computes():
    program = """
import sys
from lvd.cli import main
sys.argv = ["lvd", "--help"]
try:
    main()
except SystemExit:
    heavy = {"numpy", "torch", "sklearn", "pyarrow", "matplotlib"} & set(sys.modules)
    sys.exit(f"loaded {heavy}" if heavy else 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_real_command(lvd_outside):
    outcome = lvd_outside("--version")
    assert outcome == (0, f"lvd {lvd.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("predikt",), "No such command 'predikt'"),
        (("predict", "model", "table.csv"), "Missing option '--out'"),
        (("fit", "t.csv", "--target", "y", "--out", "m", "--seed", "-1"), "Invalid value for '--seed'"),
        (("explain", "m", "t.csv", "--row", "0"), "Invalid value for '--row'"),
    ],
)
def test_a_wrong_call_ends_with_2(lvd_here, arguments, message):
    outcome = lvd_here(*arguments)
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.out == ""


def test_data_list(lvd_here, tmp_path):
    outcome = lvd_here("data", "list")
    assert outcome.code == 0
    assert outcome.err == ""
    assert [line.split()[0] for line in outcome.out.splitlines()[1:3]] == ["synthetic", "diabetes"]
    (tmp_path / "yacht.csv").write_text("not looked into")
    assert str(tmp_path / "yacht.csv") in lvd_here("data", "list", "--folder", tmp_path).out


def test_data_list_refuses_a_folder_that_is_not_there(lvd_here, tmp_path):
    outcome = lvd_here("data", "list", "--folder", tmp_path / "nowhere")
    assert outcome.code == 2
    assert "must be an existing folder" in outcome.err


@pytest.mark.parametrize("words", [(), ("--help",), ("run", "--datasets", "yacht", "--out", "x")])
def test_the_experiments_are_no_longer_a_command(lvd_here, words):
    outcome = lvd_here("bench", *words)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: lvd bench is no longer part of the package")
    assert "python -m experiments" in outcome.err
    assert outcome.err.count("\n") == 1
