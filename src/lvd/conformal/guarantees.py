"""What a radius promises, chosen at predict time: the rules that turn one calibration into radii.

- ``"local"``, the paper's: valid near each row, not on average.
- ``"randomized"`` (randomly localized, Hore and Barber 2023): marginal, and robustly local. The weights are centred
  not at the query but at a point drawn around it, so that query and calibration rows play the same part.
- ``"calibrated"`` (localized with a calibrated level, Guan 2023): exactly marginal, without randomness. Each
  calibration row is asked, as the test row is, how its own score ranks among its localized neighbours, and the
  level of the local quantile is chosen so that these ranks are covered.

Each row may have a bandwidth h of its own, fixed by the training rows. Locally and for the calibrated level a
kernel has the bandwidth of its centre; around a drawn centre c, each row has the density of its own bandwidth,
``h^-k exp(-||c - u||^2 / h^2)``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from lvd._parallel import map_queries
from lvd._typing import Float, Int, NDArray
from lvd._validation import row_digests
from lvd.quantiles import Queries, SortedRows, local_quantile, similarities

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
    """Radii around drawn centres. `keys` are what the draws belong to, by default the queries themselves.

    The smoothed form keeps v while ``p(v) = sum_i w_i 1{V_i > v} + U w_test > alpha``: it leaves the share U of the
    query's own mass at +inf and moves the rest to -inf.
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
    """The rows with the densities of their own bandwidths, as they are weighed around drawn centres."""
    if bandwidths is None:
        return rows
    ratios = rows.weights * density_factors(bandwidths, rows.points.shape[1])
    return replace(rows, ratios=ratios, bandwidths=bandwidths)


def density_factors(bandwidths: Float[Tensor, "n"], n_components: int) -> Float[Tensor, "n"]:
    """``h^-k``: what makes ``exp(-||u||^2 / h^2)`` of different h densities on one scale."""
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


def draw_shares(queries: Float[Tensor, "n k"], seed: int, keys: NDArray | None = None) -> Float[Tensor, "n"]:
    """One number in (0, 1) per query, independent of its centre."""
    return queries.new_tensor(row_uniforms(queries, seed, queries.shape[1] + 1, keys)[:, -1])


def row_uniforms(
    rows: Float[Tensor, "n k"], seed: int, count: int, keys: NDArray | None = None
) -> Float[NDArray, "n c"]:
    """Numbers in (0, 1) that depend on a row's 64-bit key and the seed alone; by default a digest of the row."""
    keys = row_digests(rows.cpu().numpy()) if keys is None else keys
    state = keys[:, None] ^ _mix(np.full((1, 1), seed, dtype=np.uint64))
    mixed = _mix(state + _mix(np.arange(1, count + 1, dtype=np.uint64))[None, :])
    return (np.right_shift(mixed, np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _mix(state: NDArray) -> NDArray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@dataclass(frozen=True, eq=False)
class Standing:
    """What the calibrated level computes once: how much weight each row sees below its score, and in all.

    Names follow the paper's Lemma: scores V ascending, ``V_{m+1} = +inf``; H_ij the kernel around row i, with the
    bandwidth of row i; h the same around the test row; ``id(i)`` the number of scores below ``V_i``. `below` is
    ``a_i = sum_{j <= id(i)} w_j H_ij``, `total` is ``b_i = sum_j w_j H_ij``; `n_below` is ``id(k)``, k up to m + 1.
    """

    below: Float[Tensor, "m"]
    total: Float[Tensor, "m"]
    n_below: Int[Tensor, "_"]
    bandwidths: Float[Tensor, "m"] | None


def standing(rows: SortedRows, bandwidths: Float[Tensor, "m"] | None = None) -> Standing:
    """O(m^2) time, O(m) memory: the kernel matrix is streamed. The bandwidths are those of the rows, sorted."""
    scores = rows.scores
    m = len(scores)
    n_below = torch.cat([torch.searchsorted(scores, scores), torch.tensor([m], device=scores.device)])
    as_queries = Queries(rows.points, bandwidths=bandwidths)

    def stand(some: slice) -> tuple[Tensor, Tensor]:
        cumulative = similarities(as_queries[some], rows).mul_(rows.weights).cumsum_(1)
        chosen = n_below[some, None]
        below = torch.where(chosen > 0, cumulative.gather(1, (chosen - 1).clamp(min=0)), 0.0)[:, 0]
        return below, cumulative[:, -1].clone()

    parts = map_queries(stand, m, m)
    below, total = (torch.cat(part) for part in zip(*parts, strict=True)) if parts else (scores, scores)
    return Standing(below, total, n_below, bandwidths)


def calibrated_radius(
    queries: Queries, rows: SortedRows, known: Standing, levels: Float[NDArray, "l"]
) -> Float[Tensor, "n l"]:
    """The radius of each query at each level, O(m log m) a query; `queries.above` are its likelihood ratios."""
    scores = torch.cat([rows.scores, rows.scores.new_full((1,), torch.inf)])
    if len(rows) == 0:
        return scores.new_full((len(queries), len(levels)), torch.inf)

    def ranks(some: slice) -> Int[Tensor, "r l"]:
        return _calibrated_ranks(queries[some], rows, known, levels)

    return scores[torch.cat(map_queries(ranks, len(queries), len(rows)))]


def _calibrated_ranks(
    queries: Queries, rows: SortedRows, known: Standing, levels: Float[NDArray, "l"]
) -> Int[Tensor, "r l"]:
    """``k* = max{k : S(k) < level}``, counted from 0, so that m means +inf.

    S is a share of likelihood ratios: under a shift the test row is row i with a probability proportional to w_i.
    """
    h, own, weights = similarities(queries, rows), queries.above[:, None], rows.weights
    n_below = known.n_below.expand(len(h), -1)
    prefix = torch.nn.functional.pad((h * weights).cumsum(1), (1, 0))
    theta = prefix.gather(1, n_below).div_(own + prefix[:, -1:])
    # How much the test row weighs around each calibration row, in the kernel of that row's bandwidth.
    around = h
    if known.bandwidths is not None:
        kernels_of_rows = replace(rows, ratios=None, bandwidths=known.bandwidths)
        around = similarities(Queries(queries.points), kernels_of_rows)
    around = around * own
    total = known.total + around
    low, high = known.below / total, (known.below + around).div_(total)
    first = high < theta[:, :-1]
    second = low >= theta[:, :-1]
    # The third set counts by scores: rows whose score is below that of k are the first id(k) ones.
    by_score = torch.nn.functional.pad((weights * ~(first | second)).cumsum_(1), (1, 0)).gather(1, n_below)
    # A row is in one of the first two sets at most, so one sorted list holds the values of both.
    values = torch.where(first, high, low).masked_fill_(~(first | second), torch.inf)
    share = _mass_below(values, weights, theta).add_(by_score).div_(own + weights.sum())
    return torch.stack([(share < level).sum(1) - 1 for level in levels.tolist()], 1)


def _mass_below(
    values: Float[Tensor, "r m"], masses: Float[Tensor, "m"], thresholds: Float[Tensor, "r t"]
) -> Float[Tensor, "r t"]:
    """For each threshold of a row, the mass of its values below it."""
    ordered, indices = values.sort(1)
    mass = torch.nn.functional.pad(masses[indices].cumsum_(1), (1, 0))
    return mass.gather(1, torch.searchsorted(ordered, thresholds.contiguous()))
