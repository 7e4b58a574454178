"""Reading CSV and Parquet: what comes out, and the exact words for what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lvd._validation import InputError
from lvd.tables.column_values import guess_types, to_numbers
from lvd.tables.reading import count_rows, iter_batches, numbered, read_rows, read_table
from lvd.tables.table_encoder import TableEncoder

MIXED = b"a,b,flag,text\n1,1.5,true,x\n2,,false,NA\nNA,nan,,\n"


def written(folder: Path, content: bytes, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def refusal(path: Path) -> str:
    """What both ways of reading say; they must agree."""
    with pytest.raises(InputError) as whole:
        read_table(path)
    with pytest.raises(InputError) as batched:
        list(iter_batches(path))
    assert str(whole.value) == str(batched.value)
    return str(whole.value)


class TestWhole:
    def test_types_are_found_and_marks_are_missing_among_numbers_only(self, tmp_path):
        table = read_table(written(tmp_path, MIXED))
        assert table.to_pydict() == {
            "a": [1, 2, None],
            "b": [1.5, None, None],
            "flag": [True, False, None],
            "text": ["x", "NA", ""],
        }

    def test_gzip_and_byte_order_mark(self, tmp_path):
        plain = read_table(written(tmp_path, b"\xef\xbb\xbf" + MIXED))
        zipped = read_table(written(tmp_path, gzip.compress(MIXED), "table.CSV.GZ"))
        assert plain.equals(zipped)

    def test_quotes_commas_and_line_breaks_in_text(self, tmp_path):
        table = read_table(written(tmp_path, b'a,b\n1,"x, ""y""\nz"\n2,w\n'))
        assert table.to_pydict() == {"a": [1, 2], "b": ['x, "y"\nz', "w"]}

    def test_parquet(self, tmp_path):
        table = pa.table({"a": [1, None], "c": pa.array(["u", "v"]).dictionary_encode()})
        pq.write_table(table, tmp_path / "t.parquet")
        assert read_table(tmp_path / "t.parquet").equals(table)

    def test_as_text_the_cells_are_what_is_written(self, tmp_path):
        path = written(tmp_path, b"zip,size,date\n01234,1,2020-01-01\n")
        assert read_table(path, as_text=True).to_pydict() == {
            "zip": ["01234"],
            "size": ["1"],
            "date": ["2020-01-01"],
        }


class TestBatches:
    def test_batches_hold_the_whole_table(self, tmp_path):
        path = written(tmp_path, MIXED)
        batches = list(read_rows(path, batch_rows=2))
        assert [batch.num_rows for batch in batches] == [2, 1]
        assert guess_types(pa.concat_tables(batches)).equals(read_table(path))

    def test_types_stay_the_same_when_a_later_block_looks_different(self, tmp_path, monkeypatch):
        monkeypatch.setattr("lvd.tables.reading._BLOCK_BYTES", 64)
        rows = b"1,7,a\n" * 50 + b"2.5,x,3\n" * 50
        path = written(tmp_path, b"number,unused,text\n" + rows)
        batches = list(iter_batches(path))
        assert len(batches) > 5
        assert {batch.schema for batch in batches} == {
            pa.schema(dict.fromkeys(("number", "unused", "text"), pa.string()))
        }
        assert sum(to_numbers(batch["number"]).sum() for batch in batches) == 50 * 3.5

    def test_text_among_numbers_is_named_with_its_row_in_the_file(self, tmp_path, monkeypatch):
        monkeypatch.setattr("lvd.tables.reading._BLOCK_BYTES", 64)
        columns = {"a": [1.0, 2.0, 3.0], "b": [True, False, True], "y": [1.0, 2.0, 3.0]}
        encoder = TableEncoder.fit(pa.table(columns), target="y")
        path = written(tmp_path, b"a,b\n" + b"1,true\n" * 99 + b"n.d.,maybe\n" + b"1,false\n")
        parts = numbered(iter_batches(path))
        with pytest.raises(InputError) as error:
            [encoder.transform(part, numbers=numbers) for numbers, part in parts]
        assert str(error.value) == (
            "column 'a': must be a number, got 'n.d.' (1 such value, row 100); correct the table\n"
            "column 'b': must be true or false, got 'maybe' (1 such value, row 100); correct the table"
        )

    def test_spaces_around_numbers(self, tmp_path):
        table = read_table(written(tmp_path, b"a,b\n 1 , NA\n+2,\t-.5e1\n"))
        assert table.to_pydict() == {"a": [1.0, 2.0], "b": [None, -5.0]}

    def test_parquet(self, tmp_path):
        table = pa.table({"a": range(10), "b": ["x"] * 10})
        pq.write_table(table, tmp_path / "t.parquet", row_group_size=4)
        batches = list(read_rows(tmp_path / "t.parquet", batch_rows=3))
        assert [batch.num_rows for batch in batches] == [3, 3, 3, 1]
        assert pa.concat_tables(batches).equals(table)

    def test_parquet_is_not_held_in_memory(self, tmp_path, rng):
        table = pa.table({"a": rng.normal(size=2_000_000), "b": rng.normal(size=2_000_000)})
        pq.write_table(table, tmp_path / "t.parquet", row_group_size=table.num_rows, use_dictionary=False)
        before, peak = pa.total_allocated_bytes(), 0
        for _ in iter_batches(tmp_path / "t.parquet"):
            peak = max(peak, pa.total_allocated_bytes() - before)
        assert peak < table.nbytes / 3

    def test_batch_rows_must_be_positive(self, tmp_path):
        with pytest.raises(InputError, match="batch_rows must be a positive integer, got 0"):
            list(read_rows(written(tmp_path, MIXED), batch_rows=0))


def test_rows_are_counted_where_the_file_says_it(tmp_path):
    pq.write_table(pa.table({"a": [1, 2, 3]}), tmp_path / "t.parquet")
    assert count_rows(tmp_path / "t.parquet") == 3
    assert count_rows(written(tmp_path, MIXED)) is None


class TestRefused:
    def test_missing_file(self, tmp_path):
        path = tmp_path / "nothing.csv"
        assert refusal(path) == f"{path} does not exist; check its name and folder"

    def test_folder(self, tmp_path):
        expected = f"{tmp_path} is a folder; give one file that ends in one of .csv, .csv.gz, .parquet"
        assert refusal(tmp_path) == expected

    def test_unknown_suffix(self, tmp_path):
        path = written(tmp_path, MIXED, "table.xlsx")
        assert "table.xlsx must end in one of .csv, .csv.gz, .parquet" in refusal(path)

    @pytest.mark.parametrize("content", [b"", b"\n\n\r\n", gzip.compress(b"", mtime=0)])
    def test_empty_file(self, tmp_path, content):
        name = "table.csv.gz" if content.startswith(b"\x1f") else "table.csv"
        path = written(tmp_path, content, name)
        assert refusal(path) == f"{path} is empty; give a table with a header and rows"

    def test_header_only(self, tmp_path):
        path = written(tmp_path, b"a,b\n")
        assert refusal(path) == f"{path} has a header but no rows; give at least one row"

    def test_parquet_without_rows(self, tmp_path):
        pq.write_table(pa.table({"a": pa.array([], pa.float64())}), tmp_path / "t.parquet")
        assert "has a header but no rows" in refusal(tmp_path / "t.parquet")

    @pytest.mark.parametrize(("delimiter", "label"), [(";", "';'"), ("\t", "tabs"), ("|", "'|'")])
    def test_other_delimiter(self, tmp_path, delimiter, label):
        content = f"a{delimiter}b\n1,5{delimiter}2\n".encode()
        message = refusal(written(tmp_path, content))
        assert (
            f"has a single column, named {f'a{delimiter}b'!r}: it seems to be separated by {label};"
            in message
        )

    def test_latin_1(self, tmp_path):
        path = written(tmp_path, b"a,b\n1,x\n2,caf\xe9\n")
        assert refusal(path) == (
            f"{path}, line 3: byte 0xe9 is not UTF-8; "
            "convert the file first, for instance with `iconv -f WINDOWS-1252 -t UTF-8`"
        )

    def test_bad_byte_in_the_header_and_far_down(self, tmp_path):
        assert "line 1: byte 0xff" in refusal(written(tmp_path, b"a\xff,b\n1,2\n"))
        assert "line 50002: byte 0xc3" in refusal(
            written(tmp_path, b"a,b\n" + b"1,2\n" * 50_000 + b"3,\xc3\n")
        )

    def test_utf_16(self, tmp_path):
        assert "iconv -f UTF-16" in refusal(written(tmp_path, "a,b\n1,2\n".encode("utf-16")))

    def test_zero_byte(self, tmp_path):
        assert "line 2: a zero byte" in refusal(written(tmp_path, b"a,b\n1\0,2\n"))

    def test_repeated_names(self, tmp_path):
        path = written(tmp_path, b"a,b,a,b,c\n1,2,3,4,5\n")
        assert refusal(path) == f"{path} has several columns named 'a', 'b'; rename them"
        table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
        pq.write_table(table, tmp_path / "t.parquet")
        assert "has several columns named 'a'" in refusal(tmp_path / "t.parquet")

    def test_ragged_rows(self, tmp_path):
        path = written(tmp_path, b"a,b\n1,2\n\n3,4,5\n6\n")
        assert f"{path}: row 2 has 3 cells, the header 2 ('3,4,5'); correct it" in refusal(path)
        assert "row 1 has 1 cells" in refusal(written(tmp_path, b"a,b\n6\n"))

    def test_open_quote(self, tmp_path):
        message = refusal(written(tmp_path, b'a,b\n1,x\n2,"y\n3,z\n'))
        assert "has an odd number of double quotes (1): close the open one" in message

    def test_endless_quoted_text(self, tmp_path, monkeypatch):
        monkeypatch.setattr("lvd.tables.reading._BLOCK_BYTES", 1000)
        message = refusal(written(tmp_path, b'a,b\n1,"' + b"x,y\n" * 1000 + b'"\n'))
        assert "cannot be parsed" in message
        assert "is a double quote left open?" in message
        assert "no readable header" in refusal(written(tmp_path, b'"a,b\n' + b"x,y\n" * 50_000 + b'"\n1,2\n'))

    def test_damaged_gzip(self, tmp_path):
        whole = gzip.compress(MIXED * 100, mtime=0)
        assert "Not a gzipped file" in refusal(written(tmp_path, MIXED, "t.csv.gz"))
        assert "cannot be read" in refusal(written(tmp_path, whole[:-20], "t.csv.gz"))
        flipped = whole[:40] + bytes([whole[40] ^ 0xFF]) + whole[41:]
        assert "is the file damaged or cut off?" in refusal(written(tmp_path, flipped, "t.csv.gz"))

    def test_damaged_parquet(self, tmp_path):
        assert "t.parquet cannot be read" in refusal(written(tmp_path, MIXED, "t.parquet"))
        pq.write_table(pa.table({"a": range(1000)}), tmp_path / "t.parquet")
        content = (tmp_path / "t.parquet").read_bytes()
        assert "is the file damaged or cut off?" in refusal(written(tmp_path, content[:-100], "t.parquet"))
        with pytest.raises(InputError, match="cannot be read"):
            count_rows(tmp_path / "t.parquet")

    def test_parquet_with_text_that_is_none(self, tmp_path):
        path = tmp_path / "t.parquet"
        buffers = [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")]
        pq.write_table(pa.table({"s": pa.Array.from_buffers(pa.string(), 1, buffers)}), path)
        with pytest.raises(InputError, match="Invalid UTF8 sequence"):
            read_table(path)
        with pytest.raises(InputError, match="Invalid UTF8 sequence"):
            list(iter_batches(path))

    def test_no_right_to_read(self, tmp_path, monkeypatch):
        def forbidden(*args, **kwargs):
            raise PermissionError(13, "Permission denied")

        path = written(tmp_path, MIXED)
        monkeypatch.setattr(Path, "open", forbidden)
        assert refusal(path) == f"{path} cannot be read: Permission denied; check its permissions"
