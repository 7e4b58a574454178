"""The paper: its datasets, protocols, runs, tables, figures and pages; each part loads when it is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lvd.reproduction.datasets import NAMES, PROTOCOLS, Availability, Dataset, available, load
    from lvd.reproduction.exporting import export
    from lvd._folders import cache_folder
    from lvd.reproduction.printed import PrintedCell, printed_cells
    from lvd.reproduction.registry import ENTRIES, Entry
    from lvd.tables.splits import split_indices, three_way_split
    from lvd.reproduction.synthetic import make_synthetic

_HOMES = {
    "Availability": "lvd.reproduction.datasets",
    "Dataset": "lvd.reproduction.datasets",
    "NAMES": "lvd.reproduction.datasets",
    "PROTOCOLS": "lvd.reproduction.datasets",
    "available": "lvd.reproduction.datasets",
    "load": "lvd.reproduction.datasets",
    "export": "lvd.reproduction.exporting",
    "cache_folder": "lvd._folders",
    "PrintedCell": "lvd.reproduction.printed",
    "printed_cells": "lvd.reproduction.printed",
    "ENTRIES": "lvd.reproduction.registry",
    "Entry": "lvd.reproduction.registry",
    "split_indices": "lvd.tables.splits",
    "three_way_split": "lvd.tables.splits",
    "make_synthetic": "lvd.reproduction.synthetic",
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
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
