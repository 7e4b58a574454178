"""``lvd demo``, run for real: what it prints and what it writes are the same figures."""

from __future__ import annotations

import csv

import pytest

FILES = {"homes.png", "intervals.csv"}


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
def homes(printed, folder):
    """Rows of the CSV by method."""
    with (folder / "intervals.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    methods = ("LVD", "split conformal")
    return {method: [row for row in rows if row["method"] == method] for method in methods}


def coverage(rows):
    return sum(float(row["lower"]) <= float(row["price"]) <= float(row["upper"]) for row in rows) / len(rows)


def test_files_are_written_and_others_left_alone(printed, folder):
    assert {path.name for path in folder.iterdir()} == FILES | {"notes.txt"}
    assert (folder / "notes.txt").read_text() == "not the demo's"
    assert (folder / "homes.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "homes.png").stat().st_size < 150_000
    assert printed[-1] == f"Written to {folder}: homes.png, intervals.csv"


def test_it_prints_fifteen_lines_at_most(printed):
    assert len(printed) <= 15


PLACES = {
    "in Easton": lambda place: place == "Easton",
    "in the other towns": lambda place: place not in {"Easton", "mansions"},
    "mansions": lambda place: place == "mansions",
}


@pytest.mark.parametrize("name", PLACES)
def test_the_table_agrees_with_the_csv(printed, homes, name):
    line = next(line for line in printed if line.startswith(name)).removeprefix(name).replace(",", "").split()
    local, split = ([row for row in homes[m] if PLACES[name](row["place"])] for m in homes)
    n_rows, local_coverage, _, n_unknown, split_coverage, _ = line
    assert int(n_rows) == len(local) == len(split)
    assert local_coverage == f"{coverage(local):.0%}"
    assert split_coverage == f"{coverage(split):.0%}"
    assert int(n_unknown) == sum(row["known"] == "false" for row in local)


def test_it_is_worth_showing(homes):
    """LVD covers in the noisy town and not too much elsewhere; split conformal does not."""
    in_town, elsewhere = (
        [coverage([row for row in homes[m] if PLACES[name](row["place"])]) for m in homes]
        for name in ("in Easton", "in the other towns")
    )
    assert in_town[0] >= 0.84
    assert elsewhere[0] <= 0.96
    assert in_town[1] < 0.6
    mansions = [row for row in homes["LVD"] if row["place"] == "mansions"]
    assert sum(row["known"] == "false" for row in mansions) >= 0.9 * len(mansions)


@pytest.mark.parametrize("below", ["", "folder"])
def test_a_folder_that_cannot_be_is_refused(lvd_here, tmp_path, below):
    (tmp_path / "taken").write_text("a file")
    outcome = lvd_here("demo", "--out", tmp_path / "taken" / below)
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith(f"error: cannot write {tmp_path / 'taken' / below}: ")
    assert "the folder above it must exist, be writable" in outcome.err
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
