"""The fast engine: weighted quantiles of many queries from block sums of float32 weights.

Calibration rows are sorted by score once. For each query only the sums over blocks of 128 rows are kept, as
float64; the block in which the cumulative weight crosses the level is then scanned. Where rounding could
decide, the row is computed again as the oracle does (or, for very large calibration sets, the wider of the
two candidates is taken), so that a radius is never narrower than the oracle's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lvd._typing import Bool, Float, Int, NDArray
from lvd.conformal.oracle import gaussian_weights, weighted_quantile
from lvd.kernels import tiles
from lvd.kernels.tiles import BLOCK

FLOAT32_SELF_WEIGHT = 1e-6
EXACT_ROWS = 65_536
"""Up to this many calibration rows an undecided query is settled in float64. Above, nearly every query would
be, so the wider candidate is taken: at most 1e-5 of the weight later."""


@dataclass(frozen=True)
class SortedCalibration:
    """Calibration rows in ascending order of their scores, ready for queries."""

    points: Float[Tensor, "m k"]
    scores: Float[Tensor, "m"]
    order: Int[Tensor, "m"]
    prepared: tiles.TilePoints

    @property
    def n_rows(self) -> int:
        """The number of calibration rows m."""
        return len(self.scores)


def sort_calibration(points: Float[Tensor, "m k"], scores: Float[Tensor, "m"]) -> SortedCalibration:
    """Sort by score (ties keep their order) and prepare the points, in scaled coordinates, for products."""
    order = torch.argsort(scores, stable=True)
    points = points[order]
    return SortedCalibration(points, scores[order], order, tiles.prepare_points(points))


def radius(
    queries: Float[Tensor, "n k"],
    calibration: SortedCalibration,
    levels: Float[NDArray, "l"],
    self_weights: Float[Tensor, "n"],
) -> Float[Tensor, "n l"]:
    """The local radius of each query at each level; `self_weights` is the mass at +inf, 1 for plain LVD."""
    scores = torch.cat([calibration.scores, calibration.scores.new_full((1,), torch.inf)])
    result = scores.new_full((len(queries), len(levels)), torch.inf)
    if calibration.n_rows == 0:
        return result
    left = tiles.left_factor(queries, calibration.prepared)
    wanted = torch.as_tensor(levels, device=queries.device)
    # The smaller a query's own weight, the smaller the weights that matter: float32 would lose them.
    single = tiles.float32_suffices(left, calibration.prepared) & (self_weights >= FLOAT32_SELF_WEIGHT)
    undecided = torch.zeros_like(single)

    def work(chunk: tiles.Chunk) -> None:
        rows = chunk.rows
        rank, decided = _crossing(left[rows], calibration.prepared, wanted, self_weights[rows, None], chunk)
        result[rows] = scores[rank]
        undecided[rows] = ~decided.all(1)

    tiles.run_chunks(work, single, calibration.prepared, torch.float32)
    exact = calibration.n_rows <= EXACT_ROWS
    tiles.run_chunks(work, ~single | (undecided & exact), calibration.prepared, torch.float64)
    if exact:
        result[undecided] = _by_oracle(queries[undecided], calibration, levels, self_weights[undecided])
    return result


def _crossing(
    left: Float[Tensor, "n a"],
    prepared: tiles.TilePoints,
    levels: Float[Tensor, "l"],
    self_weights: Float[Tensor, "n 1"],
    chunk: tiles.Chunk,
) -> tuple[Int[Tensor, "n l"], Bool[Tensor, "n l"]]:
    """Rank at which the level plus the error bound is reached; decided if the level minus it is reached there."""
    cumulative = _block_sums(left, prepared, chunk).cumsum_(1)
    total = cumulative[:, -1:] + self_weights
    margin = tiles.relative_error(left, prepared, chunk.dtype)[:, None]
    low, high = (levels - margin) * total, (levels + margin) * total
    block = torch.searchsorted(cumulative, high)
    finite = (block < cumulative.shape[1]) & (total > 0)
    block.clamp_(max=cumulative.shape[1] - 1)
    before = torch.where(block > 0, cumulative.gather(1, (block - 1).clamp(min=0)), 0.0)
    inside = _block_weights(left, prepared, block, chunk.dtype).double().cumsum_(-1).add_(before[..., None])
    below = (inside < high[..., None]).sum(-1)
    rank = torch.where(finite, block * BLOCK + below, prepared.n_points).clamp_(max=prepared.n_points)
    previous = torch.where(below > 0, inside.gather(-1, (below - 1).clamp(min=0)[..., None])[..., 0], before)
    # An infinite radius is certain when all rows together stay below the lower target.
    previous = torch.where(rank == prepared.n_points, cumulative[:, -1:], previous)
    return rank, previous < low


def _block_sums(
    left: Float[Tensor, "n a"], prepared: tiles.TilePoints, chunk: tiles.Chunk
) -> Float[Tensor, "n b"]:
    sums = left.new_empty(len(left), prepared.double.shape[1] // BLOCK)
    for columns, weights in tiles.weight_tiles(left, prepared, chunk):
        blocks = slice(columns.start // BLOCK, columns.stop // BLOCK)
        sums[:, blocks] = weights.view(len(left), -1, BLOCK).sum(2)
    return sums


def _block_weights(
    left: Float[Tensor, "n a"], prepared: tiles.TilePoints, block: Int[Tensor, "n l"], dtype: torch.dtype
) -> Float[Tensor, "n l w"]:
    """The weights inside one block per query and level."""
    n_columns, n_levels = left.shape[1], block.shape[1]
    blocks = prepared.right(dtype).view(n_columns, -1, BLOCK).index_select(1, block.flatten())
    factors = left.to(dtype).repeat_interleave(n_levels, 0)[:, None]
    return torch.bmm(factors, blocks.transpose(0, 1)).exp_().view(len(left), n_levels, BLOCK)


def _by_oracle(
    queries: Float[Tensor, "n k"],
    calibration: SortedCalibration,
    levels: Float[NDArray, "l"],
    self_weights: Float[Tensor, "n"],
) -> Float[Tensor, "n l"]:
    """The few queries in which even float64 rounding could decide: exact ties, as in a constant kernel."""
    points, scores = calibration.points.cpu().numpy(), calibration.scores.cpu().numpy()
    result = calibration.scores.new_empty(len(queries), len(levels))
    for row, (query, own) in enumerate(zip(queries.cpu().numpy(), self_weights.tolist(), strict=True)):
        weights = gaussian_weights(query, points)
        for column, level in enumerate(levels.tolist()):
            result[row, column] = weighted_quantile(scores, weights, own, level)
    return result
