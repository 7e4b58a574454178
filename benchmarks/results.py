"""The results of the bench page: one csv line per cell, with the machine and the versions."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

import lvd
from benchmarks.contestants import CONTESTANTS
from benchmarks.growth import slope
from experiments.paper.result_store import processor_name, read_dataclasses, write_dataclasses
from lvd import InputError

MISSING = "-"


@dataclass(frozen=True)
class Environment:
    """The machine and the package versions, ``-`` for packages that are not installed."""

    date: str
    machine: str
    threads: int
    python: str
    torch: str
    numpy: str
    triton: str
    lvd: str
    crepes: str
    mapie: str


@dataclass(frozen=True)
class Cell(Environment):
    """A contestant at one size; a cell without measurement has nan seconds and a note with the reason.

    `sweep` is what grows, the rows or the queries; `device` is where the contestant computed.
    """

    sweep: str
    contestant: str
    device: str
    queries: int
    rows: int
    calibrate_seconds: float
    first_seconds: float
    predict_seconds: float
    peak_mb: float
    note: str

    @property
    def size(self) -> int:
        """The size that grows in the sweep."""
        return self.rows if self.sweep == "rows" else self.queries

    @property
    def measured(self) -> bool:
        """Whether there are times."""
        return self.note == ""

    @property
    def rows_per_second(self) -> float:
        """Queries answered per second of prediction."""
        return self.queries / self.predict_seconds


def this_environment(threads: int) -> Environment:
    """Today, this machine, these versions."""
    return Environment(
        *date_and_machine(on_gpu=torch.cuda.is_available()),
        threads,
        platform.python_version(),
        *map(version_of, ("torch", "numpy", "triton")),
        lvd.__version__,
        *map(version_of, ("crepes", "MAPIE")),
    )


def date_and_machine(*, on_gpu: bool) -> tuple[str, str]:
    """Today, and the processors of this machine."""
    gpu = f"{torch.cuda.get_device_name()}, " if on_gpu else ""
    return datetime.now(UTC).date().isoformat(), f"{gpu}{processor_name()}, {os.cpu_count()} cores"


def version_of(package: str) -> str:
    """The installed version, or a dash."""
    try:
        return version(package)
    except PackageNotFoundError:
        return MISSING


def versions_text(environment: object, packages: Iterable[str]) -> str:
    """The versions of the packages that are installed."""
    versions = {package: getattr(environment, package) for package in packages}
    return ", ".join(f"{package} {text}" for package, text in versions.items() if text != MISSING)


def write_cells(path: Path, cells: Sequence[Cell]) -> None:
    write_dataclasses(cells, path, Cell, digits=5)


def read_cells(path: Path) -> list[Cell]:
    """The cells of one run on one machine."""
    try:
        cells = read_dataclasses(path, Cell)
    except (OSError, KeyError, TypeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not what --out writes"
        raise InputError(f"cannot read {path} ({reason}); write it by python -m benchmarks --out") from error
    unknown = sorted({cell.contestant for cell in cells} - set(CONTESTANTS))
    if unknown or not cells:
        reason = f"unknown contestant {unknown[0]}" if unknown else "no cell in it"
        raise InputError(f"cannot read {path} ({reason}); write it by python -m benchmarks --out")
    return cells


def select(cells: Sequence[Cell], sweep: str, contestant: str) -> list[Cell]:
    """The cells of a contestant in a sweep, by size."""
    return [cell for cell in cells if (cell.sweep, cell.contestant) == (sweep, contestant)]


def slope_of(cells: Sequence[Cell]) -> float:
    """How a contestant's prediction time grows in a sweep."""
    return slope([cell.size for cell in cells], [cell.predict_seconds for cell in cells])


def footnotes(cells: Sequence[Cell]) -> list[str]:
    """Why cells are empty, each reason with its contestants."""
    reasons: dict[str, dict[str, None]] = {}
    for cell in cells:
        if not cell.measured:
            reasons.setdefault(cell.note, {})[CONTESTANTS[cell.contestant].title] = None
    return [f"{'; '.join(titles)}: {note}" for note, titles in reasons.items()]


def duration(seconds: float) -> str:
    """Three digits with a suitable unit; a dash for missing times."""
    if not seconds >= 0.0:
        return MISSING
    for unit, length in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= 0.9995 * length:
            return f"{_digits(seconds / length)} {unit}"
    return f"{_digits(seconds / 1e-6)} µs"


def number(value: float, form: str = ",.0f") -> str:
    """A number, or a dash for nan."""
    return MISSING if math.isnan(value) else format(value, form)


def pipe_table(lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table of these lines, with the line below the headings."""
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"
