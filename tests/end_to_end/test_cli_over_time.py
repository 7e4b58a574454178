"""Tried as a new user would: a table with dates, a fit, a month of rows whose labels come a day late, the page."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from command_line import run_here

HOURS = 12
"""Rows of a day."""


def demand(first_day, n_days):
    """Rows in the order of time; after 25 days demand is higher, and a trend leaves the range of the past."""
    rng = np.random.default_rng(first_day)
    day = np.repeat(np.arange(first_day, first_day + n_days), HOURS)
    hour = np.tile(np.arange(0, 24, 24 // HOURS), n_days)
    heat = (10 + 0.2 * day + 3 * rng.normal(size=len(day))).round(1)
    late = day >= 50 + 25
    load = 100 + 4 * heat + hour + 30 * late + np.where(hour < 8, 2.0, 6.0) * rng.normal(size=len(day))
    moments = np.datetime64("2024-01-01T00:00") + (24 * day + hour).astype("timedelta64[h]")
    return [
        {"when": str(moment), "heat": a, "load": round(b, 2)}
        for moment, a, b in zip(moments, heat.tolist(), load.tolist(), strict=True)
    ]


def write(path, rows, *names):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_a_month_with_labels_a_day_late(tmp_path):
    past = write(tmp_path / "past.csv", demand(0, 50), "when", "heat", "load")
    model, state = tmp_path / "model", tmp_path / "state"
    fitted = run_here(
        *("fit", past, "--target", "load", "--split", "time:when", "--model", "trees", "--out", model)
    )
    assert fitted.code == 0, fitted.err
    names = ("--key", "when", "--time", "when", "--half-life", "7d", "--half-life", "30d")
    assert run_here("online", "init", model, *names, "--out", state).code == 0
    covered, finite, late = [], [], None
    for number in range(30):
        rows = demand(50 + number, 1)
        today, out = write(tmp_path / "today.csv", rows, "when", "heat"), tmp_path / "out.csv"
        outcome = run_here("online", "predict", state, today, "--out", out)
        assert (outcome.code, outcome.err) == (0, "")
        for row, found in zip(rows, read(out), strict=True):
            lower, upper = float(found["lower_90"]), float(found["upper_90"])
            covered.append(lower <= row["load"] <= upper)
            finite.append(np.isfinite([lower, upper]).all())
        if late is not None:
            outcome = run_here("online", "observe", state, late)
            assert outcome.out == f"{HOURS} labels taken\n"
        late = write(tmp_path / f"measured-{number}.csv", rows, "when", "load")
    assert 0.85 <= np.mean(covered) <= 0.97
    assert np.mean(finite) >= 0.97
    status = json.loads(run_here("online", "status", state, "--json").out)["load"]
    counts = {name: status[name] for name in ("n_predicted", "n_observed", "n_waiting")}
    assert counts == {"n_predicted": 30 * HOURS, "n_observed": 29 * HOURS, "n_waiting": HOURS}
    assert status["half_life"] in {7.0, 30.0}
    page = tmp_path / "over-time.html"
    assert run_here("online", "report", state, "--out", page).code == 0
    assert "2024-03-" in page.read_text()
    # The model alone does not follow.
    whole = write(tmp_path / "month.csv", demand(50, 30), "when", "heat", "load")
    watched = run_here("monitor", model, whole)
    assert watched.code == 3
    assert "the inputs and errors do not look like those of the calibration set" in watched.out
