"""Exact coverage on average from all calibration rows, each of which serves scale and quantile (full
conformal prediction).

Each score S_i is divided by the kernel mean of all *other* scores, the query's included, shrunk towards a
prior p that was fixed beforehand. The set of query scores that conform among these is an interval whose end
has a closed form for each calibration row: with ``k_i = K(x, x_i)``, ``A_i = sum_{j != i} K_ij S_j + a p``,
``W_i = sum_{j != i} K_ij + a`` and ``m_x = (sum k_i S_i + a p) / (sum k_i + a)`` the query's score conforms
with row i up to

    s_i(x) = 2 b_i / (A_i + sqrt(A_i^2 + 4 k_i b_i)),   b_i = S_i (W_i + k_i) m_x,

and the radius is the plain ``ceil((m + 1) level)``-th smallest of the s_i(x).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lvd._parallel import map_queries
from lvd._typing import Float, NDArray
from lvd._validation import InputError
from lvd.kernels.sums import weighted_sums
from lvd.quantiles import Queries, SortedRows, similarities
from lvd.quantiles.finite_sample import finite_sample_ranks

GPU_WEIGHTS_AT_ONCE = 2**25
"""So many weights occupy a GPU."""


@dataclass(frozen=True)
class Prior:
    """What scores are expected to be before calibration rows are seen: their size, the weight of that expectation
    in rows, and the bandwidth within which rows tell about each other."""

    size: float = 1.0
    strength: float = 3.0
    bandwidth: float = 1.0


@dataclass(frozen=True, eq=False)
class Others:
    """For each calibration row the kernel sums over all others, with the prior: A_i and W_i."""

    scores: Float[Tensor, "m"]
    weights: Float[Tensor, "m"]
    prior: Prior


def sum_others(rows: SortedRows, prior: Prior) -> Others:
    """O(m^2) time once, O(m) memory."""
    if len(rows) == 0:
        return Others(rows.scores, rows.scores, prior)
    if float(rows.scores[0]) < 0.0:
        raise InputError(
            'guarantee="transductive" divides scores by those of their neighbours, so they must not be negative'
        )
    columns = torch.stack([rows.scores, torch.ones_like(rows.scores)], 1)
    widths = torch.full_like(rows.scores, prior.bandwidth)
    sums = (weighted_sums(rows.points, rows.points, columns, widths) - columns).clamp_(min=0.0)
    return Others(sums[:, 0] + prior.strength * prior.size, sums[:, 1] + prior.strength, prior)


def transductive_radius(
    queries: Float[Tensor, "n k"], rows: SortedRows, others: Others, levels: Float[NDArray, "l"]
) -> Float[Tensor, "n l"]:
    """The radius of each query at each level, O(m) a query."""
    ranks, prior = finite_sample_ranks(len(rows), levels), others.prior
    if len(rows) == 0:
        return queries.new_full((len(queries), len(levels)), torch.inf)
    widths = queries.new_full((len(queries),), prior.bandwidth)
    located = Queries(queries, bandwidths=widths)

    def work(some: slice) -> Tensor:
        kernel = similarities(located[some], rows)
        mean = (kernel @ rows.scores + prior.strength * prior.size) / (kernel.sum(1) + prior.strength)
        b = rows.scores * (others.weights + kernel) * mean[:, None]
        ends = 2.0 * b / (others.scores + (others.scores.square() + 4.0 * kernel * b).sqrt())
        found = torch.full((len(ends), len(ranks)), torch.inf, dtype=ends.dtype, device=ends.device)
        for column, rank in enumerate(ranks.tolist()):
            if rank <= len(rows):
                found[:, column] = ends.kthvalue(rank, dim=1).values
        return found

    at_once = None if queries.device.type == "cpu" else GPU_WEIGHTS_AT_ONCE
    return torch.cat(map_queries(work, len(queries), len(rows), at_once))
