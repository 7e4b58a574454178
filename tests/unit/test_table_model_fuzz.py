"""500 damaged tables: refused, or answered as an independent reading of the same cells says."""

from __future__ import annotations

import csv

import numpy as np
import pyarrow as pa
import pytest

import lvd
from lvd.tables.reading import read_rows
from lvd.tables.table_model import TableModel

PIECES = [
    b"\0",
    b'"',
    b"\n",
    b"\r",
    b"\xff",
    b"inf",
    b"NA",
    b"1e999",
    b"9" * 30,
    b",",
    b"-",
    b".",
    b"e",
    b";",
    b" ",
]


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    x, kind = rng.normal(size=50), rng.choice(["u", "v, w"], size=50)
    table = pa.table({"x": x, "n": rng.integers(100, size=50), "kind": kind, "y": x + rng.normal(size=50)})
    regressor = lvd.LVDRegressor(
        lvd.NetRegressor(n_batches=5, random_state=0),
        preset="paper",
        kernel=lvd.MahalanobisKernel(2, max_iter=5, random_state=0),
        random_state=0,
    )
    return TableModel.fit(table, regressor, target="y")[0]


def good_csv(rng):
    rows = [
        f"{rng.normal():.4g},{rng.integers(100)},{['u', chr(34) + 'v, w' + chr(34)][i % 2]},a{i}"
        for i in range(8)
    ]
    return "\n".join(["x,n,kind,note", *rows, ""]).encode()


def damage(rng, data):
    """Change, cut or insert a few bytes."""
    first, length = rng.integers(len(data)), rng.integers(1, 9)
    match rng.integers(5):
        case 0:
            return data[:first] + bytes([rng.integers(256)]) + data[first + 1 :]
        case 1:
            return data[:first] + bytes([rng.integers(ord("0"), ord("9"))]) + data[first + 1 :]
        case 2:
            return data[:first] + data[first + length :]
        case 3:
            return data[:first]
        case _:
            return data[:first] + PIECES[rng.integers(len(PIECES))] + data[first:]


def read_independently(path):
    """Names, rows and features, read by the standard library."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        names, *rows = [row for row in csv.reader(file) if row]
    cells = {name: [row[j] for row in rows] for j, name in enumerate(names)}
    X = [
        [float(x.strip()), float(n.strip()), float(kind == "u"), float(kind == "v, w")]
        for x, n, kind in zip(cells["x"], cells["n"], cells["kind"], strict=True)
    ]
    return names, rows, np.array(X)


def test_500_damaged_tables(model, tmp_path):
    rng = np.random.default_rng(0)
    source, out = tmp_path / "t.csv", tmp_path / "out.csv"
    n_refused = 0
    for _ in range(500):
        source.write_bytes(damage(rng, good_csv(rng)))
        try:
            model.predict_to(out, read_rows(source), 0.5)
        except lvd.InputError:
            n_refused += 1
            assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]
            continue
        names, rows, X = read_independently(source)
        with out.open(newline="", encoding="utf-8") as file:
            written_names, *written = csv.reader(file)
        out.unlink()
        assert written_names[: len(names)] == names
        assert [row[: len(names)] for row in written] == rows
        (batch,) = read_rows(source)
        np.testing.assert_array_equal(model.encoder.transform(batch), X)
    assert 200 < n_refused < 400
