"""A table in several files: names with wildcards, the same columns in all, batches that ignore the borders."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from glob import has_magic
from pathlib import Path

import numpy as np
import pyarrow as pa

from lvd._validation import InputError
from lvd.tables.reading import iter_batches, read_schema
from lvd.tables.writing import with_columns

ROW = "lvd: number of the row"
"""The column in which rows carry their numbers from one machine to another, for the error messages."""


def find_files(names: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The files that the names stand for: those of ``data/*.parquet`` sorted by name, others as they are given."""
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
    """All files have the columns of the first, with the same types in the same order."""
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


def regroup(batches: Iterable[pa.RecordBatch], n_rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of exactly `n_rows`, but for the last: numbers then do not depend on the files.

    A product of matrices rounds a row differently in batches of different sizes.
    """
    waiting: list[pa.RecordBatch] = []
    missing = n_rows
    for batch in batches:
        rest = batch
        while rest.num_rows >= missing:
            yield as_one([*waiting, rest.slice(0, missing)])
            rest, waiting, missing = rest.slice(missing), [], n_rows
        if rest.num_rows:
            waiting.append(rest)
            missing -= rest.num_rows
    if waiting:
        yield as_one(waiting)


def as_one(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows in one batch."""
    if len(batches) == 1:
        return batches[0]
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return batch


def count_text_rows(path: Path) -> int:
    """The number of rows of a CSV file, found by reading it."""
    return sum(batch.num_rows for batch in iter_batches(path, column_types={}))


def read_numbered(files: pa.Table) -> Iterator[pa.Table]:
    """The rows of the files in the column ``path``, with their numbers from ``first_row`` on in a column `ROW`."""
    for file in files.to_pylist():
        first_row = file["first_row"]
        with noting_refusals():
            for batch in iter_batches(file["path"], column_types={}):
                yield with_columns(batch, {ROW: np.arange(first_row, first_row + batch.num_rows)})
                first_row += batch.num_rows


@contextmanager
def noting_refusals() -> Iterator[None]:
    """The message of an `InputError` also as a note: it stays as it is where others add to the message itself."""
    try:
        yield
    except InputError as error:
        error.add_note(str(error))
        raise
