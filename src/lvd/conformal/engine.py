"""The fast engine: weighted quantiles of many queries from block sums of float32 weights.

Calibration rows are sorted by score once. For each query only the sums over blocks of 128 rows are kept, as
float64; the block in which the cumulative weight crosses the level is then scanned. Where rounding could
decide, the row is computed again as the oracle does (or, for very large calibration sets, the wider of the
two candidates is taken), so that a radius is never narrower than the oracle's. On a GPU with Triton the same is
done by fused kernels (:mod:`lvd.conformal.triton_engine`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from lvd._typing import Bool, Float, Int, NDArray
from lvd.conformal.index import MOST_NORM, Clusters, make_clusters
from lvd.conformal.leaves import Leaves
from lvd.conformal.oracle import local_weights, weighted_quantile
from lvd.kernels import fused, tiles
from lvd.kernels.tiles import BLOCK

FLOAT32_SELF_WEIGHT, LEAST_FLOAT32_SELF_WEIGHT = 1e-6, 1e-12
LEAST_TOTAL = 1e-280
"""Below this total weight, weights matter that do not count even in float64; the oracle has them."""
EXACT_ROWS = 65_536
"""Up to this many calibration rows an undecided query is settled in float64. Above, nearly every query would
be, so the wider candidate is taken: at most 1e-5 of the weight later."""
GPU_EXACT_ROWS = 16_384
"""The same on a GPU, whose float64 units are slow beside all else: settling one query in ten at 26,744 rows would
take longer than the whole rest."""


@dataclass(frozen=True)
class SortedCalibration:
    """Calibration rows in ascending order of their scores, ready for queries.

    A row i weighs ``w_i K_e(x, x_i)`` for a query x: `weights` are the likelihood ratios w, 1 without a shift, and
    ``K_e = (1 - e) K + e`` is the kernel raised to its `floor` e. `floors` holds ``w_i e`` in blocks, None without.
    The numbers in `order` are places in `leaves`.
    """

    points: Float[Tensor, "m k"]
    scores: Float[Tensor, "m"]
    order: Int[Tensor, "m"]
    prepared: tiles.TilePoints
    weights: Float[Tensor, "m"]
    floor: float
    floors: Float[Tensor, "b w"] | None
    leaves: Leaves

    @property
    def n_rows(self) -> int:
        """The number of calibration rows m."""
        return len(self.scores)

    @cached_property
    def least_own(self) -> float:
        """The smallest own weight of a query that float32 can do: beside a smaller one, smaller weights matter."""
        return max(FLOAT32_SELF_WEIGHT * float(self.weights.max()), LEAST_FLOAT32_SELF_WEIGHT)

    @property
    def can_be_clustered(self) -> bool:
        """Whether the rows' squared distances are numbers."""
        return self.prepared.largest_norm < MOST_NORM

    @cached_property
    def clusters(self) -> Clusters:
        """The same rows in clusters of neighbours, for :mod:`lvd.conformal.index_search`."""
        return make_clusters(self.points, self.weights, self.leaves.of(self.order, self.points))

    @cached_property
    def on_gpu(self) -> Any:
        """The same rows as the fused GPU kernels read them, a FusedCalibration; its module needs Triton."""
        from lvd.conformal.triton_engine import FusedCalibration, Limits

        plain = self.floor == 0.0 and bool((self.weights == 1.0).all())
        return FusedCalibration(
            self.points,
            self.scores,
            None if plain else (1.0 - self.floor) * self.weights,
            self.floor * self.weights if self.floor > 0.0 else None,
            Limits(tiles.FLOAT32_TOLERANCE, self.least_own, self.n_rows <= GPU_EXACT_ROWS),
        )


def sort_calibration(
    points: Float[Tensor, "m k"],
    scores: Float[Tensor, "m"],
    *,
    weights: Float[Tensor, "m"] | None = None,
    floor: float = 0.0,
) -> SortedCalibration:
    """Sort by score (ties keep their order) and prepare the points, in scaled coordinates, for products."""
    order = torch.argsort(scores, stable=True)
    points = points[order]
    plain = weights is None and floor == 0.0
    weights = torch.ones_like(scores) if weights is None else weights[order]
    log_weights = None if plain else torch.log((1.0 - floor) * weights)
    padded = torch.nn.functional.pad(floor * weights, (0, -len(weights) % BLOCK)).view(-1, BLOCK)
    prepared = tiles.prepare_points(points, log_weights)
    floors, leaves = padded if floor > 0.0 else None, Leaves.unknown(len(scores))
    return SortedCalibration(points, scores[order], order, prepared, weights, floor, floors, leaves)


def similarities(queries: Float[Tensor, "n k"], calibration: SortedCalibration) -> Float[Tensor, "n m"]:
    """``K_e`` of all queries and rows as one float64 matrix, for what cannot be had from block sums."""
    distances = torch.cdist(queries, calibration.points, compute_mode="donot_use_mm_for_euclid_dist")
    kernel = distances.square_().neg_().exp_()
    return kernel.mul_(1.0 - calibration.floor).add_(calibration.floor) if calibration.floor > 0.0 else kernel


