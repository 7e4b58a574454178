"""Calibration rows, sorted by score within their groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from lvd._typing import Float
from lvd.conformal import calibrated, engine
from lvd.conformal.leaves import Leaves
from lvd.conformal.rows import ALL, Group, Places, Rows


class CalibrationWarning(UserWarning):
    """The calibration set cannot give what was asked of it."""


@dataclass
class Part:
    """The calibration rows of one group; what only some guarantees need is computed when it is first asked for."""

    sorted: engine.SortedCalibration

    @cached_property
    def standing(self) -> calibrated.Standing:
        """What the calibrated guarantee computes once."""
        return calibrated.standing(self.sorted)

    @cached_property
    def mirrored(self) -> Part:
        """The same rows with the signs of the scores turned round, for the lower end of an interval."""
        rows = self.sorted
        one = engine.sort_calibration(rows.points, -rows.scores, weights=rows.weights, floor=rows.floor)
        return Part(replace(one, order=rows.order[one.order], leaves=rows.leaves))


@dataclass(frozen=True)
class Calibration:
    """All calibration rows in order of arrival, and sorted by group."""

    rows: Rows
    scores: Float[Tensor, "m"]
    leaves: Leaves
    parts: dict[Group, Part]

    @classmethod
    def of(
        cls, rows: Rows, scores: Float[Tensor, "m"], leaves: Leaves, floor_of: Callable[[int], float]
    ) -> Calibration:
        """Sort the rows; `floor_of` gives the kernel's floor for a group of that many."""
        parts: dict[Group, Part] = {}
        for group, places in rows.by_group():
            weights = None if rows.weights is None else rows.weights[places]
            one = engine.sort_calibration(
                rows.points[places], scores[places], weights=weights, floor=floor_of(len(places))
            )
            parts[group] = Part(replace(one, order=places[one.order], leaves=leaves))
        return cls(rows, scores, leaves, parts)

    def build_index(self) -> None:
        """Make the clusters of all groups now; on a GPU there are none."""
        for part in self.parts.values():
            if part.sorted.points.device.type == "cpu" and part.sorted.can_be_clustered:
                _ = part.sorted.clusters

    def answer(
        self,
        queries: Rows,
        unseen: Float[Tensor, "n c"],
        ask: Callable[[Part, Places], Float[Tensor, "g c"]],
    ) -> Float[Tensor, "n c"]:
        """What `ask` gives for the queries of each group, by their places; `unseen` for groups without a row."""
        if queries.groups is None:
            return ask(self.parts[ALL], slice(None))
        result = unseen.clone()
        for group, places in queries.by_group():
            if group in self.parts:
                result[places] = ask(self.parts[group], places)
        return result
