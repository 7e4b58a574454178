"""Calibration rows: sorted by score within their groups, with the one loop over groups, or all alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from lvd._typing import ArrayLike, Float, Levels, NDArray
from lvd._validation import check_choice, check_levels, check_vector
from lvd.conformal.labelled_rows import ALL, Group, Indices, Rows
from lvd.quantiles import SortedRows
from lvd.quantiles.finite_sample import QUANTILES, conformal_quantile


class CalibrationWarning(UserWarning):
    """The calibration set cannot give what was asked of it."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """All calibration rows in order of arrival, and sorted by group."""

    rows: Rows
    scores: Float[Tensor, "m"]
    groups: dict[Group, SortedRows]

    @classmethod
    def of(cls, rows: Rows, scores: Float[Tensor, "m"]) -> Calibration:
        """Sort the rows of each group."""
        groups: dict[Group, SortedRows] = {}
        for group, indices in rows.by_group():
            weights = None if rows.weights is None else rows.weights[indices]
            found = SortedRows.of(rows.points[indices], scores[indices], ratios=weights)
            groups[group] = found.numbered(indices)
        return cls(rows, scores, groups)

    def nobody(self) -> SortedRows:
        """A group without rows."""
        return SortedRows.of(self.rows.points[:0], self.scores[:0])

    def answer(
        self, queries: Rows, ask: Callable[[Group, SortedRows, Indices], tuple[Tensor, ...]]
    ) -> tuple[Tensor, ...]:
        """What `ask` gives for the queries of each group, by their indices, put together again."""
        if queries.groups is None:
            return ask(ALL, self.groups[ALL], slice(None))
        results: tuple[Tensor, ...] = ()
        for group, indices in queries.by_group():
            found = ask(group, self.groups.get(group, self.nobody()), indices)
            if not results:
                results = tuple(part.new_empty(len(queries.points), *part.shape[1:]) for part in found)
            for whole, part in zip(results, found, strict=True):
                whole[indices] = part
        return results


class GlobalConformal:
    """Radii from calibration scores that all count the same, wherever the query is.

    Parameters
    ----------
    quantile : ``"finite_sample"``: the ``ceil((m + 1) level)``-th smallest of m scores, +inf beyond the m-th.
        ``"percentile"``: numpy's plain percentile, without the guarantee, as the paper's figures were made.
    """

    scores_: Float[NDArray, "m"]

    def __init__(self, quantile: str = "finite_sample") -> None:
        self.quantile = quantile

    def conformalize(self, embeddings: ArrayLike, scores: ArrayLike) -> GlobalConformal:
        """Take the calibration scores; where the rows are does not matter."""
        check_choice(self.quantile, "quantile", QUANTILES)
        self.scores_ = check_vector(scores, "scores")
        return self

    def radius(self, embeddings: ArrayLike, confidence_level: Levels) -> Any:
        """Radii (n, L), the same for all rows."""
        radius = conformal_quantile(self.scores_, check_levels(confidence_level), quantile=self.quantile)
        return np.broadcast_to(radius, (len(embeddings), len(radius)))