def radius(
    queries: Float[Tensor, "n k"],
    calibration: SortedCalibration,
    levels: Float[NDArray, "l"],
    self_weights: Float[Tensor, "n"] | None = None,
    below: Float[Tensor, "n"] | None = None,
) -> Float[Tensor, "n l"]:
    """The local radius of each query at each level.

    `self_weights` is the mass at +inf, by default 1, and `below` a mass at -inf, by default none: -inf is the
    answer where it alone reaches the level.
    """
    if is_fused(queries, calibration):
        return fused_answer(queries, calibration, levels, self_weights, below).radius
    return certified_radius(queries, calibration, levels, self_weights, below)[0]


def certified_radius(
    queries: Float[Tensor, "n k"],
    calibration: SortedCalibration,
    levels: Float[NDArray, "l"],
    self_weights: Float[Tensor, "n"] | None = None,
    below: Float[Tensor, "n"] | None = None,
) -> tuple[Float[Tensor, "n l"], Bool[Tensor, "n"]]:
    """The radii without the fused kernels, and where they are certainly the oracle's; elsewhere never narrower."""
    own = _masses(queries, self_weights, below)
    if calibration.n_rows == 0 or len(queries) == 0:
        nothing = _by_oracle(queries, calibration, levels, own)
        return nothing, torch.ones(len(queries), dtype=torch.bool, device=queries.device)
    if queries.device.type == "cpu":
        from lvd.conformal import index_search

        if index_search.pays(queries, calibration, own):
            return index_search.settled_search(queries, calibration, levels, own)
    return from_all_rows(queries, calibration, levels, own)


def from_all_rows(
    queries: Float[Tensor, "n k"],
    calibration: SortedCalibration,
    levels: Float[NDArray, "l"],
    own: Float[Tensor, "n 2"],
) -> tuple[Float[Tensor, "n l"], Bool[Tensor, "n"]]:
    """The radii from the weights of all rows, none left out; `own` holds the masses at +inf and at -inf."""
    # Rank m stands for +inf and rank -1, the last place, for -inf.
    scores = torch.cat([calibration.scores, calibration.scores.new_tensor([torch.inf, -torch.inf])])
    result = scores.new_full((len(queries), len(levels)), torch.inf)
    left = tiles.left_factor(queries, calibration.prepared)
    wanted = torch.as_tensor(levels, device=queries.device)
    single = tiles.float32_suffices(left, calibration.prepared) & (own.sum(1) >= calibration.least_own)
    undecided = torch.zeros_like(single)

    def work(chunk: tiles.Chunk) -> None:
        rows = chunk.rows
        rank, decided = _crossing(left[rows], calibration, wanted, own[rows], chunk)
        result[rows] = scores[rank]
        undecided[rows] = ~decided.all(1)

    tiles.run_chunks(work, single, calibration.prepared, torch.float32)
    settled = calibration.n_rows <= EXACT_ROWS
    tiles.run_chunks(work, ~single | (undecided & settled), calibration.prepared, torch.float64)
    if settled:
        result[undecided] = _by_oracle(queries[undecided], calibration, levels, own[undecided])
    return result, ~undecided | settled


def is_fused(queries: Float[Tensor, "n k"], calibration: SortedCalibration) -> bool:
    """Whether the fused GPU kernels answer these queries: there is a GPU for them, and something to compute."""
    anything = calibration.n_rows > 0 and len(queries) > 0
    return anything and fused.available(queries.device, queries.shape[1])


def fused_answer(
    queries: Float[Tensor, "n k"],
    calibration: SortedCalibration,
    levels: Float[NDArray, "l"],
    self_weights: Float[Tensor, "n"] | None = None,
    below: Float[Tensor, "n"] | None = None,
    *,
    values: Float[Tensor, "m"] | None = None,
) -> Any:
    """The Answer of the fused GPU kernels, in which no radius is left unsettled."""
    answer = calibration.on_gpu.answer(queries, levels, self_weights, below, values)
    rest = answer.unsettled
    if len(rest):
        own = _masses(queries, self_weights, below)[rest]
        answer.radius[rest] = _by_oracle(queries[rest], calibration, levels, own)
        if answer.exact is not None:
            answer.exact[rest] = True
    return answer


def _masses(
    queries: Float[Tensor, "n k"], self_weights: Float[Tensor, "n"] | None, below: Float[Tensor, "n"] | None
) -> Float[Tensor, "n 2"]:
    """The masses at +inf and at -inf side by side."""
    above = queries.new_ones(len(queries)) if self_weights is None else self_weights
    return torch.stack([above, torch.zeros_like(above) if below is None else below], 1)


