"""The guarantee of a radius, chosen at prediction time: the rules that turn one calibration into radii.

- ``"local"``, as in the paper: valid near each row, not on average.
- ``"randomized"`` (randomly localized, Hore and Barber 2023): marginal, and robustly local. The weights are
  centred not at the query but at a point drawn around it, so that query and calibration rows are exchangeable.
- ``"calibrated"`` (localized with a calibrated level, Guan 2023): exactly marginal, without randomness. For
  each calibration row, as for the test row, the rank of its own score among its localized neighbours is
  computed, and the level of the local quantile is chosen so that these ranks are covered.

Each row may have its own bandwidth h, determined by the training rows. For the local guarantee and the
calibrated level a kernel has the bandwidth of its centre; around a drawn centre c, each row has the density of
its own bandwidth, ``h^-k exp(-||c - u||^2 / h^2)``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from lvd._parallel import in_chunks
from lvd._typing import Float, Int, NDArray
from lvd.calibration.calibration_rows import draw_shares, row_uniforms
from lvd.engine import Queries, SortedRows, local_quantile

GUARANTEES = ("local", "randomized", "calibrated", "transductive")


def randomized_radius(
    queries: Queries,
    rows: SortedRows,
    levels: Float[NDArray, "l"],
    *,
    seed: int,
    keys: NDArray | None = None,
    smoothed: bool = False,
) -> Float[Tensor, "n l"]:
    """Radii around drawn centres. `keys` determine the draws, by default through the queries themselves.

    The smoothed form keeps v while ``p(v) = sum_i w_i 1{V_i > v} + U w_test > alpha``: a share U of the query's
    own mass stays at +inf and the rest moves to -inf.
    """
    points, h = queries.points, queries.bandwidths
    centres = draw_centres(points, seed, keys, h)
    own = queries.above * (centres - points).square().sum(1).mul(-queries.precisions).exp()
    if h is not None:
        own *= density_factors(h, points.shape[1])
    above, below = own, torch.zeros_like(own)
    if smoothed:
        above = own * draw_shares(points, seed, keys)
        below = own - above
    return local_quantile(Queries(centres, above, below), rows, levels).radius


def sample_points(rows: SortedRows, bandwidths: Float[Tensor, "m"] | None) -> SortedRows:
    """The rows with their densities at their own bandwidths, as weighted around drawn centres."""
    if bandwidths is None:
        return rows
    ratios = rows.weights * density_factors(bandwidths, rows.points.shape[1])
    return replace(rows, ratios=ratios, bandwidths=bandwidths)


def density_factors(bandwidths: Float[Tensor, "n"], n_components: int) -> Float[Tensor, "n"]:
    """``h^-k``, which puts the densities ``exp(-||u||^2 / h^2)`` of different h on one scale."""
    return bandwidths ** -float(n_components)


def draw_centres(
    queries: Float[Tensor, "n k"],
    seed: int,
    keys: NDArray | None = None,
    bandwidths: Float[Tensor, "n"] | None = None,
) -> Float[Tensor, "n k"]:
    """One centre per query, from the normal density proportional to the kernel ``exp(-||u||^2 / h^2)``."""
    normals = queries.new_tensor(ndtri(row_uniforms(queries, seed, queries.shape[1], keys)) * 0.5**0.5)
    return queries + (normals if bandwidths is None else normals * bandwidths[:, None])


@dataclass(frozen=True, eq=False)
class Standing:
    """What the calibrated level precomputes: for each row, the weight below its score and the total weight.

    Names follow the paper's Lemma: scores V ascending, ``V_{m+1} = +inf``; H_ij the kernel around row i with
    its bandwidth; h the same around the test row; ``id(i)`` the number of scores below ``V_i``. `below` is
    ``a_i = sum_{j <= id(i)} w_j H_ij``, `total` is ``b_i = sum_j w_j H_ij``; `n_below` is ``id(k)`` for k up to
    ``m + 1``. `blocks` are the rows, and `around` the rows with the bandwidths of their own kernels.

    For a test row with likelihood ratio w, ``theta(k) = sum_{j <= id(k)} w_j h_j / (w + sum_j w_j h_j)``. With
    the test row, the share of weight below row i is ``p2_i = a_i / (b_i + w H_i)``, or
    ``p1_i = (a_i + w H_i) / (b_i + w H_i)`` if the test row's score is the smaller one. S(k) is a share of
    likelihood ratios, since under a shift the test row is row i with probability proportional to w_i. It sums
    the rows with ``p1_i < theta(k)`` in the first set, where ``p1_i < theta(i)``; with ``p2_i < theta(k)`` in
    the second, where ``p2_i >= theta(i)``; and with ``id(i) < id(k)`` in the third, the rest.
    """

    below: Float[NDArray, "m"]
    total: Float[NDArray, "m"]
    n_below: Int[NDArray, "_"]
    blocks: Any
    around: Any


def standing(rows: SortedRows, bandwidths: Float[Tensor, "m"] | None = None) -> Standing:
    """Precompute :class:`Standing` in O(m^2) time and O(m) memory, on the CPU; bandwidths are in score order."""
    from lvd.engine.compiled import make_blocks, sums_below

    points, scores, ratios, _ = rows.on_host
    n_below = np.append(np.searchsorted(scores, scores), len(scores))
    below, total = np.empty(len(scores)), np.empty(len(scores))
    if not len(scores):
        return Standing(below, total, n_below, None, None)
    precisions = None if bandwidths is None else 1.0 / np.square(bandwidths.cpu().numpy())
    blocks, given = make_blocks(points), np.empty(0) if precisions is None else precisions

    def work(some: slice) -> None:
        sums_below(points[some], given[some], blocks, ratios, n_below[some], below[some], total[some])

    in_chunks(work, len(scores), len(scores))
    around = blocks if precisions is None else make_blocks(points, precisions=precisions)
    return Standing(below, total, n_below, blocks, around)


def calibrated_radius(
    queries: Queries, rows: SortedRows, known: Standing, levels: Float[NDArray, "l"]
) -> Float[Tensor, "n l"]:
    """The radius of each query at each level, in O(m log m) per query; `queries.above` are likelihood ratios.

    Always computed on the CPU: one bisection per query does not suit a GPU.
    """
    from lvd.engine.compiled import find_calibrated_ranks

    if not len(rows):
        return rows.scores.new_full((len(queries), len(levels)), torch.inf)
    points, own = queries.points.cpu().numpy(), queries.above.cpu().numpy()
    precisions = np.empty(0) if queries.bandwidths is None else queries.precisions.cpu().numpy()
    ranks = np.empty((len(queries), len(levels)), np.int64)

    def work(some: slice) -> None:
        find_calibrated_ranks(
            points[some], own[some], precisions[some], known.blocks, known.around, rows.on_host[2],
            known.below, known.total, known.n_below, levels, ranks[some],
        )  # fmt: skip

    in_chunks(work, len(queries), 8 * len(rows))
    return rows.ends[torch.as_tensor(ranks, device=rows.scores.device)]
