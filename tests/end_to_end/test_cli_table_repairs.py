"""Tables that used to lose rows in silence, to hang, or to end in a traceback: what the commands say now."""

from __future__ import annotations

import csv
import importlib.util
import os

import pytest

GOOD = "x,y\n" + "".join(f"{i % 7},{i % 3 + i / 10}\n" for i in range(60))
FIT = ("--target", "y", "--epochs", 1, "--level", 0.5, "--preset", "paper")


def check_refused(outcome, message):
    assert outcome.code == 2, outcome.out + outcome.err
    assert outcome.err.startswith("error: ")
    assert message in outcome.err
    assert "Traceback" not in outcome.err
    assert outcome.out == ""


@pytest.fixture(scope="module")
def model(lvd_here, tmp_path_factory):
    """A model of one input column."""
    folder = tmp_path_factory.mktemp("one-column")
    (folder / "t.csv").write_text(GOOD)
    outcome = lvd_here("fit", folder / "t.csv", *FIT, "--out", folder / "model")
    assert outcome.code == 0, outcome.err
    return folder / "model"


def test_stray_quotes(lvd_here, model, tmp_path):
    rows = [f'{i % 7},"note {i}",{i / 10}' for i in range(80)]
    rows[9], rows[15] = '3,"note 9,0.9', '2,"note 15,1.5'
    (tmp_path / "t.csv").write_text("\n".join(["x,note,y", *rows, ""]))
    for command in (
        ("fit", tmp_path / "t.csv", *FIT, "--drop", "note", "--out", tmp_path / "model"),
        ("predict", model, tmp_path / "t.csv", "--out", tmp_path / "out.csv"),
        ("evaluate", model, tmp_path / "t.csv"),
        ("explain", model, tmp_path / "t.csv", "--row", 1),
    ):
        check_refused(lvd_here(*command), "the double quote opened in line 11")
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_an_empty_line_among_one_column(lvd_here, model, tmp_path):
    (tmp_path / "t.csv").write_text("x\n1\n\n3\n")
    outcome = lvd_here("predict", model, tmp_path / "t.csv", "--out", tmp_path / "out.csv")
    check_refused(outcome, "column 'x': 1 missing value (row 2)")


def test_pipes_and_impossible_names_as_tables(lvd_here, model, tmp_path):
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    for data, message in (
        (pipe, "is a pipe or a device"),
        (tmp_path / ("x" * 300 + ".csv"), "File name too long"),
    ):
        for command in (
            ("fit", data, *FIT, "--out", tmp_path / "model"),
            ("predict", model, data, "--out", tmp_path / "out.csv"),
            ("evaluate", model, data),
            ("explain", model, data, "--row", 1),
            ("report", model, data, "--out", tmp_path / "page.html"),
        ):
            check_refused(lvd_here(*command), message)
    assert [path.name for path in tmp_path.iterdir()] == ["pipe.csv"]


@pytest.mark.parametrize("option", ["--y-min", "--y-max"])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_bounds_that_are_no_numbers(lvd_here, tmp_path, monkeypatch, option, value):
    (tmp_path / "t.csv").write_text(GOOD)
    monkeypatch.setattr("lvd.NetRegressor.fit", lambda *args, **options: pytest.fail("trained"))
    outcome = lvd_here("fit", tmp_path / "t.csv", *FIT, f"{option}={value}", "--out", tmp_path / "model")
    check_refused(outcome, f"{option} must be a finite number, got {value}")


def test_formatted_numbers_are_noted(lvd_here, tmp_path):
    rows = "".join(f'"{i % 3 + 1}.000,5",{i % 5},{i % 3 + i / 10}\n' for i in range(60))
    (tmp_path / "t.csv").write_text("pri\x1bce,x,y\n" + rows)
    outcome = lvd_here("fit", tmp_path / "t.csv", *FIT, "--out", tmp_path / "model")
    assert outcome.code == 0
    assert (
        "note: the texts of column 'pri\\x1bce', such as '1.000,5', are categories, not numbers"
        in outcome.out
    )
    assert "\x1b" not in outcome.out + outcome.err


@pytest.mark.skipif(importlib.util.find_spec("chemprop") is None, reason="needs chemprop")
def test_molecules_in_one_column_none_of_them_readable(lvd_here, tmp_path):
    chains = ["C" * n + end for n in range(1, 11) for end in ("", "O", "N")]
    (tmp_path / "t.csv").write_text("smiles,y\n" + "".join(f"{s},{len(s) / 3}\n" for s in chains))
    sizes = ("--hidden-size", 8, "--smiles", "smiles")
    outcome = lvd_here("fit", tmp_path / "t.csv", *FIT, *sizes, "--out", tmp_path / "model")
    assert outcome.code == 0, outcome.err
    (tmp_path / "new.csv").write_text(f"smiles\nC1\n\n{'C' * 20_000}\n\n")
    predict = ("predict", tmp_path / "model", tmp_path / "new.csv", "--out", tmp_path / "out.csv")
    check_refused(lvd_here(*predict), "RDKit cannot read 4 molecules (rows 1, 2, 3, 4)")
    outcome = lvd_here(*predict, "--skip-invalid")
    assert outcome.code == 0, outcome.err
    assert "no row has an interval" in outcome.out
    assert "nan" not in outcome.out
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["smiles"][:5] for row in rows] == ["C1", "", "CCCCC", ""]
    assert {row["y_pred"] for row in rows} == {""}