def _crossing(
    left: Float[Tensor, "n a"],
    calibration: SortedCalibration,
    levels: Float[Tensor, "l"],
    own: Float[Tensor, "n 2"],
    chunk: tiles.Chunk,
) -> tuple[Int[Tensor, "n l"], Bool[Tensor, "n l"]]:
    """The ranks of some queries from tiles of weights."""
    prepared = calibration.prepared
    sums, tile = _block_sums(left, prepared, chunk)
    if calibration.floors is not None:
        sums += calibration.floors.sum(1)
    rounding = prepared.n_points * torch.finfo(torch.float64).eps
    margin = tiles.relative_error(left, prepared, chunk.dtype)[:, None] + rounding
    block_weights = partial(_block_weights, left, calibration, tile)
    return crossing(sums, block_weights, prepared.n_points, levels, own=own, margin=margin)


def crossing(
    sums: Float[Tensor, "n b"],
    block_weights: Callable[[Int[Tensor, "n l"]], Float[Tensor, "n l w"]],
    n_points: int,
    levels: Float[Tensor, "l"],
    *,
    own: Float[Tensor, "n 2"],
    margin: Float[Tensor, "n 1"],
    left_out: Float[Tensor, "n 1"] | float = 0.0,
) -> tuple[Int[Tensor, "n l"], Bool[Tensor, "n l"]]:
    """Rank at which the level plus the error bound is reached; decided if the level minus it is reached there.

    `sums` are those of the weights in blocks, and `block_weights` gives the weights of chosen blocks. `left_out`
    bounds what rows that are in no block may weigh, at whatever ranks.
    """
    below, cumulative = own[:, 1:], sums.cumsum(1)
    total = cumulative[:, -1:] + own.sum(1, keepdim=True)
    high = (levels + margin) * (total + left_out) - below
    low = (levels - margin) * total - (1.0 - levels) * left_out - below
    block = torch.searchsorted(cumulative, high)
    # What overflows is not a number, and no candidate.
    enough = (total > LEAST_TOTAL) & (total + high < torch.inf)
    finite = (block < cumulative.shape[1]) & enough
    block.clamp_(max=cumulative.shape[1] - 1)
    before = torch.where(block > 0, cumulative.gather(1, (block - 1).clamp(min=0)), 0.0)
    inside = block_weights(block).cumsum_(-1).add_(before[..., None])
    n_below = torch.searchsorted(inside, high[..., None])[..., 0]
    rank = torch.where(finite, block * BLOCK + n_below, n_points).clamp_(max=n_points)
    previous = torch.where(
        n_below > 0, inside.gather(-1, (n_below - 1).clamp(min=0)[..., None])[..., 0], before
    )
    # An infinite radius is certain when all rows together stay below the lower target.
    previous = torch.where(rank == n_points, cumulative[:, -1:], previous)
    nothing = (high <= 0.0) & enough
    return torch.where(nothing, -1, rank), (previous < low) & enough | nothing


def _block_sums(
    left: Float[Tensor, "n a"], prepared: tiles.TilePoints, chunk: tiles.Chunk
) -> tuple[Float[Tensor, "n b"], Float[Tensor, "n t w"]]:
    """The sums over blocks, and the blocks of the last tile: all of them, where one tile holds all rows."""
    sums = left.new_empty(len(left), prepared.double.shape[1] // BLOCK)
    for columns, weights in tiles.weight_tiles(left, prepared, chunk):
        tile = weights.view(len(left), -1, BLOCK)
        sums[:, columns.start // BLOCK : columns.stop // BLOCK] = tile.sum(2)
    return sums, tile


def _block_weights(
    left: Float[Tensor, "n a"],
    calibration: SortedCalibration,
    tile: Float[Tensor, "n t w"],
    block: Int[Tensor, "n l"],
) -> Float[Tensor, "n l w"]:
    """The weights inside one block per query and level: those of the tile if it holds all rows, or made again."""
    right, n_levels = calibration.prepared.right(tile.dtype), block.shape[1]
    if tile[0].numel() == right.shape[1]:
        weights = tile[torch.arange(len(left), device=left.device)[:, None], block].double()
    else:
        blocks = right.view(len(right), -1, BLOCK).index_select(1, block.flatten())
        factors = left.to(tile.dtype).repeat_interleave(n_levels, 0)[:, None]
        exponents = torch.bmm(factors, blocks.transpose(0, 1)).view(len(left), n_levels, BLOCK)
        weights = tiles.exp_without_underflow(exponents).double()
    return weights if calibration.floors is None else weights.add_(calibration.floors[block])


def _by_oracle(
    queries: Float[Tensor, "n k"],
    calibration: SortedCalibration,
    levels: Float[NDArray, "l"],
    own: Float[Tensor, "n 2"],
) -> Float[Tensor, "n l"]:
    """The few queries in which even float64 rounding could decide: exact ties, as in a constant kernel."""
    points, scores, weights = (
        part.cpu().numpy() for part in (calibration.points, calibration.scores, calibration.weights)
    )
    result = calibration.scores.new_empty(len(queries), len(levels))
    for row, (query, (above, below)) in enumerate(zip(queries.cpu().numpy(), own.tolist(), strict=True)):
        local = local_weights(query, points, weights, calibration.floor)
        for column, level in enumerate(levels.tolist()):
            result[row, column] = weighted_quantile(scores, local, above, level, below)
    return result
