"""Rows that train or calibrate a model are recognised by what is in them, however their table is written."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lvd
from command_line import run_here
from lvd.tables.reading import read_table
from lvd.tables.splits import SeenRows, repeats_earlier, row_ids
from lvd.tables.table_model import TableModel
from lvd.tables.watching import update, watch
from lvd.tables.writing import TableWriter

N = 90


def make_table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return pa.table(
        {
            "id": [f"{seed}-{i}" for i in range(n)],
            "x": x,
            "city": rng.choice(["u", "v"], n),
            "sold": pa.array(rng.integers(0, 900, n).astype(np.int32), pa.date32()),
            "garden": rng.random(n) < 0.5,
            "y": x + rng.normal(size=n),
        }
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model that the command line has fitted on a CSV file, and that file."""
    folder = tmp_path_factory.mktemp("seen")
    table = write(make_table(), folder / "t.csv")
    options = ("--epochs", 1, "--preset", "paper", "--level", 0.5)
    outcome = run_here("fit", table, "--target", "y", *options, "--out", folder / "model")
    assert outcome.code == 0, outcome.err
    return folder / "model", table


@pytest.fixture
def model(saved):
    return TableModel.load(saved[0])


def write(table, path):
    with TableWriter(path) as writer:
        writer.write(table)
    return path


