"""A dataset's file as named columns of text cells: reading, writing, and a checksum of its content."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from lvd._files import atomic_path
from lvd._typing import Float, NDArray
from lvd._validation import InputError

Cells: TypeAlias = dict[str, list[str]]


def from_rows(names: Sequence[str], rows: Iterable[Sequence[str]]) -> Cells:
    """Turn rows into columns; a second column called ``E1`` becomes ``E1.1``, and empty rows are skipped."""
    seen: Counter[str] = Counter()
    unique = []
    for name in names:
        unique.append(f"{name}.{seen[name]}" if seen[name] else name)
        seen[name] += 1
    filled = [row for row in rows if row]
    for number, row in enumerate(filled, start=1):
        if len(row) != len(unique):
            raise InputError(f"row {number} has {len(row)} cells, but there are {len(unique)} columns")
    return {name: [row[j] for row in filled] for j, name in enumerate(unique)}


def from_csv(text: str) -> Cells:
    """Parse comma-separated text with a header line into columns."""
    try:
        header, *rows = csv.reader(io.StringIO(text), strict=True)
    except (csv.Error, ValueError) as error:
        raise InputError(f"not a CSV table with a header line ({error})") from None
    return from_rows(header, rows)


def read_file(path: Path) -> Cells:
    """The columns of a CSV file, gzip-compressed if its name ends in ``.gz``."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"not readable ({error})") from error
    return from_csv(text)


def write_file(path: Path, cells: Cells) -> None:
    """Write the columns atomically as a gzip-compressed CSV file; the same cells give the same bytes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(cells)
    writer.writerows(zip(*cells.values(), strict=True))
    with atomic_path(path) as part:
        part.write_bytes(gzip.compress(text.getvalue().encode("utf-8"), mtime=0))


def numbers(cells: Cells, column: str) -> Float[NDArray, "n"]:
    """One column as finite float64."""
    try:
        values = np.array(cells[column], dtype=np.float64)
    except ValueError as error:
        raise InputError(f"column {column} must hold numbers only ({error})") from None
    if not np.isfinite(values).all():
        raise InputError(
            f"column {column} must be finite, but row {np.argmin(np.isfinite(values)) + 1} is not"
        )
    return values


def checksum(cells: Cells, *, numeric: Sequence[str], text: Sequence[str] = ()) -> str:
    """The sha256 of the parsed table, independent of how its numbers are formatted.

    Numbers are compared to 9 significant digits, so 0 and 0.0 agree, as do 61.887365759999994 and 61.88736576.
    """
    digest = hashlib.sha256()
    for column in numeric:
        values = numbers(cells, column) + 0.0  # -0.0 equals 0.0
        digest.update("\n".join([column, *(f"{value:.9g}" for value in values), ""]).encode("utf-8"))
    for column in text:
        digest.update("\n".join([column, *cells[column], ""]).encode("utf-8"))
    return digest.hexdigest()
