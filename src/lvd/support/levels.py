"""Levels of category columns in a frame: which of them training rows have."""

from __future__ import annotations

from typing import Any

import numpy as np

from lvd.models.coding import input_columns, is_category, is_missing, looks_unique, read_texts
from lvd.support.rule import Reason, Support

ColumnLevels = tuple[tuple[str, ...], ...]
"""For each column its levels, sorted; none where it has none, and no columns for inputs that are not a frame."""


def levels_of(inputs: Any) -> ColumnLevels:
    """The levels of these rows, in columns of categories and of text.

    A column in which nearly every row has a value of its own has none: there a new value says nothing.
    """
    return tuple(map(_levels, input_columns(inputs))) if hasattr(inputs, "columns") else ()


def new_levels(levels: ColumnLevels, inputs: Any) -> Support:
    """Unknown are rows with a level that is not among these."""
    seen = np.ones((len(inputs), len(levels)), bool)
    texts: dict[int, Any] = {}
    for number, (column, known) in enumerate(zip(input_columns(inputs), map(set, levels), strict=True)):
        if known:
            texts[number] = read_texts(column)
            seen[:, number] = [text in known for text in texts[number]]

    def name(row: int) -> Reason:
        number = int(seen[row].argmin())
        return Reason(f"no training row has {texts[number][row]!r} in input {number + 1}", number)

    return Support.of(np.logical_and.reduce(seen, axis=1), name)


def _levels(column: Any) -> tuple[str, ...]:
    values = np.asarray(column)
    texts = values.dtype.kind in "OU" and all(isinstance(one, str) for one in values if not is_missing(one))
    if not texts and not is_category(column):
        return ()
    found = read_texts(column)
    levels = set(found.tolist())
    named = levels - {""}
    return () if not named or looks_unique(len(named), int((found != "").sum())) else tuple(sorted(levels))
