"""Tables from CSV (plain or gzipped) and Parquet files, whole or in batches. Rows are counted from 1.

CSV files are checked as text on their way to the parser, so that every error names its place.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
import stat
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import has_magic
from itertools import chain, takewhile
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from lvd._typing import Int, NDArray
from lvd._validation import InputError, Parameter, RowError, check_positive
from lvd.tables.column_values import as_table, guess_types
from lvd.tables.csv_quotes import QuoteCheck

Batches: TypeAlias = Iterable[pa.RecordBatch | pa.Table]

SUFFIXES = (".csv", ".csv.gz", ".parquet")
BATCH_ROWS = 65_536
_BLOCK_BYTES = 4 << 20
_BUFFER_BYTES = 1 << 16
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True)
class CsvBody:
    """A CSV file in memory, such as a request body; its name is used in messages."""

    content: bytes
    name: str = "the body"
    suffix: ClassVar[str] = ".csv"

    def open(self, mode: Literal["rb"]) -> io.BytesIO:
        """Open it as a path would be opened."""
        return io.BytesIO(self.content)

    def __str__(self) -> str:
        return self.name


def read_table(
    path: str | os.PathLike[str], *, as_text: bool = False, unread: Iterable[str] = ()
) -> pa.Table:
    """Read a whole .csv, .csv.gz or .parquet file.

    The type of each CSV column is inferred from all its values; with `as_text` cells stay texts. Columns in
    `unread` are filled with nulls, which take no memory.
    """
    table = pa.concat_tables(iter_batches(path, unread=unread))
    return table if as_text or table_format(path) == "parquet" else guess_types(table)


def read_places(path: str | os.PathLike[str], places: Int[NDArray, "k"]) -> pa.Table:
    """Read the rows at these positions, counted from 0, in the given order and with all columns."""
    order, found = np.argsort(places, kind="stable"), []
    ordered = places[order]
    for numbers, batch in numbered(iter_batches(path)):
        first, end = np.searchsorted(ordered, [numbers[0] - 1, numbers[-1]])
        found.append(batch.take(pa.array(ordered[first:end] - (numbers[0] - 1))))
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return pa.concat_tables(found).take(pa.array(back))


def iter_batches(path: str | os.PathLike[str], *, unread: Iterable[str] = ()) -> Iterator[pa.Table]:
    """Read a table in batches, in memory that does not grow with the file.

    Cells of a CSV file are texts, so that no column changes type between batches. Columns in `unread` are filled
    with nulls.
    """
    names, path, n_rows = read_schema(path).names, Path(path), 0
    _check_names_differ(names, path)
    left_out, of_parquet = set(unread), table_format(path) == "parquet"
    wanted = [name for name in names if name not in left_out]
    with _told_as_refusal(path):
        for batch in _parquet_batches(path, wanted) if of_parquet else iter_text(path, names):
            n_rows += batch.num_rows
            yield _with_nulls(as_table(batch), names, wanted)
    if n_rows == 0:
        raise InputError(f"{path} has a header but no rows; give at least one row")


def _with_nulls(batch: pa.Table, names: Sequence[str], wanted: Sequence[str]) -> pa.Table:
    """The columns of a batch, with nulls in place of those that are not wanted."""
    if len(wanted) == len(names):
        return batch
    nothing = pa.nulls(batch.num_rows)
    columns = {name: batch[name] if name in wanted else nothing for name in names}
    return pa.Table.from_pydict(columns, metadata=batch.schema.metadata)


def read_body(body: CsvBody) -> pa.Table:
    """Read a CSV file in memory; its cells stay texts."""
    with _told_as_refusal(body):
        names = read_header(body)
        _check_names_differ(names, body)
        schema = pa.schema([(name, pa.string()) for name in names])
        table = pa.Table.from_batches(iter_text(body, names), schema)
    if not table.num_rows:
        raise InputError(f"{body} has a header but no rows; give at least one row")
    return table


def _check_names_differ(names: Sequence[str], path: Path | CsvBody) -> None:
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise InputError(f"{path} has several columns named {', '.join(map(repr, repeated))}; rename them")


def count_rows(path: str | os.PathLike[str]) -> int | None:
    """The number of rows if the file states it (Parquet), else None."""
    path = _check_path(path)
    if table_format(path) != "parquet":
        return None
    with _told_as_refusal(path), _open_parquet(path) as file:
        return int(file.metadata.num_rows)


def read_schema(path: str | os.PathLike[str]) -> pa.Schema:
    """The names and types of the columns; those of a CSV file are text."""
    path = _check_path(path)
    with _told_as_refusal(path):
        if table_format(path) != "parquet":
            return pa.schema([(name, pa.string()) for name in read_header(path)])
        with _open_parquet(path) as file:
            return file.schema_arrow


def table_format(path: str | os.PathLike[str]) -> str:
    """``"csv"``, ``"csv.gz"`` or ``"parquet"``, from the file's suffix."""
    for suffix in SUFFIXES:
        if os.fspath(path).lower().endswith(suffix):
            return suffix[1:]
    raise InputError(
        f"{path} must end in one of {', '.join(SUFFIXES)}; lvd reads and writes no other formats"
    )


