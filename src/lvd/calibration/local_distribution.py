"""The local predictive distribution: the calibration rows' signed scores, weighted by similarity.

The query's own mass, whose score is unknown, is split between the two ends: half at -inf and half at +inf, or
in the given shares.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lvd._parallel import map_queries
from lvd._typing import ArrayLike, Float, Levels, NDArray
from lvd._validation import check_levels, check_same_length, check_vector, to_numpy
from lvd.calibration.calibration_rows import Calibration, Group, Indices, Rows
from lvd.engine import Queries, SortedRows, local_quantile, similarities


def local_cdf(
    queries: Queries, rows: SortedRows, scores: Float[Tensor, "n"], below: Float[Tensor, "n"]
) -> Float[Tensor, "n"]:
    """``F(s) = (below w + sum_i w_i 1{V_i <= s}) / (w + sum_i w_i)``, w the query's own mass."""
    ranks = torch.searchsorted(rows.scores, scores.contiguous(), right=True)

    def sums(some: slice) -> Float[Tensor, "r 2"]:
        """The weight of the first `ranks` rows, and the total."""
        weights = similarities(queries[some], rows).mul_(rows.weights)
        reached = torch.arange(len(rows), device=ranks.device) < ranks[some, None]
        return torch.stack([(weights * reached).sum(1), weights.sum(1)], 1)

    reached, total = torch.cat(map_queries(sums, len(queries), len(rows))).T
    return (below * queries.above + reached) / (queries.above + total)


@dataclass(frozen=True, eq=False)
class LocalDistribution:
    """The score distributions of some rows, estimated from similar calibration rows.

    A row whose group has no calibration row has all its mass at the two ends.
    """

    calibration: Calibration
    rows: Rows

    def quantile(self, q: Levels) -> Float[NDArray, "n q"]:
        """The smallest score at which each row's distribution reaches q in (0, 1); -inf or +inf beyond the ends."""
        levels = check_levels(q, "q")

        def ask(_: Group, known: SortedRows, indices: Indices) -> tuple[Tensor]:
            queries = self.rows[indices].queries
            half = queries.above / 2.0
            split = Queries(queries.points, half, half, queries.bandwidths)
            return (local_quantile(split, known, levels).radius,)

        return self.calibration.answer(self.rows, ask)[0].cpu().numpy()

    def cdf(self, scores: ArrayLike, below: ArrayLike = 0.5) -> Float[NDArray, "n"]:
        """The distribution function at one score for each row.

        The share `below` of the row's own mass, a number or one per row, sits at -inf, the rest at +inf.
        """
        at, points = check_vector(scores, "scores"), self.rows.points
        check_same_length(rows=points, scores=at)
        given = points.new_tensor(at)
        shares = points.new_tensor(np.broadcast_to(to_numpy(below), at.shape).copy())

        def ask(_: Group, known: SortedRows, indices: Indices) -> tuple[Tensor]:
            return (local_cdf(self.rows[indices].queries, known, given[indices], shares[indices]),)

        return self.calibration.answer(self.rows, ask)[0].cpu().numpy()

    def places(self) -> Float[NDArray, "n j"]:
        """The positions of the masses: -inf, the calibration scores in order of arrival, +inf; (n, m + 2)."""
        scores = np.concatenate([[-np.inf], self.calibration.scores[:, 0].cpu().numpy(), [np.inf]])
        return np.tile(scores, (len(self.rows.points), 1))

    def masses(self) -> Float[NDArray, "n j"]:
        """The mass at each of the :meth:`places`, in shares of 1; a dense matrix."""
        n_places = len(self.calibration.scores) + 2

        def ask(_: Group, known: SortedRows, indices: Indices) -> tuple[Tensor]:
            queries = self.rows[indices].queries
            weights = similarities(queries, known).mul_(known.weights)
            result = weights.new_zeros(len(queries), n_places)
            result[:, [0, -1]] = queries.above[:, None] / 2.0
            result[:, known.order + 1] = weights
            return (result / (queries.above[:, None] + weights.sum(1, keepdim=True)),)

        return self.calibration.answer(self.rows, ask)[0].cpu().numpy()
