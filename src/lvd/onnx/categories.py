"""Categories of frames in the graph: levels are integers there, which index what is derived from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lvd.models.coding import InputCoding
from lvd.onnx.graph import DOUBLE, INTEGER, Node


def of_level(X: Node, number: int, values: Mapping[str, Any], other: Any) -> Node:
    """The table entry of each row's level in a column (n, k); `other` for levels without one."""
    levels = X.graph.levels[number]
    code = X.columns([number])
    is_level = (code >= 0.0) & (code < float(len(levels)))
    place = (is_level.where(code, -1.0) + 1.0).cast(INTEGER)
    table = [np.atleast_1d(one) for one in (other, *(values.get(level, other) for level in levels))]
    return place.shaped(-1).looked_up(np.array(table, dtype=np.float64))


def code_columns(coding: InputCoding, X: Node) -> Node:
    """:meth:`InputCoding.with_gaps` in the graph: numbers, flags for missing ones, and 0/1 for frequent levels."""
    if not coding.categorical and not any(coding.gaps):
        return X
    parts = []
    for number, (mean, gap, levels) in enumerate(zip(coding.means, coding.gaps, coding.levels, strict=True)):
        column = X.columns([number])
        if mean is not None:
            parts += [column, column.is_nan().cast(DOUBLE)] if gap else [column]
        elif levels:
            hot = dict(zip(levels, np.eye(len(levels)), strict=True))
            parts.append(of_level(X, number, hot, np.zeros(len(levels))))
    return X.graph.join(parts)


def level_numbers(codes: Any, X: Node) -> list[Node]:
    """The columns of :class:`lvd.models.level_coding.LevelCodes`."""
    known = zip(codes.columns, codes.levels, strict=True)
    return [
        of_level(X, column, {level: place for place, level in enumerate(levels)}, np.nan)
        for column, levels in known
    ]


def level_means(coding: Any, X: Node) -> list[Node]:
    """The mean targets (n, t) of each column of :class:`lvd.models.level_coding.TargetCoding`."""
    known = zip(coding.codes.columns, coding.codes.levels, coding.means, strict=True)
    return [
        of_level(X, column, dict(zip(levels, means, strict=True)), coding.usual)
        for column, levels, means in known
    ]