def read_rows(*paths: str | os.PathLike[str], batch_rows: int = BATCH_ROWS) -> Iterator[pa.Table]:
    """Read one file, or several as one table, in batches, for the methods of `TableModel`.

    Cells of a CSV file stay texts, so that they are written back unchanged.
    """
    if len(paths) > 1:
        check_same_columns([Path(path) for path in paths])
    return regroup(chain.from_iterable(map(iter_batches, paths)), batch_rows)


def numbered(batches: Batches) -> Iterator[tuple[Int[NDArray, "n"], pa.Table]]:
    """Each batch as a table, with the numbers of its rows, counted from 1."""
    n_rows = 0
    for batch in batches:
        yield np.arange(n_rows + 1, n_rows + 1 + batch.num_rows), as_table(batch)
        n_rows += batch.num_rows


@contextmanager
def counting_in_table(numbers: Int[NDArray, "n"]) -> Iterator[None]:
    """Make errors about some of these rows name them by their numbers in the table."""
    try:
        yield
    except RowError as error:
        raise error.in_table(numbers[list(error.rows)].tolist()) from None


def find_row(batches: Batches, row: int) -> pa.Table:
    """The single row with number `row`."""
    check_positive(row, "row", integer=True)
    n_rows = 0
    for batch in batches:
        if row <= n_rows + batch.num_rows:
            return as_table(batch.slice(row - n_rows - 1, 1))
        n_rows += batch.num_rows
    raise InputError(
        Parameter("row"), f" must lie between 1 and {n_rows}, the number of rows of the table, got {row}"
    )


