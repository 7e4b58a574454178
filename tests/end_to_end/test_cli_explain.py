"""``lvd explain``."""

from __future__ import annotations

import csv
import json

import pytest

from lvd.tables.splits import split_indices


@pytest.fixture(scope="module")
def strange(tmp_path_factory):
    """A home like no other in row 2."""
    path = tmp_path_factory.mktemp("strange") / "strange.csv"
    path.write_text("area,rooms,district,garden\n120,3,south,true\n9000,80,north,false\n")
    return path


def test_neighbours_are_named_by_their_rows_in_the_table_of_fit(lvd_here, homes):
    outcome = lvd_here("explain", homes.model, homes.new, "--row", 17, "--neighbors", 4, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    (found,) = json.loads(outcome.out)
    assert (found["row"], found["target"]) == (17, "price")
    with homes.table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    calibration = set((split_indices(500, 0)[1] + 1).tolist())
    assert len(found["evidence"]["neighbors"]) == 4
    for neighbor in found["evidence"]["neighbors"]:
        assert neighbor["index"] in calibration
        assert float(rows[neighbor["index"] - 1]["price"]) == neighbor["target"]


def test_row_1_is_the_first_below_the_header(lvd_here, homes):
    predicted = list(
        csv.DictReader(lvd_here("predict", homes.model, homes.new, "--out", "-").out.splitlines())
    )
    for row in (1, 120):
        (found,) = json.loads(lvd_here("explain", homes.model, homes.new, "--row", row, "--json").out)
        assert found["y_pred"] == pytest.approx(float(predicted[row - 1]["y_pred"]))
        assert float(found["upper"]) == pytest.approx(float(predicted[row - 1]["upper_90"]))


def test_an_infinite_interval_says_what_is_missing(lvd_here, homes, strange):
    outcome = lvd_here("explain", homes.model, strange, "--row", 2, "--level", 0.9)
    assert "at level 0.9 from -inf to inf" in outcome.out
    assert "9 more rows like it would make it finite." in outcome.out
    (found,) = json.loads(lvd_here("explain", homes.model, strange, "--row", 2, "--json").out)
    assert (found["lower"], found["upper"]) == ("-Infinity", "Infinity")
    assert found["evidence"]["rows_missing"] == 9
    assert found["sentence"] in outcome.out


def test_a_finite_interval_says_where_it_comes_from(lvd_here, homes, strange):
    outcome = lvd_here("explain", homes.model, strange, "--row", 1, "--level", 0.5, "--neighbors", 3)
    lines = outcome.out.splitlines()
    assert lines[0].startswith("row 1, price: prediction ")
    assert "similar calibration rows, 50% of which had an error of at most" in lines[2]
    assert lines[-4].split() == ["calibration", "row", "weight", "similarity", "error", "price"]
    weights = [float(line.split()[1].rstrip("%")) for line in lines[-3:]]
    assert weights == sorted(weights, reverse=True)


def test_a_row_that_is_not_there(lvd_here, homes, strange):
    outcome = lvd_here("explain", homes.model, strange, "--row", 3)
    assert outcome.code == 2
    assert "row must lie between 1 and 2, the number of rows of the table, got 3" in outcome.err
    assert outcome.out == ""


class TestColumns:
    def test_the_cells_of_the_neighbours_are_beside_those_of_the_row(self, lvd_here, homes):
        words = ("explain", homes.model, homes.new, "--row", 5, "--fitted-on", homes.table)
        outcome = lvd_here(*words)
        assert (outcome.code, outcome.err) == (0, "")
        (found,) = json.loads(lvd_here(*words, "--json").out)
        listed = [line.split() for line in outcome.out.splitlines()]
        head = next(place for place, line in enumerate(listed) if line[:3] == ["column", "row", "5"])
        cells = {line[0]: line[1:] for line in listed[head + 1 : head + 5]}
        with homes.table.open(newline="") as file:
            fitted_on = list(csv.DictReader(file))
        with homes.new.open(newline="") as file:
            own = list(csv.DictReader(file))[4]
        nearest = [fitted_on[one["index"] - 1] for one in found["evidence"]["neighbors"][:3]]
        assert set(cells) == {"area", "rooms", "district", "garden"}
        for name, texts in cells.items():
            assert texts == [row[name] or "missing" for row in (own, *nearest)]

    def test_another_row_that_cannot_be_read_does_no_harm(self, lvd_here, homes, tmp_path):
        text = homes.new.read_text().splitlines()
        (tmp_path / "new.csv").write_text("\n".join([*text[:30], ",".join(["?"] * len(text[0].split(",")))]))
        outcome = lvd_here("explain", homes.model, tmp_path / "new.csv", "--row", 5)
        assert (outcome.code, outcome.err) == (0, "")
        assert "times as wide\n" not in outcome.out

    def test_another_table_has_not_these_neighbours(self, lvd_here, homes):
        outcome = lvd_here("explain", homes.model, homes.new, "--row", 5, "--fitted-on", homes.new)
        assert outcome.code == 2
        assert "--fitted-on must be the table that the model was fitted on, of 500 rows" in outcome.err