WAYS = {
    "newlines": lambda table, path: path.with_suffix(".csv").write_bytes(
        write(table, path.with_suffix(".csv")).read_bytes().replace(b"\n", b"\r\n")
    ),
    "zipped": lambda table, path: write(table, path.with_suffix(".csv.gz")),
    "Parquet": lambda table, path: pq.write_table(table, path.with_suffix(".parquet")),
    "nanoseconds": lambda table, path: pq.write_table(
        table.set_column(3, "sold", table["sold"].cast(pa.timestamp("ns"))), path.with_suffix(".parquet")
    ),
    "columns": lambda table, path: pq.write_table(
        table.select(["y", "garden", "x", "city", "sold"]).append_column("new", pa.array(range(len(table)))),
        path.with_suffix(".parquet"),
    ),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_in_another_order_and_another_file(saved, model, tmp_path, way):
    order = np.random.default_rng(1).permutation(N)
    way(make_table().take(order), tmp_path / "other")
    (path,) = tmp_path.iterdir()
    number_of = {row: place + 1 for place, row in enumerate(order)}
    calibrating = sorted(number_of[row - 1] for row in model.calibration_rows)
    refused = run_here("update", saved[0], path)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith(
        "error: 72 of 90 rows have the inputs and targets of rows in use: 54 trained the model"
    )
    told = ", ".join(map(str, calibrating[:5]))
    assert (
        f"18 already calibrate it (rows {told}, ...); remove them, or give --allow-repeated, and"
        in refused.err
    )
    for command in (("evaluate",), ("monitor",), ("report", "--out", tmp_path / "page.html")):
        outcome = run_here(command[0], saved[0], path, *command[1:])
        assert outcome.code == 0, outcome.err
        assert "54 of 90 rows have the inputs of a training row" in outcome.err
        assert "18 of 90 rows are calibration rows of the model" in outcome.err
    page = (tmp_path / "page.html").read_text()
    assert "54 of the 90 rows have the inputs of a training row." in page
    assert "18 of the 90 rows calibrate this model:" in page


def test_new_rows_and_test_rows_are_neither(saved, model, tmp_path):
    """No step has seen the test rows, so they may join the calibration rows, once."""
    tested = make_table().take(model.test_rows - 1)
    write(pa.concat_tables([make_table(30, seed=5), tested]), tmp_path / "new.csv")
    for command in ("evaluate", "monitor"):
        outcome = run_here(command, saved[0], tmp_path / "new.csv")
        assert (outcome.code, outcome.err) == (0, "")
    batches = read_table(tmp_path / "new.csv", as_text=True).to_batches()
    updated, report = update(model, batches)
    assert (report.n_again, report.n_calib) == (0, 18 + 30 + len(tested))
    with pytest.raises(
        lvd.InputError, match=r"48 already calibrate it \(rows 1, 2, 3, 4, 5, \.\.\.\); remove them"
    ):
        update(updated, batches)


def test_the_same_row_twice_in_a_table(model):
    new = make_table(10, seed=6)
    with pytest.raises(lvd.InputError, match=r"1 repeat an earlier row of the table \(row 11\)"):
        update(model, [*new.to_batches(), new.slice(3, 1)])


def test_other_targets_of_the_same_inputs_are_other_rows(model):
    table = make_table()
    other = table.set_column(5, "y", pc.add(table["y"], 1.0))
    _, report = update(model, other.to_batches())
    assert (report.n_again, report.n_repeated, report.n_calib) == (0, 54, 18 + N)
    assert watch(model, other.to_batches(), 0.5).n_calibrating == 0


def test_allowed_and_forgotten(saved, model, tmp_path):
    new = make_table(30, seed=7)
    updated, report = update(model, new.to_batches(), n_newest=20)
    updated.save(tmp_path / "model")
    loaded = TableModel.load(tmp_path / "model")
    assert loaded.evaluate(new.slice(10).to_batches()).n_calibrating == 20
    assert loaded.evaluate(new.slice(0, 10).to_batches()).n_calibrating == 0  # they calibrate no longer
    _, report = update(loaded, new.to_batches(), allow_repeated=True)
    assert (report.n_again, report.n_calib) == (20, 50)


def test_the_help_says_what_is_lost():
    told = " ".join(run_here("update", "--help").out.split())
    assert "--allow-repeated" in told
    assert "coverage falls below the level" in told.replace("│ │ ", "").replace(" │", "")


def test_a_model_without_a_record(model):
    """One that was fitted in Python: rows are recognised by their inputs."""
    old, new = replace(model, seen=None), make_table(20, seed=8)
    assert old.evaluate(make_table().to_batches()).n_calibrating == model.regressor.n_calib_
    updated, report = update(old, new.to_batches())
    assert (updated.seen, report.n_again) == (None, 0)
    with pytest.raises(lvd.InputError, match="already calibrate it"):
        update(updated, new.to_batches())


@pytest.mark.parametrize(
    "change", [{"train": "x"}, {"train": 1}, {"calibration": ""}, {"calibration": "AAAA"}]
)
def test_a_damaged_record(saved, model, tmp_path, change):
    content = model.seen.to_dict()
    assert SeenRows.from_dict(json.loads(json.dumps(content)), 1, 18).calibrated(model.seen.calibration).all()
    with pytest.raises(lvd.InputError, match="the record of the model's rows is damaged"):
        SeenRows.from_dict(content | change, 1, 18)


def test_missing_targets_are_no_rows():
    X, y = (
        np.array([[1.0], [1.0], [1.0], [1.0]]),
        np.array([[1.0, np.nan], [np.nan, 1.0], [-0.0, 1.0], [0.0, 2.0]]),
    )
    ids = row_ids(X, y)
    assert (ids == 0).tolist() == [[False, True], [True, False], [False, False], [False, False]]
    assert repeats_earlier(ids).tolist() == [False, False, True, True]
    seen = SeenRows(ids[:1], ids[1:2])
    assert seen.trained(ids).tolist() == [True, False, False, False]
    assert seen.calibrated(ids).tolist() == [False, True, True, False]
    np.testing.assert_array_equal(row_ids(X, y[:, 1], [1]), ids[:, 1:])


def test_copies_are_counted_and_are_no_evidence(saved, model, tmp_path):
    new = make_table(25, seed=9)
    once = model.evaluate(new.to_batches(), by="city")
    often = model.evaluate([new] * 60, by="city")
    assert (once.n_rows, once.n_distinct, often.n_rows, often.n_distinct) == (25, 25, 1500, 25)
    (first,), (second,) = once.targets[0].verdicts, often.targets[0].verdicts
    assert (first.kind, first.lower, first.upper) == (second.kind, second.lower, second.upper)
    (by_once,), (by_often,) = once.targets[0].by, often.targets[0].by
    assert [replace(one, count=0) for one in by_often.groups] == [
        replace(one, count=0) for one in by_once.groups
    ]
    write(pa.concat_tables([new] * 60), tmp_path / "often.csv")
    outcome = run_here("evaluate", saved[0], tmp_path / "often.csv")
    assert "1,475 of 1,500 rows repeat an earlier row: bands and tests count each row once" in outcome.out


def test_molecules_are_recognised_however_they_are_written():
    pytest.importorskip("chemprop")
    read = lvd.ChempropEstimator(cache_features=False, progress=False).check
    y = np.array([1.0, 2.0])
    np.testing.assert_array_equal(
        row_ids(read(["CCO", "c1ccccc1"]), y), row_ids(read(["OCC", "C1=CC=CC=C1"]), y)
    )
