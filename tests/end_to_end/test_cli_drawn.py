"""``lvd fit --max-calibration-rows``, and what the other commands make of the model."""

from __future__ import annotations

import csv
import json

import pytest

import lvd
from homes import write_homes


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn")
    write_homes(folder / "homes.csv", 400, seed=0)
    write_homes(folder / "new.csv", 60, seed=1)
    return folder


def fit(lvd_here, tables, name, *options, most=50):
    words = ("fit", tables / "homes.csv", "--target", "price", "--drop", "id", "--epochs", 3)
    return lvd_here(*words, "--max-calibration-rows", most, *options, "--out", tables / name)


def test_neighbours_are_rows_of_the_table(lvd_here, tables):
    outcome = fit(lvd_here, tables, "model", "--calibration", "split")
    assert outcome.code == 0, outcome.err
    assert "240 training, 50 calibration (drawn from 80) and 80 test rows" in outcome.out
    assert "400 rows," in outcome.out
    assert "max calibration rows: 50" in (tables / "model" / "card.md").read_text()
    (found,) = json.loads(lvd_here("explain", tables / "model", tables / "new.csv", "--row", 3, "--json").out)
    with (tables / "homes.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert found["evidence"]["neighbors"]
    for neighbor in found["evidence"]["neighbors"]:
        assert float(rows[neighbor["index"] - 1]["price"]) == neighbor["target"]
    evaluated = lvd_here("evaluate", tables / "model", tables / "homes.csv", "--json")
    assert evaluated.code == 0, evaluated.err
    assert json.loads(evaluated.out)["n_calibrating"] == 50


def test_rows_that_come_by_update_all_calibrate(lvd_here, tables):
    assert fit(lvd_here, tables, "first").code == 0
    updated = lvd_here("update", tables / "first", tables / "new.csv", "--out", tables / "later")
    assert "there are 110 calibration rows now" in updated.out, updated.err
    assert lvd_here("explain", tables / "later", tables / "new.csv", "--row", 3).code == 0


def test_with_cross_validated_errors_and_groups(lvd_here, tables):
    outcome = fit(lvd_here, tables, "crossed", "--calibration", "cross", "--groups", "district")
    assert outcome.code == 0, outcome.err
    n_drawn = lvd.load(tables / "crossed").n_calib_
    assert f"320 training rows, {n_drawn} of which also calibrate by out-of-fold" in outcome.out
    assert 50 < n_drawn < 320
    assert lvd_here("predict", tables / "crossed", tables / "new.csv", "--out", "-").code == 0


def test_a_number_that_is_none(lvd_here, tables):
    outcome = fit(lvd_here, tables, "none", most=0)
    assert outcome.code == 2
    assert "--max-calibration-rows" in outcome.err
