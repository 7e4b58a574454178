"""``lvd online``: a model, rows of every day, labels a day late, the status."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

import lvd
from command_line import run_here
from lvd.tables.online_table import OnlineTable


def write_table(path, columns):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def demand(n, seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    heat, day = rng.uniform(0, 30, size=n), rng.integers(0, 7, size=n)
    y = 100 + 3 * heat + 10 * (day > 4) + shift + 5 * rng.normal(size=n)
    return {"heat": heat.round(2), "day": day, "load": y.round(2)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("online")
    write_table(folder / "past.csv", demand(500))
    outcome = run_here(
        "fit", folder / "past.csv", "--target", "load", "--model", "trees", "--out", folder / "model"
    )
    assert outcome.code == 0, outcome.err
    outcome = run_here("online", "init", folder / "model", "--key", "hour", "--out", folder / "state")
    assert (outcome.code, outcome.err) == (0, "")
    assert "rows are named by 'hour'" in outcome.out
    return folder


def day(folder, number, **changes):
    """The rows of a day, and their labels, in tables of their own."""
    columns = demand(60, seed=100 + number, **changes)
    keys = [f"day {number} hour {hour}" for hour in range(60)]
    labels = {"hour": keys, "load": columns.pop("load")}
    return (
        write_table(folder / f"day-{number}.csv", {"hour": keys, **columns}),
        write_table(folder / f"labels-{number}.csv", labels),
    )


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_days_with_labels_a_day_late(folder):
    state, late = folder / "state", None
    for number in range(4):
        rows, labels = day(folder, number)
        outcome = run_here("online", "predict", state, rows, "--out", folder / "out.csv")
        assert (outcome.code, outcome.err) == (0, ""), outcome.err
        assert "60 rows written" in outcome.out
        if late is not None:
            assert run_here("online", "observe", state, late).out == "60 labels taken\n"
        late = labels
    found = rows_of(folder / "out.csv")
    assert list(found[0]) == ["hour", "heat", "day", "y_pred", "lower_90", "upper_90", "known"]
    truth = {row["hour"]: float(row["load"]) for row in rows_of(late)}
    covered = [float(row["lower_90"]) <= truth[row["hour"]] <= float(row["upper_90"]) for row in found]
    assert np.mean(covered) > 0.75
    again = run_here("online", "observe", state, folder / "labels-0.csv")
    assert "0 labels taken\n60 ignored" in again.out
    outcome = run_here("online", "status", state)
    assert outcome.code == 0
    assert "of the latest 180 labelled rows were covered" in outcome.out
    status = json.loads(run_here("online", "status", state, "--json").out)["load"]
    assert (status["n_predicted"], status["n_observed"], status["n_waiting"]) == (240, 180, 60)
    assert status["alarms"] == []


def test_rows_given_again_get_the_same_intervals(folder):
    rows, _ = day(folder, 9)
    run_here("online", "predict", folder / "state", rows, "--out", folder / "first.csv")
    run_here("online", "predict", folder / "state", rows, "--out", folder / "second.csv")
    assert (folder / "first.csv").read_text() == (folder / "second.csv").read_text()


def test_a_shock_is_an_alarm(folder):
    run_here("online", "init", folder / "model", "--key", "hour", "--out", folder / "shaken")
    rows, labels = day(folder, 20, shift=200.0)
    run_here("online", "predict", folder / "shaken", rows, "--out", folder / "out.csv")
    run_here("online", "observe", folder / "shaken", labels)
    outcome = run_here("online", "status", folder / "shaken")
    assert outcome.code == 3
    assert "ALARM: only 0.0% of the latest 60 labelled rows were covered" in outcome.out
    assert run_here("online", "status", folder / "shaken", "--json").code == 3


def test_a_state_that_cannot_be_saved_leaves_no_file(folder):
    table = OnlineTable.load(folder / "state")
    rows, _ = day(folder, 30)

    def fail():
        raise lvd.InputError("no space")

    from lvd.tables.reading import read_rows

    with pytest.raises(lvd.InputError, match="no space"):
        table.predict_to(folder / "never.csv", read_rows(rows), fail)
    assert not (folder / "never.csv").exists()


def test_refusals(folder):
    rows, labels = day(folder, 40)
    outcome = run_here("online", "predict", folder / "model", rows, "--out", folder / "out.csv")
    assert (outcome.code, "holds no intervals over time of a table" in outcome.err) == (2, True)
    outcome = run_here("online", "observe", folder / "state", rows)
    assert outcome.code == 2
    assert "load" in outcome.err
    outcome = run_here(
        "online", "predict", folder / "state", folder / "past.csv", "--out", folder / "out.csv"
    )
    assert outcome.code == 2
    assert "hour" in outcome.err
    outcome = run_here("online", "init", folder / "model", "--key", "load", "--out", folder / "other")
    assert "--key must be another column than the target" in " ".join(outcome.err.split())
    outcome = run_here("online", "init", folder / "model", "--key", "hour", "--out", folder / "state")
    assert "give --force" in outcome.err
    write_table(folder / "nameless.csv", {"hour": ["a", ""], "load": [1.0, 2.0]})
    outcome = run_here("online", "observe", folder / "state", folder / "nameless.csv")
    assert "lacks 1 names (row 2)" in " ".join(outcome.err.split())
    assert labels.is_file()
