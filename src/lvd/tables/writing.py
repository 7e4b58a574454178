"""Writing tables to CSV and Parquet files, in batches and atomically."""

from __future__ import annotations

import gzip
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from lvd._files import atomic_path, refusing
from lvd._progress import STANDARD_OUTPUT, WRITTEN
from lvd._typing import Float, NDArray
from lvd._validation import InputError
from lvd.tables.column_values import as_table
from lvd.tables.reading import table_format
from lvd.tables.table_encoder import Unseen

QUOTE, NEEDS_QUOTES = '"', re.compile(r'[",\r\n]')


@dataclass(frozen=True)
class PredictReport:
    """How many rows were written, and the share of finite intervals for each pair of columns.

    `n_skipped` rows cannot be read by the model: they have no prediction and do not count among the intervals.
    `n_unknown` rows resemble no training row or hold a level in `unseen`.
    """

    n_rows: int
    n_skipped: int
    n_unknown: int
    unseen: Unseen
    finite_fraction: dict[str, float]


class TableWriter:
    """Writes batches of a table with added columns; a context manager.

    The file appears under its name when the block succeeds. If it fails or is interrupted, nothing is left, and
    an existing file is unchanged. `BrokenPipeError` (standard output is closed) is left to the caller.

    Parameters
    ----------
    path : path
        A file that ends in .csv, .csv.gz or .parquet, or ``"-"`` for CSV on standard output.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        self._format = "csv" if path == "-" else table_format(path)
        self._files = ExitStack()
        self._sink: Any = None
        self._put: Callable[[pa.Table], Any] | None = None

    def __enter__(self) -> TableWriter:
        with self._refused_if_unwritable(), ExitStack() as files:
            self._sink = self._open(files)
            self._files = files.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._refused_if_unwritable():
            self._files.__exit__(kind, error, trace)

    def write(self, rows: pa.RecordBatch | pa.Table, added: Mapping[str, NDArray] | None = None) -> None:
        """Write rows: their own columns, then those `added`, which must have other names.

        In CSV, infinite numbers are written as inf and -inf, missing values, including NaN among those added,
        as empty cells.
        """
        table = with_columns(rows, added or {})
        with self._refused_if_unwritable():
            if self._put is None:
                self._put = self._begin(table.schema)
            if self.path == "-":
                WRITTEN.append(STANDARD_OUTPUT)
            self._put(table)

    def _open(self, files: ExitStack) -> Any:
        if self.path == "-":
            files.callback(sys.stdout.buffer.flush)
            return sys.stdout.buffer
        if Path(self.path).is_dir():
            raise InputError(f"cannot write {self.path}: it is a folder; give the name of a file")
        part = files.enter_context(atomic_path(self.path))
        sink = files.enter_context(part.open("wb"))
        if self._format == "csv.gz":
            # No name and time inside: the same table gives the same bytes.
            return files.enter_context(gzip.GzipFile("", "wb", compresslevel=6, fileobj=sink, mtime=0))
        return sink

    def _begin(self, schema: pa.Schema) -> Callable[[pa.Table], Any]:
        """Open the writer for rows with these columns, which are known only now."""
        if self._format == "parquet":
            writer = pq.ParquetWriter(self._sink, schema, write_page_checksum=True)
            return self._files.enter_context(writer).write_table
        self._sink.write(_csv_header(schema.names))
        return lambda table: self._sink.write(_csv_rows(table))

    @contextmanager
    def _refused_if_unwritable(self) -> Iterator[None]:
        """Turn errors while writing into an `InputError`."""
        try:
            with refusing(self.path):
                yield
        except pa.ArrowException as error:
            raise InputError(f"cannot write {self.path}: {error}; remove such a column") from error


def with_columns(rows: pa.RecordBatch | pa.Table, added: Mapping[str, NDArray]) -> pa.Table:
    """The columns of the rows, then those `added`, which must have other names; NaN in these becomes null."""
    table = as_table(rows)
    if clashes := [name for name in added if name in table.column_names]:
        raise InputError(
            f"the table already has column(s) {', '.join(map(repr, clashes))}, which are to be added; "
            "rename them in the input"
        )
    for name, values in added.items():
        kind = {"known": pa.bool_(), "nearest": pa.string()}.get(name)  # as a whole batch may be missing
        table = table.append_column(name, pa.array(values, kind, from_pandas=True))
    return table


def write_predictions(
    out: str | os.PathLike[str],
    predicted: Iterable[tuple[pa.Table, Mapping[str, NDArray]]],
    *,
    unseen: Callable[[pa.Table], Unseen],
    on_rows: Callable[[int], None] | None = None,
) -> PredictReport:
    """Write rows and the columns predicted for them to the file `out` (see `TableWriter`), part by part.

    A row without a prediction has NaN there, and empty cells in the file. `unseen` finds the rows of groups and
    levels unseen in fit.
    """
    n_rows, n_skipped, n_unknown, new, n_finite = 0, 0, 0, Unseen(), Counter[str]()
    with TableWriter(out) as writer:
        for rows, columns in predicted:
            writer.write(rows, columns)
            n_rows += rows.num_rows
            n_skipped += int(np.isnan(next(iter(columns.values()))).sum())
            n_unknown += int((columns["known"] == False).sum())  # noqa: E712  (missing is neither)
            new += unseen(rows)
            n_finite.update(_count_finite(columns))
            if on_rows is not None:
                on_rows(rows.num_rows)
    n_predicted = n_rows - n_skipped
    shares = {name: count / n_predicted if n_predicted else math.nan for name, count in n_finite.items()}
    return PredictReport(n_rows, n_skipped, n_unknown, new, shares)


def to_csv(table: pa.Table) -> bytes:
    """The table as a CSV file."""
    return _csv_header(table.column_names) + _csv_rows(table)


def _csv_header(names: list[str]) -> bytes:
    # The csv module would leave a carriage return unquoted, and readers would end the line there.
    cells = [f'"{name.replace(QUOTE, QUOTE * 2)}"' if NEEDS_QUOTES.search(name) else name for name in names]
    return f"{','.join(cells) or QUOTE * 2}\n".encode()


def _csv_rows(table: pa.Table) -> bytes:
    def rows(quoting_style: str) -> bytes:
        sink = pa.BufferOutputStream()
        pa_csv.write_csv(table, sink, pa_csv.WriteOptions(include_header=False, quoting_style=quoting_style))
        return bytes(sink.getvalue())

    try:
        return rows("none")
    except pa.ArrowInvalid:  # a text contains a comma, a quote or a line break
        return rows("needed")


def _count_finite(columns: Mapping[str, Float[NDArray, "n"]]) -> dict[str, int]:
    """The number of finite intervals, keyed by what follows ``lower_`` or ``upper_`` in the column names."""
    finite: dict[str, NDArray] = {}
    for name, values in columns.items():
        end, _, rest = name.partition("_")
        if end in ("lower", "upper"):
            finite[rest] = finite.get(rest, True) & np.isfinite(values)
    return {name: int(rows.sum()) for name, rows in finite.items()}
