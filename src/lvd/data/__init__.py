"""Datasets to try the methods on, generated or downloaded from their public sources, and how to split them."""

from lvd._files import cache_folder
from lvd.data.datasets import (
    NAMES,
    PROTOCOLS,
    Availability,
    Dataset,
    available,
    export,
    load_dataset,
    make_synthetic,
)
from lvd.data.registry import ENTRIES, Entry
from lvd.tables.splits import split_indices, three_way_split

__all__ = [
    "ENTRIES",
    "NAMES",
    "PROTOCOLS",
    "Availability",
    "Dataset",
    "Entry",
    "available",
    "cache_folder",
    "export",
    "load_dataset",
    "make_synthetic",
    "split_indices",
    "three_way_split",
]
