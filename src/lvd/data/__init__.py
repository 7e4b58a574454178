"""Datasets of the experiments, splits, and the paper's printed figures; each part loads when it is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lvd.data.datasets import NAMES, PROTOCOLS, Availability, Dataset, available, load
    from lvd.data.exporting import export
    from lvd.data.lookup import cache_folder
    from lvd.data.printed import PrintedCell, printed_cells
    from lvd.data.registry import ENTRIES, Entry
    from lvd.data.splits import split_indices, three_way_split
    from lvd.data.synthetic import make_synthetic

_HOMES = {
    "Availability": "datasets",
    "Dataset": "datasets",
    "NAMES": "datasets",
    "PROTOCOLS": "datasets",
    "available": "datasets",
    "load": "datasets",
    "export": "exporting",
    "cache_folder": "lookup",
    "PrintedCell": "printed",
    "printed_cells": "printed",
    "ENTRIES": "registry",
    "Entry": "registry",
    "split_indices": "splits",
    "three_way_split": "splits",
    "make_synthetic": "synthetic",
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
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
