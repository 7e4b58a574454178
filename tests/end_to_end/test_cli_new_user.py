"""A new user's first hour: fit, predict, evaluate, explain, from an empty folder, on real tables."""

from __future__ import annotations

import csv
import json

import pytest

import lvd
from lvd.tables.inputs import prepare_columns
from lvd.tables.reading import read_table


def tour(run, data, target, *options):
    """The four commands in the current folder; the report of fit."""
    fit = run("fit", data, "--target", target, *options, "--test-out", "test.csv", "--out", "model", "--json")
    assert fit.code == 0, fit.err
    predict = run("predict", "model", "test.csv", "--level", 0.5, "--level", 0.9, "--out", "out.csv")
    assert (predict.code, predict.err) == (0, "")
    evaluate = run("evaluate", "model", "test.csv", "--target", target)
    assert evaluate.code == 0, evaluate.err
    explain = run("explain", "model", "test.csv", "--row", 17)
    assert (explain.code, explain.err) == (0, "")
    assert explain.out.startswith(f"row 17, {target}: prediction ")
    return json.loads(fit.out)


def check_result(folder, report, target):
    """The figures of the report, counted again from the written table."""
    with (folder / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == report["n_test"]
    covered = [float(row["lower_90"]) <= float(row[target]) <= float(row["upper_90"]) for row in rows]
    metrics = report["targets"][0]["summary"]["rows"][0]
    assert metrics["marginal_coverage_rate"] == pytest.approx(sum(covered) / len(rows))
    errors = [abs(float(row["y_pred"]) - float(row[target])) for row in rows]
    assert metrics["mean_absolute_deviation"] == pytest.approx(sum(errors) / len(rows))
    assert metrics["marginal_coverage_rate"] > 0.8
    return metrics


@pytest.mark.slow  # the tour of the README is the same way with other options
def test_diabetes(lvd_outside, tmp_path):
    data = lvd.data.load_dataset("diabetes")
    with (tmp_path / "diabetes.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*data.feature_names, "progression"])
        writer.writerows([*map(float, x), float(y)] for x, y in zip(data.X, data.y, strict=True))

    def run(*arguments):
        return lvd_outside(*arguments, cwd=tmp_path)

    refused = run("fit", "diabetes.csv", "--target", "progress", "--out", "model")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == "error: the table has no column 'progress'; did you mean 'progression'?\n"
    report = tour(run, "diabetes.csv", "progression")
    assert (report["n_train"], report["n_calib"], report["n_test"]) == (265, 89, 88)
    metrics = check_result(tmp_path, report, "progression")
    assert metrics["mean_absolute_deviation"] < 60


def test_concrete(lvd_here, shared_dir, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report = tour(lvd_here, shared_dir / "data" / "concrete.csv", "strength")
    assert check_result(tmp_path, report, "strength")["mean_absolute_deviation"] < 6


def test_energy_has_two_targets_of_which_one_is_left_out(lvd_here, shared_dir, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report = tour(lvd_here, shared_dir / "data" / "energy.csv", "Y1", "--drop", "Y2")
    assert check_result(tmp_path, report, "Y1")["mean_absolute_deviation"] < 2


def test_bike_has_dates_and_numbered_rows(shared_dir):
    table = read_table(shared_dir / "data" / "bike.csv.gz")
    prepared = prepare_columns(table, target="cnt", drop=["casual", "registered"], seed=0)
    assert prepared.useless == {"instant": "identifier"}
    dates = [name for name in prepared.encoder.feature_names if name.startswith("dteday")]
    assert dates == ["dteday: year", "dteday: month", "dteday: weekday", "dteday: days"]


@pytest.mark.slow
def test_bike(lvd_here, shared_dir, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    left_out = [f"--drop={name}" for name in ("casual", "registered")]
    report = tour(lvd_here, shared_dir / "data" / "bike.csv.gz", "cnt", *left_out, "--epochs", 20)
    assert report["left_out"] == ["instant", "casual", "registered"]
    assert check_result(tmp_path, report, "cnt")["mean_absolute_deviation"] < 80
