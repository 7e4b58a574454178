"""A dataset as a table of its own."""

from __future__ import annotations

import os

import pyarrow as pa

from lvd.reproduction.datasets import Dataset
from lvd.tables.writing import TableWriter


def export(dataset: Dataset, path: str | os.PathLike[str]) -> int:
    """Write features and then targets as columns of a CSV or Parquet file; returns the number of rows."""
    features = dataset.X.reshape(len(dataset.X), -1).T
    targets = dataset.y.reshape(len(dataset.y), -1).T
    names = [*dataset.feature_names, *dataset.target_names]
    table = pa.table(dict(zip(names, [*features, *targets], strict=True)))
    with TableWriter(path) as writer:
        writer.write(table, {})
    return table.num_rows
