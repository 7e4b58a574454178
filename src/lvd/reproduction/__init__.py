"""The paper: its datasets, known as ``lvd.data``, and its protocols, runs, tables, figures and pages."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lvd._files import cache_folder
    from lvd.reproduction.datasets import (
        NAMES,
        PROTOCOLS,
        Availability,
        Dataset,
        available,
        export,
        load,
        make_synthetic,
    )
    from lvd.reproduction.printed import PrintedCell, printed_cells
    from lvd.reproduction.registry import ENTRIES, Entry
    from lvd.tables.splits import split_indices, three_way_split

_DATASETS = "lvd.reproduction.datasets"
"""The home of all names that have no other."""
_HOMES = {
    "PrintedCell": "lvd.reproduction.printed",
    "cache_folder": "lvd._files",
    "printed_cells": "lvd.reproduction.printed",
    "split_indices": "lvd.tables.splits",
    "three_way_split": "lvd.tables.splits",
}

__all__ = [
    "ENTRIES",
    "NAMES",
    "PROTOCOLS",
    "Availability",
    "Dataset",
    "Entry",
    "PrintedCell",
    "available",
    "cache_folder",
    "export",
    "load",
    "make_synthetic",
    "printed_cells",
    "split_indices",
    "three_way_split",
]


def __getattr__(name: str) -> Any:
    """Load a part when it is first used: importing the package stays fast."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, _DATASETS)), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
