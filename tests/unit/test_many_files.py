"""Several files as one table."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lvd._validation import InputError
from lvd.tables.distributed import ROW, read_numbered
from lvd.tables.reading import check_same_columns, find_files, read_rows, regroup


def batches(*sizes):
    ends = np.cumsum(sizes).tolist()
    return [pa.table({"x": range(end - n, end)}) for n, end in zip(sizes, ends, strict=True)]


@pytest.mark.parametrize("sizes", [(1,), (5,), (3, 2), (4, 1, 9), (12,), (2, 2, 2, 2), (1, 20, 1)])
def test_regrouped_batches_are_full_but_for_the_last(sizes):
    found = list(regroup(batches(*sizes), 5))
    assert [batch.num_rows for batch in found[:-1]] == [5] * (len(found) - 1)
    assert 1 <= found[-1].num_rows <= 5
    assert [x for batch in found for x in batch["x"].to_pylist()] == list(range(sum(sizes)))


def test_dictionaries_of_different_files_are_joined():
    parts = [pa.table({"c": pa.array(values).dictionary_encode()}) for values in (["a", "b"], ["c", "a"])]
    (joined,) = regroup(parts, 10)
    assert joined["c"].to_pylist() == ["a", "b", "c", "a"]


def test_no_rows():
    assert list(regroup([], 5)) == []


class TestFindFiles:
    @pytest.fixture(autouse=True)
    def here(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        for name in ("b.csv", "a.csv", "a[1].csv"):
            (tmp_path / name).write_text("x\n1\n")

    def test_a_pattern_is_sorted_and_names_keep_their_order(self):
        assert [str(path) for path in find_files(["b.csv", "?.csv"])] == ["b.csv", "a.csv", "b.csv"]

    def test_a_name_that_looks_like_a_pattern(self):
        assert [str(path) for path in find_files(["a[1].csv"])] == ["a[1].csv"]

    def test_a_missing_name_is_left_to_the_reader(self):
        assert [str(path) for path in find_files(["c.csv"])] == ["c.csv"]

    def test_nothing_matches(self):
        with pytest.raises(InputError, match=re.escape("no file matches 'z*.csv'; check the folder")):
            find_files(["z*.csv"])


class TestColumnsOfSeveralFiles:
    def written(self, folder, name, **columns):
        pq.write_table(pa.table(columns), folder / name)
        return folder / name

    def test_the_same(self, tmp_path):
        paths = [self.written(tmp_path, name, x=[1], y=["a"]) for name in ("1.parquet", "2.parquet")]
        check_same_columns(paths)
        assert [batch["x"].to_pylist() for batch in read_rows(*paths)] == [[1, 1]]

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ({"x": [1.5], "y": ["a"]}, "it has 'x' (double); it lacks 'x' (int64)"),
            ({"x": [1]}, "it lacks 'y' (string)"),
            ({"x": [1], "y": ["a"], "z": [0]}, "it has 'z' (int64)"),
            ({"y": ["a"], "x": [1]}, "their order differs"),
        ],
        ids=["type", "fewer", "more", "order"],
    )
    def test_others_are_refused(self, tmp_path, columns, message):
        first = self.written(tmp_path, "1.parquet", x=[1], y=["a"])
        second = self.written(tmp_path, "2.parquet", **columns)
        with pytest.raises(
            InputError, match=re.escape(f"{second} does not have the columns of {first}: {message}")
        ):
            read_rows(first, second)


def test_rows_carry_their_numbers(tmp_path):
    (tmp_path / "t.csv").write_text("x\n7\n8\n")
    files = pa.table({"path": [str(tmp_path / "t.csv")], "first_row": [41]})
    (table,) = read_numbered(files)
    assert table.to_pydict() == {"x": ["7", "8"], ROW: [41, 42]}


def test_the_message_of_a_refusal_is_noted(tmp_path):
    files = pa.table({"path": [str(tmp_path / "none.csv")], "first_row": [1]})
    with pytest.raises(InputError) as refusal:
        list(read_numbered(files))
    assert refusal.value.__notes__ == [str(refusal.value)]
