"""The rows of a table, part by part."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from lvd._typing import Int, NDArray
from lvd._validation import InputError, RowError, check_positive
from lvd.tables.many_files import check_same_columns, regroup
from lvd.tables.reading import BATCH_ROWS, iter_batches

Batches: TypeAlias = Iterable[pa.RecordBatch]


def read_rows(*paths: str | os.PathLike[str], batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """The rows of one file, or of several as one table, batch by batch, for the methods of `TableModel`.

    The cells of a CSV file stay the text they are, so that they are written back as they were read.
    """
    if len(paths) > 1:
        check_same_columns([Path(path) for path in paths])
    files = (iter_batches(path, column_types={}) for path in paths)
    return regroup(chain.from_iterable(files), batch_rows)


def numbered(batches: Batches) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Each batch with the number of its first row; rows count from 1."""
    first_row = 1
    for batch in batches:
        yield first_row, batch
        first_row += batch.num_rows


@contextmanager
def counting_in_table(numbers: Int[NDArray, "n"]) -> Iterator[None]:
    """A refusal of some of these rows names them by their numbers in the table."""
    try:
        yield
    except RowError as error:
        raise RowError(error.message, tuple(numbers[list(error.rows)].tolist())) from None


def find_row(batches: Batches, row: int) -> pa.RecordBatch:
    """Row number `row`, alone."""
    check_positive(row, "row", integer=True)
    n_rows = 0
    for first_row, batch in numbered(batches):
        n_rows = first_row + batch.num_rows - 1
        if row <= n_rows:
            return batch.slice(row - first_row, 1)
    raise InputError(f"row must lie between 1 and {n_rows}, the number of rows of the table, got {row}")
