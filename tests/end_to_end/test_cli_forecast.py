"""``lvd fit --time --lags --horizon``: from a table of the past to forecasts, and what they are worth."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from command_line import run_here


def series(n):
    """Hours of demand, whose errors are larger by day, with the temperature, in random order."""
    rng = np.random.default_rng(0)
    hour = np.arange(n)
    heat = rng.uniform(0, 10, size=n).round(1)
    load = np.zeros(n)
    for one in range(n):
        before = load[one - 1] if one else 0.0
        load[one] = 0.6 * before + heat[one] + (4.0 if one % 24 > 8 else 1.0) * rng.normal()
    moments = (np.datetime64("2024-01-01T00:00") + hour.astype("timedelta64[h]")).astype(str)
    return [(moments[one], heat[one], round(load[one], 2)) for one in hour if one != 200]


def write(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["hour", "heat", "load"])
        writer.writerows(rows)
    return path


FORECAST = ("--target", "load", "--time", "hour", "--lags", "1,24", "--horizon")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forecast")
    rows = series(900)
    order = np.random.default_rng(1).permutation(700)
    write(folder / "past.csv", [rows[row] for row in order])
    write(folder / "later.csv", rows[700:])
    write(folder / "now.csv", [*rows[650:699], (rows[699][0], rows[699][1], "")])
    options = ("--model", "trees", "--calibration", "cross", "--test-out", folder / "test.csv")
    outcome = run_here(
        "fit", folder / "past.csv", *FORECAST, "1,6", *options, "--out", folder / "model", "--json"
    )
    assert outcome.code == 0, outcome.err
    (folder / "fit.json").write_text(outcome.out)
    return folder


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_fit_tells_horizons_apart(folder):
    found = json.loads((folder / "fit.json").read_text())
    assert [one["target"] for one in found["targets"]] == ["load_h1", "load_h6"]
    assert found["split"] == "time:hour"
    assert found["inputs"] == ["hour", "heat", "load_lag1", "load_lag24"]
    assert found["leaks"] == {}
    near, far = (one["summary"]["rows"][0]["mean_finite_width"] for one in found["targets"])
    assert near < far


def test_forecasts_from_the_latest_row(folder):
    outcome = run_here("predict", folder / "model", folder / "now.csv", "--out", folder / "out.csv")
    assert (outcome.code, outcome.err) == (0, "")
    found = rows_of(folder / "out.csv")
    names = ["hour", "horizon", "y_pred", "lower_90", "upper_90", "n_effective", "known"]
    assert [list(row) for row in found] == [names, names]
    # The last row has no value yet: forecasts begin at it.
    assert [(row["hour"], row["horizon"]) for row in found] == [
        ("2024-01-30T04:00:00", "1"),
        ("2024-01-30T09:00:00", "6"),
    ]
    assert all(float(row["lower_90"]) < float(row["y_pred"]) < float(row["upper_90"]) for row in found)
    levels = ("--level", "0.5", "--level", "0.9")
    run_here("predict", folder / "model", folder / "now.csv", *levels, "--out", folder / "two.csv")
    assert {"lower_50", "upper_50", "lower_90", "upper_90"} < set(rows_of(folder / "two.csv")[0])


def test_evaluate_and_report(folder):
    measured = json.loads(run_here("evaluate", folder / "model", folder / "later.csv", "--json").out)
    assert measured["n_rows"] == 199 - 23 - 6
    for one in measured["targets"]:
        assert one["verdicts"][0]["coverage"] > 0.8
    again = json.loads(run_here("evaluate", folder / "model", folder / "test.csv", "--json").out)
    assert again["n_rows"] == json.loads((folder / "fit.json").read_text())["n_test"]
    page = folder / "page.html"
    shown = ("--target", "load_h6", "--over-time", "hour", "--out", page)
    outcome = run_here("report", folder / "model", folder / "later.csv", *shown)
    assert outcome.code == 0, outcome.err
    assert "load_h6" in page.read_text()


def test_fit_says_what_it_left_out(folder):
    options = ("--model", "trees", "--preset", "paper", "--out", folder / "short")
    outcome = run_here("fit", folder / "past.csv", *FORECAST, "1", *options)
    assert outcome.code == 0, outcome.err
    assert "24 rows are left out because a lag is not known, as at the beginning" in outcome.out
    assert "1 date on the raster missing, the first 2024-01-09T08:00:00" in outcome.out
    outcome = run_here("predict", folder / "short", folder / "now.csv", "--out", folder / "one.csv")
    assert (outcome.code, len(rows_of(folder / "one.csv"))) == (0, 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--lags", "1"), "a forecast takes --time, --lags and --horizon together"),
        (("--time", "hour", "--lags", "1", "--horizon", "1", "--split", "time:hour"), "leave --split out"),
        (
            ("--time", "hour", "--lags", "x", "--horizon", "1"),
            "--lags must be whole numbers separated by commas",
        ),
        (("--time", "hour", "--lags", "1", "--horizon", "0"), "--horizon must be whole numbers"),
        (("--time", "heat", "--lags", "1", "--horizon", "1"), "must hold dates or times"),
        (
            ("--time", "hour", "--lags", "1", "--horizon", "2", "--report", "x.html"),
            "a page shows one target",
        ),
    ],
)
def test_refusals_of_fit(folder, words, message):
    outcome = run_here("fit", folder / "past.csv", "--target", "load", *words, "--out", folder / "never")
    assert (outcome.code, message in " ".join(outcome.err.split())) == (2, True), outcome.err
    assert not (folder / "never").exists()


def test_other_commands(folder):
    write(folder / "few.csv", series(900)[:9])
    outcome = run_here("predict", folder / "model", folder / "few.csv", "--out", folder / "never.csv")
    assert (outcome.code, "give more of its past" in outcome.err) == (2, True)
    outcome = run_here("online", "init", folder / "model", "--key", "hour", "--out", folder / "state")
    assert (outcome.code, "are for models of rows, not of forecasts" in outcome.err) == (2, True)
    outcome = run_here("explain", folder / "model", folder / "now.csv", "--row", 1)
    assert (outcome.code, "forecasts have no explanations" in outcome.err) == (2, True)
