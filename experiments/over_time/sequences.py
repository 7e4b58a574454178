"""Time-ordered rows: three real tables that drift, and synthetic ones with an abrupt and a slow change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.arena.tables import MORE_TABLES, arena_file
from lvd._typing import Float, NDArray
from lvd.data import ENTRIES
from lvd.data.cells import Cells, read_file
from lvd.data.datasets import find_table, search_folders

TRAINED, CALIBRATED = 0.4, 0.15
"""The shares of rows for training and then calibration; the others arrive one by one."""
EVERY_THIRD = 3
"""The step between the rows used of turbine's 36,733 hours."""
BIKE_DROPPED = ("instant", "dteday", "casual", "registered", "yr")
N_MADE_UP = 6000


class Sequence(NamedTuple):
    """A table in order of time."""

    X: Float[NDArray, "n p"]
    y: Float[NDArray, "n"]

    @property
    def starts(self) -> tuple[int, int]:
        """Where calibration starts, and where rows start to arrive one by one."""
        n_rows = len(self.y)
        return int(TRAINED * n_rows), int((TRAINED + CALIBRATED) * n_rows)


def load_sequence(name: str, data_dir: Path | None = None) -> Sequence:
    """Load a sequence by name; the error for a missing table says where it was expected."""
    return SEQUENCES[name](data_dir)


def _turbine(data_dir: Path | None) -> Sequence:
    X, y = _sequence(read_file(arena_file("turbine", data_dir)), *MORE_TABLES["turbine"])
    return Sequence(X[::EVERY_THIRD], y[::EVERY_THIRD])


def _sml(data_dir: Path | None) -> Sequence:
    return _sequence(read_file(arena_file("sml", data_dir)), *MORE_TABLES["sml"])


def _bike(data_dir: Path | None) -> Sequence:
    cells = find_table(ENTRIES["bike"], search_folders(data_dir), download=False, progress=None)
    return _sequence(cells, "cnt", BIKE_DROPPED)


def _sequence(cells: Cells, target: str, dropped: tuple[str, ...]) -> Sequence:
    kept = {name: texts for name, texts in cells.items() if name not in dropped}
    columns = {name: np.array(texts, dtype=np.float64) for name, texts in kept.items()}
    y = columns.pop(target)
    return Sequence(np.column_stack(list(columns.values())), y)


def _made_up() -> tuple[np.random.Generator, NDArray, NDArray]:
    rng = np.random.default_rng(7)
    return rng, rng.uniform(-1, 1, (N_MADE_UP, 4)), np.arange(N_MADE_UP) / N_MADE_UP


def _abrupt(data_dir: Path | None) -> Sequence:
    rng, X, when = _made_up()
    changed = when > 0.7
    noise = (0.2 + np.abs(X[:, 2])) * np.where(changed, 2.0, 1.0) * rng.normal(size=N_MADE_UP)
    y = 3.0 * X[:, 0] + np.where(changed & (X[:, 1] > 0), 3.0, 0.0) + noise
    return Sequence(X, y)


def _slow(data_dir: Path | None) -> Sequence:
    rng, X, when = _made_up()
    noise = (0.2 + np.abs(X[:, 2])) * (1.0 + 2.0 * when) * rng.normal(size=N_MADE_UP)
    y = 3.0 * X[:, 0] + 8.0 * np.maximum(when - TRAINED, 0.0) * X[:, 1] + noise
    return Sequence(X, y)


SEQUENCES: dict[str, Callable[[Path | None], Sequence]] = {
    "turbine": _turbine,
    "bike": _bike,
    "sml": _sml,
    "abrupt": _abrupt,
    "slow": _slow,
}
