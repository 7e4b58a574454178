"""The local predictive distribution: the calibration rows' signed scores, weighted by similarity.

The query's own mass, whose score is not known, is split between the two ends: half at -inf and half at +inf, or
in the shares that are given.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from lvd._parallel import chunk_slices, workers
from lvd._typing import ArrayLike, Float, Levels, NDArray
from lvd._validation import check_levels, check_same_length, check_vector, to_numpy
from lvd.conformal import engine
from lvd.conformal.calibration import Calibration, Part
from lvd.conformal.engine import SortedCalibration
from lvd.conformal.rows import Places, Rows

CHUNK_ELEMENTS = 2**21


def cdf(
    queries: Float[Tensor, "n k"],
    self_weights: Float[Tensor, "n"],
    calibration: SortedCalibration,
    scores: Float[Tensor, "n"],
    below: float | Float[Tensor, "n"] = 0.5,
) -> Float[Tensor, "n"]:
    """``F(s) = (below w + sum_i w_i 1{V_i <= s}) / (w + sum_i w_i)``, w the query's own mass."""
    ranks = torch.searchsorted(calibration.scores, scores.contiguous(), right=True)
    with workers() as run:
        slices = chunk_slices(len(queries), max(1, CHUNK_ELEMENTS // max(1, calibration.n_rows)))
        sums = torch.cat(run(partial(_sums, queries, calibration, ranks), slices))
    reached, total = sums.T
    return (below * self_weights + reached) / (self_weights + total)


def _sums(
    queries: Float[Tensor, "n k"], calibration: SortedCalibration, ranks: Tensor, rows: slice
) -> Float[Tensor, "r 2"]:
    """The weight of the first `ranks` rows, and of all."""
    weights = engine.similarities(queries[rows], calibration).mul_(calibration.weights)
    reached = torch.arange(calibration.n_rows, device=ranks.device) < ranks[rows, None]
    return torch.stack([(weights * reached).sum(1), weights.sum(1)], 1)


@dataclass(frozen=True)
class LocalDistribution:
    """The distributions of the scores of some rows, as the calibration rows like each of them tell it.

    Of a row in a group without a calibration row nothing is known: all its mass is at the two ends.
    """

    calibration: Calibration
    rows: Rows

    def quantile(self, q: Levels) -> Float[NDArray, "n q"]:
        """The smallest score at which each row's distribution reaches q in (0, 1); -inf or +inf past the ends."""
        levels, half = check_levels(q, "q"), self.rows.self_weights / 2.0

        def ask(part: Part, places: Places) -> Tensor:
            own = half[places]
            return engine.radius(self.rows.points[places], part.sorted, levels, own, own)

        ends = half.new_tensor(np.where(levels <= 0.5, -np.inf, np.inf))
        return self.calibration.answer(self.rows, ends.repeat(len(half), 1), ask).cpu().numpy()

    def cdf(self, scores: ArrayLike, below: ArrayLike = 0.5) -> Float[NDArray, "n"]:
        """The distribution function at one score for each row.

        The share `below`, a number or one for each row, of the row's own mass sits at -inf, the rest at +inf.
        """
        at, points = check_vector(scores, "scores"), self.rows.points
        check_same_length(rows=points, scores=at)
        given = points.new_tensor(at)
        shares = points.new_tensor(np.broadcast_to(to_numpy(below), at.shape).copy())

        def ask(part: Part, places: Places) -> Tensor:
            own = self.rows.self_weights[places]
            return cdf(points[places], own, part.sorted, given[places], shares[places])[:, None]

        return self.calibration.answer(self.rows, shares[:, None], ask)[:, 0].cpu().numpy()

    def places(self) -> Float[NDArray, "n j"]:
        """Where the masses lie: -inf, the calibration scores in order of arrival, +inf; (n, m + 2)."""
        scores = np.concatenate([[-np.inf], self.calibration.scores.cpu().numpy(), [np.inf]])
        return np.tile(scores, (len(self.rows.points), 1))

    def masses(self) -> Float[NDArray, "n j"]:
        """How much lies at each of the :meth:`places`, in shares of 1; a dense matrix."""
        points = self.rows.points
        unseen = points.new_zeros(len(points), len(self.calibration.scores) + 2)
        unseen[:, [0, -1]] = 0.5

        def ask(part: Part, places: Places) -> Tensor:
            own = self.rows.self_weights[places, None]
            weights = engine.similarities(points[places], part.sorted).mul_(part.sorted.weights)
            result = unseen[places] * own
            result[:, part.sorted.order + 1] = weights
            return result / (own + weights.sum(1, keepdim=True))

        return self.calibration.answer(self.rows, unseen, ask).cpu().numpy()
