"""Damaged tables: either an `InputError` or numbers, never anything else."""

from __future__ import annotations

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lvd._validation import InputError
from lvd.tables.reading import count_rows, read_rows, read_table
from lvd.tables.table_encoder import TableEncoder

N_ROWS = 40


def good_csv(rng: np.random.Generator) -> bytes:
    colours = rng.choice(["red", "blue", '"a, b"'], size=N_ROWS)
    rows = [
        f"{rng.normal():.6g},{rng.integers(100)},{colour},{rng.choice(['true', 'false'])},{rng.normal():.4f}"
        for colour in colours
    ]
    return "\n".join(["size,count,colour,new,y", *rows, ""]).encode()


def flip_bytes(rng, data):
    flipped = bytearray(data)
    for position in rng.integers(len(data), size=rng.integers(1, 4)):
        flipped[position] = rng.integers(256)
    return bytes(flipped)


def cut_tail(rng, data):
    return data[: rng.integers(len(data))]


def cut_middle(rng, data):
    first, last = sorted(rng.integers(len(data), size=2))
    return data[:first] + data[last:]


def change_delimiters(rng, data):
    return data.replace(b",", [b";", b"\t", b"|", b",,", b" "][rng.integers(5)], rng.integers(-1, 30))


def double_header(rng, data):
    lines = data.split(b"\n")
    lines.insert(rng.integers(len(lines)), lines[0])
    return b"\n".join(lines)


def insert_something(rng, data):
    pieces = [
        b"\0",
        b'"',
        b"\n",
        b"\r",
        b"\xff\xfe",
        b"inf",
        b"NA",
        b"1e999",
        b"9" * 30,
        b",",
        b"2020-01-01",
        b"\xe2",
    ]
    position = rng.integers(len(data))
    return data[:position] + pieces[rng.integers(len(pieces))] + data[position:]


MUTATIONS = [flip_bytes, cut_tail, cut_middle, change_delimiters, double_header, insert_something]


def use(path, encoder: TableEncoder) -> int:
    """Do all that can be done with a table; the number of refusals."""
    refusals = 0

    def fit() -> None:
        table = read_table(path)
        learned = TableEncoder.fit(table, target="y", impute="median")
        assert np.isfinite(learned.transform(table)).all()
        assert not np.isinf(learned.target(table)).any()

    def predict() -> None:
        for batch in read_rows(path, batch_rows=16):
            X = encoder.transform(batch)
            assert X.shape == (batch.num_rows, len(encoder.feature_names))
            assert np.isfinite(X).all()

    for action in (fit, predict, lambda: count_rows(path)):
        try:
            action()
        except InputError:
            refusals += 1
    return refusals


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_damaged_csv(tmp_path, mutation):
    rng = np.random.default_rng(MUTATIONS.index(mutation))
    path = tmp_path / "t.csv"
    path.write_bytes(good_csv(rng))
    encoder = TableEncoder.fit(read_table(path), target="y")
    assert use(path, encoder) == 0
    refusals = 0
    for _ in range(85):
        path.write_bytes(mutation(rng, good_csv(rng)))
        refusals += use(path, encoder)
    assert refusals > 10


@pytest.mark.parametrize("name", ["t.csv.gz", "t.parquet"])
def test_damaged_gzip_and_parquet(tmp_path, name):
    rng = np.random.default_rng(0)
    path = tmp_path / name
    (tmp_path / "t.csv").write_bytes(good_csv(rng))
    table = read_table(tmp_path / "t.csv")
    encoder = TableEncoder.fit(table, target="y")
    if name == "t.parquet":
        pq.write_table(table, path, write_page_checksum=True)
    else:
        path.write_bytes(gzip.compress(good_csv(rng)))
    good = path.read_bytes()
    assert use(path, encoder) == 0
    refusals = 0
    for _ in range(100):
        path.write_bytes([flip_bytes, cut_tail, cut_middle][rng.integers(3)](rng, good))
        refusals += use(path, encoder)
    assert refusals > 100


def test_any_description_of_columns_is_understood_or_refused():
    rng = np.random.default_rng(0)
    good = TableEncoder.fit(
        pa.table({"a": ["u", "v"], "x": [1.0, 2.0], "y": [1, 2]}), target="y", impute="median"
    )
    pieces = [None, 0, -1.5, "", "a", "number", [], ["u"], {}, [None], float("nan"), 10**400, True]
    for _ in range(300):
        content = good.to_dict()
        place = [content, content["columns"][0], content["columns"][1]][rng.integers(3)]
        place[list(place)[rng.integers(len(place))]] = pieces[rng.integers(len(pieces))]
        try:
            encoder = TableEncoder.from_dict(content)
        except InputError:
            continue
        assert TableEncoder.from_dict(encoder.to_dict()) == encoder
