"""Dataclasses of numbers and strings as CSV files, one line each."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

from lvd._files import atomic_path

T = TypeVar("T")
_KINDS = {"int": int, "float": float, "str": str}


def write_rows(rows: Iterable[Any], path: Path, kind: type, *, digits: int = 9) -> None:
    """Write rows of the dataclass `kind`, floats with that many significant digits."""
    with atomic_path(path) as part, part.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(kind)])
        writer.writeheader()
        for row in rows:
            writer.writerow(
                {k: f"{v:.{digits}g}" if isinstance(v, float) else v for k, v in asdict(row).items()}
            )


def read_rows(path: Path, kind: type[T]) -> list[T]:
    """Rows written by :func:`write_rows`; OSError, KeyError, TypeError or ValueError where they are not."""
    kinds = {field.name: _KINDS[str(field.type)] for field in fields(kind)}  # type: ignore[arg-type]
    with path.open(newline="") as file:
        return [
            kind(**{name: kinds[name](value) for name, value in line.items()})
            for line in csv.DictReader(file)
        ]
