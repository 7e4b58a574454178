"""Tables as text cells: reading, writing, and a checksum that looks at the numbers, not at their spelling."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from lvd._validation import InputError
from lvd.data.cells import checksum, from_csv, from_rows, numbers, read_file, write_file

CELLS = {"a": ["1", "2.50"], "smiles": ["C,C", "[H]O"]}


def test_repeated_names_are_numbered_and_empty_lines_skipped() -> None:
    assert from_csv("E1,f1,E1,E1\n1,2,3,4\n\n") == {"E1": ["1"], "f1": ["2"], "E1.1": ["3"], "E1.2": ["4"]}


@pytest.mark.parametrize("text", ["", 'a,b\n"1,2\n'])
def test_text_that_is_no_table_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not a CSV table with a header line"):
        from_csv(text)


def test_ragged_rows_are_refused() -> None:
    with pytest.raises(InputError, match="row 2 has 3 cells, but there are 2 columns"):
        from_rows(["a", "b"], [["1", "2"], ["1", "2", "3"]])


def test_a_written_file_reads_the_same_and_has_the_same_bytes(tmp_path: Path) -> None:
    write_file(tmp_path / "one.csv.gz", CELLS)
    write_file(tmp_path / "two.csv.gz", CELLS)
    assert read_file(tmp_path / "one.csv.gz") == CELLS
    assert (tmp_path / "one.csv.gz").read_bytes() == (tmp_path / "two.csv.gz").read_bytes()
    (tmp_path / "plain.csv").write_bytes(gzip.decompress((tmp_path / "one.csv.gz").read_bytes()))
    assert read_file(tmp_path / "plain.csv") == CELLS
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.csv.gz", "plain.csv", "two.csv.gz"]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("t.csv.gz", b"a,b\n1,2\n"),
        ("t.csv.gz", gzip.compress(b"a,b\n1,2\n", mtime=0)[:-9]),
        ("t.csv.gz", gzip.compress(b"a,b\n1,2\n", mtime=0)[:12] + b"\xff" * 20),
        ("t.csv", b"a\n\xff\n"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match="not readable"):
        read_file(tmp_path / name)


def test_numbers() -> None:
    np.testing.assert_array_equal(numbers(CELLS, "a"), [1.0, 2.5])
    with pytest.raises(InputError, match="column smiles must hold numbers only"):
        numbers(CELLS, "smiles")
    with pytest.raises(InputError, match="column a must be finite, but row 2 is not"):
        numbers({"a": ["1", "nan"]}, "a")


def test_checksum_is_of_the_meaning() -> None:
    one = checksum({"a": ["0.0", "61.887365759999994"], "s": ["x", "y"]}, numeric=["a"], text=["s"])
    assert one == checksum({"s": ["x", "y"], "a": ["-0", "61.88736576"]}, numeric=["a"], text=["s"])


@pytest.mark.parametrize(
    "other",
    [
        {"a": ["1", "2.5000001"], "s": ["x", "y"]},
        {"a": ["2.5", "1"], "s": ["x", "y"]},
        {"a": ["1", "2.5"], "s": ["x", "z"]},
    ],
)
def test_checksum_sees_a_changed_cell(other: dict[str, list[str]]) -> None:
    one = {"a": ["1", "2.5"], "s": ["x", "y"]}
    assert checksum(one, numeric=["a"], text=["s"]) != checksum(other, numeric=["a"], text=["s"])


def test_checksum_sees_a_renamed_column() -> None:
    assert checksum({"a": ["1"]}, numeric=["a"]) != checksum({"b": ["1"]}, numeric=["b"])
