"""Support in the graph: whether training rows resemble a row."""

from __future__ import annotations

from typing import Any

import numpy as np

from lvd._validation import InputError
from lvd.onnx.categories import of_level
from lvd.onnx.graph import SINGLE, Node
from lvd.onnx.predictors import Outputs
from lvd.support import TrainingSupport
from lvd.support.rule import FAR, FAR_EMBEDDED, FAR_INPUTS, PARTS, Neighborhood, Ranges


def known_rows(support: Any, outputs: Outputs, X: Node) -> Node:
    """Which rows (n, 1) are known, by the rules of :meth:`TrainingSupport.check`."""
    levels = {number: set(own) for number, own in enumerate(getattr(support, "levels_", ())) if own}
    if (
        type(support) is not TrainingSupport
        or support.parts_ is not None
        or not set(levels) <= set(X.graph.levels)
    ):
        raise InputError(
            f"the support rule {type(support).__name__} of this model cannot be exported to ONNX; lvd's own can, "
            "for rows of numbers"
        )
    near = _near_training_rows(support, outputs)
    for number, own in levels.items():
        near = near & (of_level(X, number, dict.fromkeys(own, 1.0), 0.0) > 0.5)
    return near


def _near_training_rows(support: TrainingSupport, outputs: Outputs) -> Node:
    embedded = _in_training_units(support.embedding_, outputs.embeddings)
    if support.inputs_ is None or support.ranges_ is None or outputs.inputs is None:
        return _near(support.embedding_, embedded, FAR)
    placed = _in_training_units(support.inputs_, outputs.inputs)
    near = _near(support.embedding_, embedded, FAR_EMBEDDED) & _near(support.inputs_, placed, FAR_INPUTS)
    return near & _in_range(support.ranges_, placed)


def _in_training_units(space: Neighborhood, rows: Node) -> Node:
    """The rows in units of the training rows, in float32."""
    return ((rows - space.mean) / space.scale).within(1e18).cast(SINGLE)


def _near(space: Neighborhood, placed: Node, times: float) -> Node:
    """Whether the nearest training row is within a multiple of the limit; a few training rows settle most rows.

    Computed in float32 around the training rows' centre, where squares lose few digits.
    """
    if space.limit == 0.0:
        return placed.equals(space.rows[:1]).cast(SINGLE).reduce("Min") > 0.5
    centre = space.rows.astype(np.float64).mean(axis=0)
    around = space.rows - centre
    centred = placed - centre

    def within(rows: Node, some: slice) -> Node:
        products = rows @ (-2.0 * around[some].T) + (around[some] ** 2).sum(axis=1)
        return products.reduce("Min") + (rows * rows).reduce("Sum") <= (times * space.limit) ** 2

    near = within(centred, slice(PARTS[0]))
    if len(around) <= PARTS[0]:
        return near
    return placed.graph.amend(near, ~near, lambda pick: within(pick(centred), slice(PARTS[0], None)))


def _in_range(ranges: Ranges, placed: Node) -> Node:
    """Whether no column exceeds its range by more than the allowed margin, and constant columns not at all."""
    width = ranges.highest.astype(np.float64) - ranges.lowest
    over = (ranges.lowest - placed).at_least(placed - ranges.highest)
    room = np.where(width > 0.0, ranges.room * width, 0.0)
    return (over <= room.astype(np.float32)).cast(SINGLE).reduce("Min") > 0.5
