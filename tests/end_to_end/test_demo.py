"""``lvd demo``, run for real: what it prints and what it writes are the same figures."""

from __future__ import annotations

import csv
from itertools import groupby

import pytest

FILES = {"synthetic.png", "diabetes.png", "width_error.png", "intervals.csv"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    (folder / "intervals.csv").write_text("of an earlier run")
    (folder / "notes.txt").write_text("not the demo's")
    return folder


@pytest.fixture(scope="module")
def printed(lvd_here, folder):
    outcome = lvd_here("demo", "--out", folder)
    assert outcome.code == 0, outcome.err
    assert outcome.err == ""
    return outcome.out.splitlines()


@pytest.fixture(scope="module")
def intervals(printed, folder):
    """Rows of the CSV by dataset, method and level."""
    with (folder / "intervals.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    keys = ("dataset", "method", "confidence_level")
    return {key: list(group) for key, group in groupby(rows, lambda row: tuple(row[name] for name in keys))}


def is_covered(row):
    return float(row["lower"]) <= float(row["y"]) <= float(row["upper"])


def is_infinite(row):
    return float(row["upper"]) == float("inf")


def test_files_are_written_and_others_left_alone(printed, folder):
    assert {path.name for path in folder.iterdir()} == FILES | {"notes.txt"}
    assert (folder / "notes.txt").read_text() == "not the demo's"
    for path in folder.glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size < 150_000
    assert printed[-1] == f"Written to {folder}: synthetic.png, diabetes.png, width_error.png, intervals.csv"


def test_the_table_agrees_with_the_csv(printed, intervals):
    assert printed[0].split() == [
        *("dataset", "method", "level", "MCR", "TCR", "AUROC", "MAD", "width", "finite"),
    ]
    lines = [line.replace("split conformal", "split_conformal").split() for line in printed[1:9]]
    table = {(name, method.replace("_", " "), level): cells for name, method, level, *cells in lines}
    assert table.keys() == intervals.keys()
    for key, rows in intervals.items():
        coverage, *_, finite = table[key]
        assert coverage == f"{sum(map(is_covered, rows)) / len(rows):.1%}"
        assert finite == f"{1 - sum(map(is_infinite, rows)) / len(rows):.1%}"


@pytest.mark.parametrize("dataset", ["synthetic", "diabetes"])
def test_the_sentences_agree_with_the_csv(printed, intervals, dataset):
    said = "\n".join(printed).split(f"\n{dataset}: ")[1].split("\n\n")[0]
    local, split = intervals[dataset, "LVD", "0.9"], intervals[dataset, "split conformal", "0.9"]
    infinite = [is_infinite(row) for row in local]
    missed = sum(there and not is_covered(row) for there, row in zip(infinite, split, strict=True))
    assert f"{len(local)} test" in said
    assert f"LVD covers {sum(map(is_covered, local))} of {len(local)} test rows" in said
    assert f"LVD is infinite on {sum(infinite)} rows: " in said
    assert f"misses {missed} of them." in said


@pytest.mark.parametrize("below", ["", "folder"])
def test_a_folder_that_cannot_be_is_refused(lvd_here, tmp_path, below):
    (tmp_path / "taken").write_text("a file")
    outcome = lvd_here("demo", "--out", tmp_path / "taken" / below)
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith(f"error: cannot write to the folder {tmp_path / 'taken' / below}: ")
    assert outcome.err.endswith("; give another one with --out\n")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
