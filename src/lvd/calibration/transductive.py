"""Exact average coverage using every calibration row for both scale and quantile (full conformal prediction).

Each score S_i is divided by the kernel mean of all *other* scores, the query's included, shrunk towards a prior
p fixed in advance. In these means scores are capped at c, also fixed in advance: ``g(s) = min(s, c)``.
Otherwise a few scores in the hundreds (a large error where a tiny one was expected) would widen the intervals
of everything near them by as much. The set of query scores that conform is an interval whose end has a closed
form for each calibration row: with ``k_i = K(x, x_i)``, ``A_i = sum_{j != i} K_ij g(S_j) + a p``,
``W_i = sum_{j != i} K_ij + a`` and ``m_x = (sum k_i g(S_i) + a p) / (sum k_i + a)`` the query's score s
conforms with row i while ``s (A_i + k_i g(s)) <= b_i`` with ``b_i = S_i (W_i + k_i) m_x``, which is up to

    s_i(x) = 2 b_i / (A_i + sqrt(A_i^2 + 4 k_i b_i)),   or, if that exceeds c,   b_i / (A_i + k_i c),

and the radius is the plain ``ceil((m + 1) level)``-th smallest of the s_i(x).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lvd._parallel import map_queries
from lvd._typing import Float, NDArray
from lvd._validation import InputError
from lvd.engine import Queries, SortedRows, similarities
from lvd.engine.quantiles import WeightedRows, finite_sample_ranks

GPU_WEIGHTS_AT_ONCE = 2**25
"""This many weights keep a GPU busy."""


@dataclass(frozen=True)
class Prior:
    """The scores expected before any calibration row is seen: their size, the weight of this expectation in
    rows, the bandwidth of neighbours' means, and the cap on a score in them; None for no cap."""

    size: float = 1.0
    strength: float = 3.0
    bandwidth: float = 1.0
    most: float | None = None

    def counted(self, scores: Float[Tensor, "m"]) -> Float[Tensor, "m"]:
        """The scores, capped as they count in neighbours' means."""
        return scores if self.most is None else scores.clamp(max=self.most)


@dataclass(frozen=True, eq=False)
class Others:
    """For each calibration row, the kernel sums over all others and the prior: A_i and W_i."""

    scores: Float[Tensor, "m"]
    weights: Float[Tensor, "m"]
    prior: Prior


def sum_others(rows: SortedRows, prior: Prior) -> Others:
    """Compute :class:`Others`, in O(m^2) time and O(m) memory."""
    if len(rows) == 0:
        return Others(rows.scores, rows.scores, prior)
    if float(rows.scores[0]) < 0.0:
        raise InputError(
            'guarantee="transductive" divides scores by those of their neighbours, so they must not be negative'
        )
    columns = torch.stack([prior.counted(rows.scores), torch.ones_like(rows.scores)], 1)
    widths = torch.full_like(rows.scores, prior.bandwidth)
    sums = (WeightedRows(rows.points, columns).sums(rows.points, widths) - columns).clamp_(min=0.0)
    return Others(sums[:, 0] + prior.strength * prior.size, sums[:, 1] + prior.strength, prior)


def transductive_radius(
    queries: Float[Tensor, "n k"], rows: SortedRows, others: Others, levels: Float[NDArray, "l"]
) -> Float[Tensor, "n l"]:
    """The radius of each query at each level, in O(m) per query."""
    ranks, prior = finite_sample_ranks(len(rows), levels), others.prior
    if len(rows) == 0:
        return queries.new_full((len(queries), len(levels)), torch.inf)
    widths = queries.new_full((len(queries),), prior.bandwidth)
    located, counted = Queries(queries, bandwidths=widths), prior.counted(rows.scores)

    def work(some: slice) -> Tensor:
        kernel = similarities(located[some], rows)
        mean = (kernel @ counted + prior.strength * prior.size) / (kernel.sum(1) + prior.strength)
        b = rows.scores * (others.weights + kernel) * mean[:, None]
        ends = 2.0 * b / (others.scores + (others.scores.square() + 4.0 * kernel * b).sqrt())
        if prior.most is not None:
            ends = torch.where(ends > prior.most, b / (others.scores + kernel * prior.most), ends)
        found = torch.full((len(ends), len(ranks)), torch.inf, dtype=ends.dtype, device=ends.device)
        for column, rank in enumerate(ranks.tolist()):
            if rank <= len(rows):
                found[:, column] = ends.kthvalue(rank, dim=1).values
        return found

    at_once = None if queries.device.type == "cpu" else GPU_WEIGHTS_AT_ONCE
    return torch.cat(map_queries(work, len(queries), len(rows), at_once))
