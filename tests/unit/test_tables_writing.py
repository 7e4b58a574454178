"""Writing tables: what stands in the file, and that nothing is left when it goes wrong."""

from __future__ import annotations

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lvd._validation import InputError
from lvd.tables.reading import read_rows, read_table
from lvd.tables.writing import TableWriter

TABLE = pa.table({"id": ["007", "a,b", ""], "x": [1.0, None, 0.1], "day": pa.array([0, 1, 2], pa.date32())})
ADDED = {"y_pred": np.array([1.5, 2.0, 1 / 3]), "upper_90": np.array([np.inf, -np.inf, 1e300])}
CSV = (
    "id,x,day,y_pred,upper_90\n"
    '"007",1,1970-01-01,1.5,inf\n'
    '"a,b",,1970-01-02,2,-inf\n'
    '"",0.1,1970-01-03,0.3333333333333333,1e+300\n'
)


def test_csv(tmp_path):
    with TableWriter(tmp_path / "out.csv") as writer:
        writer.write(TABLE, ADDED)
    assert (tmp_path / "out.csv").read_text() == CSV


def test_no_quotes_where_none_are_needed(tmp_path):
    with TableWriter(tmp_path / "out.csv") as writer:
        writer.write(pa.table({"a, b": ["x", "y"], "c": ["", None]}))
    assert (tmp_path / "out.csv").read_text() == '"a, b",c\nx,\ny,\n'


@pytest.mark.parametrize("name", ["a\rb", "a\r\nb", "a\nb", 'a"b', "a,b", "\r"])
def test_odd_names_of_columns_are_read_again(tmp_path, name):
    table = pa.table({"x": ["u", "v"], name: ["c\rd", "e\r\n"]})
    with TableWriter(tmp_path / "out.csv") as writer:
        writer.write(table)
    assert read_table(tmp_path / "out.csv", as_text=True).equals(table)


def test_batches_have_one_header(tmp_path):
    with TableWriter(tmp_path / "out.csv") as writer:
        for i, batch in enumerate(TABLE.to_batches(max_chunksize=1)):
            writer.write(batch, {name: values[i : i + 1] for name, values in ADDED.items()})
    assert read_table(tmp_path / "out.csv").num_rows == 3


def test_gzip_is_the_same_bytes_every_time(tmp_path):
    for name in ("first.csv.gz", "second.csv.gz"):
        with TableWriter(tmp_path / name) as writer:
            writer.write(TABLE, ADDED)
    content = (tmp_path / "first.csv.gz").read_bytes()
    assert gzip.decompress(content).decode() == CSV
    assert content == (tmp_path / "second.csv.gz").read_bytes()


def test_parquet_keeps_types_and_infinities(tmp_path):
    with TableWriter(tmp_path / "out.parquet") as writer:
        for start in (0, 1):
            part = TABLE.slice(start, 1)
            writer.write(part, {name: values[start : start + 1] for name, values in ADDED.items()})
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.select(TABLE.column_names).equals(TABLE.slice(0, 2))
    assert table["upper_90"].to_pylist() == [np.inf, -np.inf]


def test_standard_output(capfdbinary):
    with TableWriter("-") as writer:
        writer.write(TABLE, ADDED)
    assert capfdbinary.readouterr().out.decode() == CSV
    print("standard output is still open")


def test_categorical_columns_of_several_batches(tmp_path):
    table = pa.table({"c": pa.array(["u", "v", "v", "w"]).dictionary_encode()})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=2)
    for name in ("out.parquet", "out.csv"):
        with TableWriter(tmp_path / name) as writer:
            for batch in read_rows(tmp_path / "in.parquet", batch_rows=2):
                writer.write(batch)
        assert read_table(tmp_path / name)["c"].to_pylist() == ["u", "v", "v", "w"]


def test_input_may_be_overwritten(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a\n1\n2\n")
    with TableWriter(path) as writer:
        for batch in read_rows(path, batch_rows=1):
            writer.write(batch, {"b": np.array([0.5])})
    assert path.read_text() == "a,b\n1,0.5\n2,0.5\n"


class TestNothingIsLeft:
    @pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.parquet"])
    @pytest.mark.parametrize("error", [KeyboardInterrupt, InputError, RuntimeError])
    def test_after_an_interruption(self, tmp_path, name, error):
        (tmp_path / name).write_bytes(b"as before")

        def write_and_fail() -> None:
            with TableWriter(tmp_path / name) as writer:
                writer.write(TABLE)
                raise error

        with pytest.raises(error):
            write_and_fail()
        assert [path.name for path in tmp_path.iterdir()] == [name]
        assert (tmp_path / name).read_bytes() == b"as before"

    @pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.parquet"])
    def test_when_the_disk_is_full(self, tmp_path, name, rng):
        resource = pytest.importorskip("resource")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        table = pa.table({"x": rng.normal(size=20_000)})
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
        try:
            with pytest.raises(InputError) as error, TableWriter(tmp_path / name) as writer:
                writer.write(table)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert str(error.value) == (
            f"cannot write {tmp_path / name}: File too large; "
            "the folder above it must exist, be writable, and have space"
        )
        assert not list(tmp_path.iterdir())

    def test_when_names_clash(self, tmp_path):
        with pytest.raises(InputError) as error, TableWriter(tmp_path / "out.csv") as writer:
            writer.write(TABLE, {"day": np.zeros(3), "y_pred": np.zeros(3), "x": np.zeros(3)})
        assert str(error.value) == (
            "the table already has column(s) 'day', 'x', which are to be added; rename them in the input"
        )
        assert not list(tmp_path.iterdir())

    def test_when_a_type_does_not_go_into_csv(self, tmp_path):
        with pytest.raises(InputError, match="Unsupported Type"), TableWriter(tmp_path / "out.csv") as writer:
            writer.write(pa.table({"a": [[1, 2]]}))
        assert not list(tmp_path.iterdir())


class TestRefusedAtOnce:
    def test_unknown_suffix(self, tmp_path):
        with pytest.raises(InputError, match=r"out\.xlsx must end in one of \.csv, \.csv\.gz, \.parquet"):
            TableWriter(tmp_path / "out.xlsx")

    def test_folder(self, tmp_path):
        (tmp_path / "out.csv").mkdir()
        with pytest.raises(InputError, match="it is a folder; give the name of a file"):
            TableWriter(tmp_path / "out.csv").__enter__()

    def test_missing_folder(self, tmp_path):
        with pytest.raises(
            InputError, match=r"cannot write .*: No such file or directory; the folder above it must exist"
        ):
            TableWriter(tmp_path / "nowhere" / "out.csv").__enter__()

    def test_no_right_to_write(self, tmp_path, monkeypatch):
        def forbidden(*args, **kwargs):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("lvd._files.Path.touch", forbidden)
        with pytest.raises(InputError, match=r"cannot write .*out\.csv: Permission denied"):
            TableWriter(tmp_path / "out.csv").__enter__()
