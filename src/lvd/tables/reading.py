"""Tables from CSV (plain or gzipped) and Parquet files, whole or in batches. Rows are counted from 1."""

from __future__ import annotations

import os
import stat
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lvd._validation import InputError, check_positive
from lvd.tables import csv_text
from lvd.tables.column_values import guess_types, parse_text, plain_types
from lvd.tables.columns import for_each_column

SUFFIXES = (".csv", ".csv.gz", ".parquet")
BATCH_ROWS = 65_536


def read_table(
    path: str | os.PathLike[str], *, column_types: Mapping[str, pa.DataType] | None = None
) -> pa.Table:
    """The whole table.

    Parameters
    ----------
    path : path
        A file that ends in .csv, .csv.gz or .parquet.
    column_types : mapping of column name to float64, bool or string, optional
        For CSV, what each column is read as, from `TableEncoder.column_types`; those not named are read as
        text. By default the type of each column is found from all its values.
    """
    path = _check_path(path)
    if table_format(path) != "parquet":
        table = pa.Table.from_batches(iter_batches(path, column_types=column_types or {}))
        return guess_types(table) if column_types is None else table
    with _refusing(path), _open_parquet(path) as file:
        _check_names(path, file.schema_arrow.names)
        table = file.read()
        table.validate(full=True)
    if table.num_rows == 0:
        _refuse_no_rows(path)
    return plain_types(table)


def iter_batches(
    path: str | os.PathLike[str], *, column_types: Mapping[str, pa.DataType], batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """The table in batches of at most `batch_rows` rows; memory does not grow with the file.

    `column_types` is as for `read_table`, so that no column of a CSV file changes its type from one batch to
    the next. Parquet files have types of their own.
    """
    check_positive(batch_rows, "batch_rows", integer=True)
    path = _check_path(path)
    batches = (
        _parquet_batches(path, batch_rows)
        if table_format(path) == "parquet"
        else _csv_batches(path, column_types)
    )
    n_rows = 0
    with _refusing(path):
        for batch in batches:
            n_rows += batch.num_rows
            for start in range(0, batch.num_rows, batch_rows):
                yield batch.slice(start, batch_rows)
    if n_rows == 0:
        _refuse_no_rows(path)


def count_rows(path: str | os.PathLike[str]) -> int | None:
    """The number of rows where the file says it (Parquet), else None."""
    path = _check_path(path)
    if table_format(path) != "parquet":
        return None
    with _refusing(path), _open_parquet(path) as file:
        return int(file.metadata.num_rows)


def read_schema(path: str | os.PathLike[str]) -> pa.Schema:
    """The names and types of the columns; those of a CSV file are text."""
    path = _check_path(path)
    with _refusing(path):
        if table_format(path) != "parquet":
            return pa.schema([(name, pa.string()) for name in csv_text.read_header(path)])
        with _open_parquet(path) as file:
            return file.schema_arrow


def table_format(path: str | os.PathLike[str]) -> str:
    """``"csv"``, ``"csv.gz"`` or ``"parquet"``, by the file's suffix."""
    for suffix in SUFFIXES:
        if os.fspath(path).lower().endswith(suffix):
            return suffix[1:]
    raise InputError(f"{path} must end in one of {', '.join(SUFFIXES)}; lvd reads and writes no other tables")


def _csv_batches(path: Path, column_types: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    names = csv_text.read_header(path)
    _check_names(path, names)
    first_row = 1
    for batch in csv_text.iter_text(path, names):
        yield _with_types(batch, column_types, first_row)
        first_row += batch.num_rows


def _with_types(
    batch: pa.RecordBatch, column_types: Mapping[str, pa.DataType], first_row: int
) -> pa.RecordBatch:
    def typed(name: str) -> pa.Array:
        arrow_type = column_types.get(name, pa.string())
        text = batch.column(name)
        return text if arrow_type == pa.string() else parse_text(text, arrow_type, first_row=first_row)

    names = batch.schema.names
    return pa.RecordBatch.from_arrays(for_each_column(names, typed), names=names)


def _parquet_batches(path: Path, batch_rows: int) -> Iterator[pa.RecordBatch]:
    with _open_parquet(path) as file:
        _check_names(path, file.schema_arrow.names)
        for batch in file.iter_batches(batch_rows):
            batch.validate(full=True)
            yield plain_types(batch)


def _open_parquet(path: Path) -> pq.ParquetFile:
    # Buffered reads hold a few pages of each column; the default holds whole row groups, or the whole file.
    return pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True)


def _check_path(path: str | os.PathLike[str]) -> Path:
    path = Path(path)
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path} does not exist; check its name and folder") from None
    except (OSError, ValueError) as error:  # too long a name, a folder that may not be entered, a zero byte
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path} cannot be read: {reason}; check its name and folder") from None
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"{path} is a folder; give one file that ends in one of {', '.join(SUFFIXES)}")
    if not stat.S_ISREG(status.st_mode):  # to open a pipe may wait forever
        raise InputError(f"{path} is a pipe or a device; write the table to a file first")
    table_format(path)
    if status.st_size == 0:
        raise InputError(f"{path} is empty; give a table with a header and rows")
    return path


def _check_names(path: Path, names: list[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(f"{path} has several columns named {', '.join(map(repr, repeated))}; rename them")


def _refuse_no_rows(path: Path) -> None:
    raise InputError(f"{path} has a header but no rows; give at least one row")


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """What the system and the parsers say about a file they cannot read is told as an `InputError`."""
    try:
        yield
    except PermissionError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; ask for the right to read it") from None
    except (pa.ArrowException, OSError, EOFError, zlib.error, UnicodeError) as error:
        raise InputError(f"{path} cannot be read: {error}; is the file damaged or cut off?") from error