def find_files(names: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The files with these names: matches of ``data/*.parquet`` sorted by name, others in the given order."""
    paths: list[Path] = []
    for name in names:
        path = Path(name)
        if os.path.exists(path) or not has_magic(path.name):  # noqa: PTH110  (Path.exists raises for odd names)
            paths.append(path)
        elif found := sorted(path.parent.glob(path.name)):
            paths += found
        else:
            raise InputError(f"no file matches {os.fspath(name)!r}; check the folder and the pattern")
    return paths


def check_same_columns(paths: Sequence[Path]) -> None:
    """Raise unless all files have the columns of the first, with the same types in the same order."""
    first = read_schema(paths[0])
    for path in paths[1:]:
        schema = read_schema(path)
        if not schema.equals(first):
            ours, theirs = ({f"{field.name!r} ({field.type})": None for field in s} for s in (schema, first))
            more, fewer = [c for c in ours if c not in theirs], [c for c in theirs if c not in ours]
            found = [f"{label} {', '.join(c)}" for label, c in (("it has", more), ("it lacks", fewer)) if c]
            raise InputError(
                f"{path} does not have the columns of {paths[0]}: {'; '.join(found) or 'their order differs'}; "
                "files that are read as one table must have the same columns with the same types"
            )


def regroup(tables: Iterable[pa.Table], n_rows: int) -> Iterator[pa.Table]:
    """The same rows in tables of exactly `n_rows`, except the last, so that results do not depend on the files.

    A matrix product rounds a row differently in batches of different sizes.
    """
    check_positive(n_rows, "batch_rows", integer=True)
    waiting: list[pa.Table] = []
    missing = n_rows
    for table in tables:
        rest = table
        while rest.num_rows >= missing:
            yield pa.concat_tables([*waiting, rest.slice(0, missing)]).combine_chunks()
            rest, waiting, missing = rest.slice(missing), [], n_rows
        if rest.num_rows:
            waiting.append(rest)
            missing -= rest.num_rows
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def read_header(path: Path | CsvBody) -> list[str]:
    """The column names; raises for an empty file or a delimiter other than the comma."""
    with io.TextIOWrapper(_open_checked(path), encoding="utf-8-sig", newline="") as text:
        try:
            names = next((row for row in csv.reader(text) if row), None)
        except csv.Error as error:
            raise InputError(
                f"{path} has no readable header: {error}; is a double quote left open?"
            ) from None
    if names is None:
        raise InputError(f"{path} is empty; give a table with a header and rows")
    if len(names) == 1:
        for delimiter, label in ((";", "';'"), ("\t", "tabs"), ("|", "'|'")):
            if delimiter in names[0]:
                raise InputError(
                    f"{path} has a single column, named {names[0]!r}: it seems to be separated by {label}; "
                    "save it with commas between columns (and points in decimal numbers)"
                )
    return names


def iter_text(path: Path | CsvBody, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The table in blocks, with every column as text.

    An empty line is no row, except in a table of one column, where it is a missing cell.
    """
    alone = len(names) == 1
    ragged: list[pa_csv.InvalidRow] = []

    def note(row: pa_csv.InvalidRow) -> str:
        ragged.append(row)
        return "error"

    # The parser only reports the place of a ragged row when single-threaded, and only to a handler.
    read_options = pa_csv.ReadOptions(
        use_threads=False, block_size=_BLOCK_BYTES, skip_rows=_count_lines_above(path) if alone else 0
    )
    parse_options = pa_csv.ParseOptions(
        newlines_in_values=True, invalid_row_handler=note, ignore_empty_lines=not alone
    )
    convert = pa_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
    try:
        with (
            _open_checked(path, len(names)) as source,
            # Close it here: an Arrow thread that still holds the source at interpreter exit would abort the
            # process.
            pa_csv.open_csv(source, read_options, parse_options, convert) as reader,
        ):
            yield from reader
    except pa.ArrowInvalid as error:
        if "Empty CSV file" in str(error):  # a header without a line break does not even count as empty
            raise InputError(f"{path} has a header but no rows; give at least one row") from None
        if not ragged:
            raise InputError(f"{path} cannot be parsed: {error}; is a double quote left open?") from None
        row = ragged[0]
        raise InputError(
            f"{path}: row {row.number - 1} has {row.actual_columns} cells, the header {row.expected_columns} "
            f"({row.text[:60]!r}); correct it, and put text that contains a comma in double quotes"
        ) from None


def _count_lines_above(path: Path | CsvBody) -> int:
    """The number of empty lines above the header."""
    with io.TextIOWrapper(_open_checked(path), encoding="utf-8-sig") as text:
        return sum(1 for _ in takewhile(lambda line: line == "\n", text))


def _open_checked(path: Path | CsvBody, n_columns: int | None = None) -> io.BufferedReader:
    # Open before the object exists: Python 3.13 reports half-constructed objects that cannot be closed.
    return io.BufferedReader(_CheckedBytes(path, path.open("rb"), n_columns), buffer_size=_BUFFER_BYTES)


class _CheckedBytes(io.RawIOBase):
    """The bytes of a plain or gzipped CSV file, checked to be UTF-8 without quotes that swallow rows."""

    def __init__(self, path: Path | CsvBody, file: Any, n_columns: int | None) -> None:
        self._path, self._file = path, file
        self._bytes = gzip.GzipFile(fileobj=self._file) if path.suffix.lower() == ".gz" else self._file
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._n_columns = n_columns
        self._n_lines = 0
        self._n_quotes = 0
        self._rest, self._line = b"", 1

    def readable(self) -> bool:
        """True: bytes can be read, but not sought."""
        return True

    def close(self) -> None:
        """Also close the underlying file."""
        self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        """Pass on the next bytes after checking them."""
        data = self._bytes.read(len(buffer))
        self._check(data)
        buffer[: len(data)] = data
        return len(data)

    def _check(self, data: bytes) -> None:
        try:
            self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            line = 1 + self._n_lines + error.object.count(b"\n", 0, error.start)
            encoding = "UTF-16" if error.object.startswith(_UTF16_MARKS) and line == 1 else "WINDOWS-1252"
            raise InputError(
                f"{self._path}, line {line}: byte 0x{error.object[error.start]:02x} is not UTF-8; "
                f"convert the file first, for instance with `iconv -f {encoding} -t UTF-8`"
            ) from None
        if b"\0" in data:
            line = 1 + self._n_lines + data.count(b"\n", 0, data.index(b"\0"))
            raise InputError(
                f"{self._path}, line {line}: a zero byte; this is not a text file, or a damaged one"
            )
        self._n_lines += data.count(b"\n")
        self._n_quotes += data.count(b'"')
        self._check_rows(self._rest + data, final=not data)
        if not data and self._n_quotes % 2:
            # The parser would read all rows after the open quote as one long text.
            raise InputError(
                f"{self._path} has an odd number of double quotes ({self._n_quotes}): close the open one, "
                'and double a quote that belongs to a text ("5"" pipe")'
            )

    def _check_rows(self, text: bytes, *, final: bool) -> None:
        """Check the complete rows; the rest waits for the next bytes."""
        start = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        if b'"' in text:
            start = QuoteCheck(self._path, self._n_columns, self._line).check(text, final=final)
        self._line += text.count(b"\n", 0, start)
        self._rest = text[start:]


def _parquet_batches(path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with _open_parquet(path) as file:
        every = len(columns) == len(file.schema_arrow)
        for batch in file.iter_batches(BATCH_ROWS, columns=None if every else list(columns)):
            batch.validate(full=True)
            yield batch


def _open_parquet(path: Path) -> pq.ParquetFile:
    # Buffered reads hold a few pages of each column; the default holds whole row groups, or the whole file.
    return pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True)


def _check_path(path: str | os.PathLike[str]) -> Path:
    path = Path(path)
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path} does not exist; check its name and folder") from None
    except (OSError, ValueError) as error:  # name too long, folder not accessible, or a zero byte
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path} cannot be read: {reason}; check its name and folder") from None
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"{path} is a folder; give one file that ends in one of {', '.join(SUFFIXES)}")
    if not stat.S_ISREG(status.st_mode):  # opening a pipe may block forever
        raise InputError(f"{path} is a pipe or a device; write the table to a file first")
    table_format(path)
    if status.st_size == 0:
        raise InputError(f"{path} is empty; give a table with a header and rows")
    return path


@contextmanager
def _told_as_refusal(path: Path | CsvBody) -> Iterator[None]:
    """Turn errors of the system and the parsers about unreadable files into an `InputError`."""
    try:
        yield
    except PermissionError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; check its permissions") from None
    except (pa.ArrowException, OSError, EOFError, zlib.error, UnicodeError) as error:
        raise InputError(f"{path} cannot be read: {error}; is the file damaged or cut off?") from error
