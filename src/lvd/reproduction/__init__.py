"""The paper: its datasets, known as ``lvd.data``, and its protocols, runs, tables, figures and pages."""

from __future__ import annotations

import importlib
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

_PARTS = {
    "lvd._files": ("cache_folder",),
    "lvd.reproduction.datasets": (
        *("NAMES", "PROTOCOLS", "Availability", "Dataset", "available", "export", "load", "make_synthetic"),
    ),
    "lvd.reproduction.printed": ("PrintedCell", "printed_cells"),
    "lvd.reproduction.registry": ("ENTRIES", "Entry"),
    "lvd.tables.splits": ("split_indices", "three_way_split"),
}
_HOMES = {name: module for module, names in _PARTS.items() for name in names}

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
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
