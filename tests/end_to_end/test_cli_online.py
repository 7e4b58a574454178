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


def test_the_page_shows_the_picture_over_time(folder):
    """After the days above; and the page of a state that has seen no label."""
    page = folder / "over-time.html"
    outcome = run_here("online", "report", folder / "state", "--out", page)
    assert (outcome.code, outcome.err) == (0, "")
    text = page.read_text()
    assert text.count('<svg class="chart"') == 3
    assert "Each point is of 50 rows in a row" in text
    assert ">row 179<" in text
    assert "<script" not in text
    outcome = run_here("online", "report", folder / "state", "--out", page)
    assert outcome.code == 2
    run_here("online", "init", folder / "model", "--key", "hour", "--out", folder / "fresh")
    outcome = run_here("online", "report", folder / "fresh", "--out", page, "--force")
    assert outcome.code == 0
    assert "No label has been observed yet" in page.read_text()


def test_half_lives_in_days_take_the_date_of_each_row(folder):
    state = folder / "dated"
    init = ("online", "init", folder / "model", "--key", "hour", "--half-life", "2d", "--half-life", "2w")
    refused = run_here(*init, "--out", state)
    assert (refused.code, "rows need their dates; name their column with --time" in refused.err) == (2, True)
    assert run_here(*init, "--time", "date", "--out", state).code == 0
    columns = demand(60, seed=5)
    keys = [f"hour {hour}" for hour in range(60)]
    labels = {"hour": keys, "load": columns.pop("load")}
    dates = [f"2024-03-{1 + hour // 24:02d}T{hour % 24:02d}:00" for hour in range(60)]
    rows = write_table(folder / "dated.csv", {"hour": keys, "date": dates, **columns})
    outcome = run_here("online", "predict", state, rows, "--out", folder / "out.csv")
    assert outcome.code == 0, outcome.err
    run_here("online", "observe", state, write_table(folder / "dated-labels.csv", labels))
    status = json.loads(run_here("online", "status", state, "--json").out)["load"]
    assert (status["half_life"] in {2.0, 14.0}, status["in_days"]) == (True, True)
    run_here("online", "report", state, "--out", folder / "dated.html")
    assert ">2024-03-03<" in (folder / "dated.html").read_text()
    rows = write_table(folder / "dateless.csv", {"hour": ["x"], "date": [""], "heat": [1.0], "day": [1]})
    outcome = run_here("online", "predict", state, rows, "--out", folder / "out.csv")
    assert (outcome.code, "lacks dates (row 1)" in outcome.err) == (2, True)


def test_the_report_of_a_table_over_time(folder):
    columns = demand(200, seed=6)
    columns["date"] = [f"2024-{1 + row // 28:02d}-{1 + row % 28:02d}" for row in range(200)]
    rows, page = write_table(folder / "measured.csv", columns), folder / "measured.html"
    outcome = run_here("report", folder / "model", rows, "--over-time", "date", "--out", page)
    assert outcome.code == 0, outcome.err
    assert 'id="time"' in page.read_text()
    assert ">2024-08-" in page.read_text()
    outcome = run_here("report", folder / "model", rows, "--over-time", "when", "--out", folder / "no.html")
    assert (outcome.code, "no column 'when'" in outcome.err) == (2, True)


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
    assert "its key is missing in 1 of them (row 2)" in " ".join(outcome.err.split())
    assert labels.is_file()
