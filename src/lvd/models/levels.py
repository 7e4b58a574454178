"""Levels of category columns in a frame: which of them training rows have."""

from __future__ import annotations

from typing import Any

import numpy as np

from lvd._typing import Bool, NDArray
from lvd.models.coding import input_columns, is_category, is_missing, read_texts

ColumnLevels = tuple[tuple[str, ...], ...]
"""For each column its levels, sorted; none where it has none, and no columns of what is no frame."""


def levels_of(inputs: Any) -> ColumnLevels:
    """The levels of these rows, in columns of categories and of texts.

    A column in which nearly every row has a value of its own has none: there a new one says nothing.
    """
    return tuple(map(_levels, input_columns(inputs))) if hasattr(inputs, "columns") else ()


def has_levels(levels: ColumnLevels, inputs: Any) -> Bool[NDArray, "n"]:
    """Whether each row has no other levels than these."""
    seen = np.ones(len(inputs), bool)
    for column, known in zip(input_columns(inputs), map(set, levels), strict=True):
        if known:
            seen &= np.array([text in known for text in read_texts(column)])
    return seen


def looks_unique(n_distinct: int, n_rows: int) -> bool:
    """Whether almost every row has a value of its own, as identifiers and free texts have."""
    return n_distinct >= 10 and n_distinct > 0.9 * n_rows


def _levels(column: Any) -> tuple[str, ...]:
    values = np.asarray(column)
    texts = values.dtype.kind in "OU" and all(isinstance(one, str) for one in values if not is_missing(one))
    if not texts and not is_category(column):
        return ()
    found = read_texts(column)
    levels = set(found.tolist())
    named = levels - {""}
    return () if not named or looks_unique(len(named), int((found != "").sum())) else tuple(sorted(levels))
