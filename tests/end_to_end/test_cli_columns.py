"""A fit reads the columns of a Parquet file that it uses, and makes features of the rows that it works on."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from lvd.tables.reading import read_places, read_table
from lvd.tables.table_encoder import TableEncoder


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng = np.random.default_rng(5)
    x, z = rng.uniform(size=(2, 200))
    columns = {
        "note": pa.array([f"note {number}" for number in range(200)]),
        "x": x,
        "kind": pa.array(rng.choice(["a", "b", "c"], 200)).dictionary_encode(),
        "y": x + 0.1 * rng.normal(size=200),
        "z": z,
        "shop": pa.array(rng.choice(["north", "south"], 200)),
    }
    path = tmp_path_factory.mktemp("table") / "table.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=30)
    return path


@pytest.fixture
def asked(monkeypatch):
    """The columns that the file was asked for, each time that it was read."""
    found, iter_batches = [], pq.ParquetFile.iter_batches

    def note(file, *given, columns=None, **named):
        found.append(columns)
        return iter_batches(file, *given, columns=columns, **named)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", note)
    return found


WORDS = ("--target", "y", "--model", "trees", "--preset", "paper", "--seed", 3)


def test_columns_that_are_dropped_are_not_read(lvd_here, table, asked, tmp_path):
    words = ("fit", table, *WORDS, "--drop", "note", "--drop", "z", "--out", tmp_path / "model")
    outcome = lvd_here(*words, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    assert asked == [["x", "kind", "y", "shop"]]
    found = json.loads(outcome.out)
    assert (found["inputs"], found["left_out"]) == (["x", "kind", "shop"], ["note", "z"])
    assert "6 columns" in (tmp_path / "model" / "card.md").read_text()


def test_the_model_is_that_of_all_columns(lvd_here, table, tmp_path):
    """A report has all columns read."""
    words = ("fit", table, *WORDS, "--drop", "note")
    lvd_here(*words, "--out", tmp_path / "few")
    lvd_here(*words, "--out", tmp_path / "all", "--report", tmp_path / "page.html")
    tensors = [tmp_path / name / "tensors.safetensors" for name in ("few", "all")]
    assert tensors[0].read_bytes() == tensors[1].read_bytes()
    assert "note 1" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(("way", "column"), [("--groups", "shop"), ("--split", "group:shop")])
def test_a_dropped_column_that_is_needed_is_read(lvd_here, table, asked, tmp_path, way, column):
    outcome = lvd_here("fit", table, *WORDS, "--drop", "shop", way, column, "--out", tmp_path / "model")
    if way == "--groups":
        assert outcome.code == 0
    assert asked[0] is None


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_the_test_rows_have_all_columns(lvd_here, table, tmp_path, suffix):
    words = ("fit", table, *WORDS, "--out", tmp_path / "model", "--force", "--test-out")
    for name, dropped in (("some", ("--drop", "note", "--drop", "z")), ("all", ())):
        outcome = lvd_here(*words, tmp_path / f"{name}.{suffix}", *dropped)
        assert outcome.code == 0
    read = pq.read_table if suffix == "parquet" else pa_csv.read_csv
    assert read(tmp_path / f"some.{suffix}").equals(read(tmp_path / f"all.{suffix}"))


def test_an_unknown_column_is_refused_as_ever(lvd_here, table, tmp_path):
    outcome = lvd_here("fit", table, *WORDS, "--drop", "notes", "--out", tmp_path / "model")
    assert outcome == (2, "", "error: the table has no column 'notes'; did you mean 'note'?\n")


def test_rows_at_places_are_those_of_the_table(table):
    places = np.array([199, 0, 31, 30, 29, 0])
    assert read_places(table, places).to_pylist() == read_table(table).take(pa.array(places)).to_pylist()


def test_the_whole_table_never_becomes_features(lvd_here, table, tmp_path, monkeypatch):
    made, transform = [], TableEncoder.transform

    def note(encoder, *given, **named):
        X = transform(encoder, *given, **named)
        made.append(X)
        return X

    monkeypatch.setattr(TableEncoder, "transform", note)
    assert lvd_here("fit", table, *WORDS, "--drop", "note", "--out", tmp_path / "model").code == 0
    assert [len(X) for X in made] == [120, 40, 40]


def test_features_of_some_rows_are_those_of_all(table):
    whole = read_table(table)
    encoder = TableEncoder.fit(whole, target="y", drop=["note"])
    rows = np.array([5, 3, 199])
    np.testing.assert_array_equal(encoder.transform(whole, rows=rows), encoder.transform(whole)[rows])
