"""The leave-one-out loss of the learned metric (the paper's Eqs. 4-6) and its gradient, in tiles.

Written out by hand, because the gradient needs only sums over tiles of weights: no tensor of
rows x batch x components is ever held.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lvd._parallel import ChunkMap, chunk_slices, run_in_turn
from lvd._typing import Bool, Float, Int
from lvd.engine import gpu

if TYPE_CHECKING:
    from lvd.kernels.compiled_training import CompiledNeighborhood
    from lvd.kernels.triton_training import FusedNeighborhood

SMALLEST_DENOMINATOR = 1e-7
TILE_POINTS = 4096
FEW_ROWS = 16_384
"""Up to so many rows a step on the CPU is done in tiles, by whose last digits the paper's numbers were made."""
LEAST_EXPONENTS = {torch.float32: -80.0, torch.float64: -700.0}
"""Exponentials of less count as 0: those that underflow take fifty times as long."""


@dataclass(frozen=True)
class LeaveOneOut:
    """The regression problem whose leave-one-out error the metric minimises.

    `scale` divides the squared distance: the number of components for a mean over them, 1 for their sum.
    With `smoothness` a row keeps its own weight 1, on the mean of the other targets.
    `max_neighbors` limits a prediction to the rows of largest weight, the row itself counted; None takes all.
    """

    rows: Float[Tensor, "n h"]
    y: Float[Tensor, "n"]
    scale: float
    smoothness: bool
    max_neighbors: int | None

    def fuses(self, n_components: int) -> bool:
        """Whether the fused GPU kernels serve: all rows count, in float32, on a GPU with Triton."""
        return (
            self._n_kept() == len(self.y) - 1
            and self.rows.dtype == torch.float32
            and gpu.fuses_on(self.rows.device, n_components)
        )

    def loss_and_gradient(
        self, components: Float[Tensor, "k h"], batch: Int[Tensor, "b"], run: ChunkMap = run_in_turn
    ) -> tuple[Float[Tensor, "b"], Float[Tensor, "k h"]]:
        """Squared leave-one-out errors of the batch, and the gradient of their sum; `run` maps over tiles."""
        points = (self.rows @ components.T) * self.scale**-0.5
        points -= points.mean(0)
        neighborhood = self._neighborhood(points, batch, run)
        predicted, denominator, clamped = self._predict(batch, *neighborhood.sums(self.y))
        error = predicted - self.y[batch]

        # d(error^2)/d(squared distance) of row i to row j is  weight_ij (slope_i y_j + offset_i).
        slope = -2.0 * error / denominator
        offset = torch.where(clamped, 0.0, -slope * predicted)
        gradient = neighborhood.gradient(self.rows, self.y, slope, offset)
        return error.square(), gradient * (2.0 * self.scale**-0.5)

    def _neighborhood(
        self, points: Float[Tensor, "n k"], batch: Int[Tensor, "b"], run: ChunkMap
    ) -> TiledNeighborhood | CompiledNeighborhood | FusedNeighborhood:
        if self.fuses(points.shape[1]):
            from lvd.kernels.triton_training import FusedNeighborhood

            return FusedNeighborhood(points, batch)
        if self._n_kept() < len(self.y) - 1:
            return TiledNeighborhood.of(points, batch, run).nearest(self._n_kept())
        if len(points) > FEW_ROWS and points.device.type == "cpu" and points.dtype == torch.float32:
            from lvd.kernels.compiled_training import CompiledNeighborhood

            return CompiledNeighborhood.of(points, batch, run)
        return TiledNeighborhood.of(points, batch, run)

    def _predict(
        self, batch: Int[Tensor, "b"], numerator: Float[Tensor, "b"], denominator: Float[Tensor, "b"]
    ) -> tuple[Float[Tensor, "b"], Float[Tensor, "b"], Bool[Tensor, "b"]]:
        """Leave-one-out predictions, their denominators, and where these had to be raised."""
        if self.smoothness:
            numerator = numerator + (self.y.sum() - self.y[batch]) / (len(self.y) - 1)
            denominator = denominator + 1.0
        clamped = denominator < SMALLEST_DENOMINATOR
        denominator = denominator.clamp(min=SMALLEST_DENOMINATOR)
        return numerator / denominator, denominator, clamped

    def _n_kept(self) -> int:
        """How many other rows enter a prediction; with smoothness the row itself counts as one."""
        n_others = len(self.y) - 1
        if self.max_neighbors is None:
            return n_others
        return max(1, min(self.max_neighbors, n_others) - self.smoothness)


@dataclass(frozen=True)
class SampledLeaveOneOut:
    """The same problem on a sample of the rows, drawn anew for each step (the paper's B_2).

    `take` gives the rows and targets of a sample as a :class:`LeaveOneOut`; its first `batch_size` rows are the
    batch. This is an unbiased estimate of the loss of a problem with as many rows as the sample, not of the whole
    one: see `max_rows` of :class:`MahalanobisKernel`.
    """

    take: Callable[[Int[Tensor, "s"]], LeaveOneOut]
    batch_size: int

    def fuses(self, n_components: int) -> bool:
        """Never as one recorded step: the rows change."""
        return False

    def loss_and_gradient(
        self, components: Float[Tensor, "k h"], sample: Int[Tensor, "s"], run: ChunkMap = run_in_turn
    ) -> tuple[Float[Tensor, "b"], Float[Tensor, "k h"]]:
        """Squared leave-one-out errors of the sample's first rows within the sample, and the gradient."""
        batch = torch.arange(min(self.batch_size, len(sample)), device=components.device)
        return self.take(sample).loss_and_gradient(components, batch, run)


@dataclass(frozen=True)
class TiledNeighborhood:
    """The rows of a batch among all projected rows, in plain torch: weights in tiles of some columns."""

    points: Float[Tensor, "n k"]
    batch: Int[Tensor, "b"]
    tiles: list[tuple[slice, Float[Tensor, "b _"]]]
    run: ChunkMap

    @classmethod
    def of(cls, points: Float[Tensor, "n k"], batch: Int[Tensor, "b"], run: ChunkMap) -> TiledNeighborhood:
        """The weights are computed once, for sums and gradient."""
        slices = chunk_slices(len(points), TILE_POINTS)
        return cls(
            points,
            batch,
            list(zip(slices, run(partial(tile_weights, points, batch), slices), strict=True)),
            run,
        )

    def nearest(self, n_kept: int) -> TiledNeighborhood:
        """Only the `n_kept` rows of largest weight count for each row of the batch."""
        weights = torch.cat([tile for _, tile in self.tiles], dim=1)
        cut = weights.topk(n_kept, dim=1, sorted=False).values.amin(1, keepdim=True)
        return replace(
            self, tiles=[(columns, tile.masked_fill(tile < cut, 0.0)) for columns, tile in self.tiles]
        )

    def sums(self, y: Float[Tensor, "n"]) -> tuple[Float[Tensor, "b"], Float[Tensor, "b"]]:
        """Sums of weights times targets, and of weights, over all other rows."""
        parts = self.run(lambda tile: (tile[1] @ y[tile[0]], tile[1].sum(1)), self.tiles)
        numerator, denominator = (torch.stack(part).sum(0) for part in zip(*parts, strict=True))
        return numerator, denominator

    def gradient(
        self,
        rows: Float[Tensor, "n h"],
        y: Float[Tensor, "n"],
        slope: Float[Tensor, "b"],
        offset: Float[Tensor, "b"],
    ) -> Float[Tensor, "k h"]:
        """The sum over pairs of ``weight (slope y + offset) (p_i - p_j) (z_i - z_j)^T``."""
        parts = self.run(partial(self._pull, rows, y, slope[:, None], offset[:, None]), self.tiles)
        on_batch, on_columns = (torch.stack(part).sum(0) for part in zip(*parts, strict=True))
        return on_batch.T @ rows[self.batch] + on_columns

    def _pull(
        self,
        rows: Float[Tensor, "n h"],
        y: Float[Tensor, "n"],
        slope: Float[Tensor, "b 1"],
        offset: Float[Tensor, "b 1"],
        tile: tuple[slice, Float[Tensor, "b t"]],
    ) -> tuple[Float[Tensor, "b k"], Float[Tensor, "k h"]]:
        """How the loss pulls at the projected points of the batch, and, carried to A, at those of the columns."""
        (columns, weights), points, batch = tile, self.points, self.batch
        pull = torch.addcmul(offset, slope, y[columns]).mul_(weights)
        on_batch = pull.sum(1)[:, None] * points[batch] - pull @ points[columns]
        on_columns = pull.sum(0)[:, None] * points[columns] - pull.T @ points[batch]
        return on_batch, on_columns.T @ rows[columns]


def tile_weights(
    points: Float[Tensor, "n k"], batch: Int[Tensor, "b"], columns: slice
) -> Float[Tensor, "b t"]:
    """Kernel weights of the batch rows to a stretch of rows; a row's weight to itself is 0."""
    rows, others = points[batch], points[columns]
    norms = rows.square().sum(1, keepdim=True) + others.square().sum(1)
    exponents = norms.addmm_(rows, others.T, beta=-1.0, alpha=2.0)
    weights = exponents.clamp_(min=LEAST_EXPONENTS[exponents.dtype], max=0.0).exp_()
    inside = ((batch >= columns.start) & (batch < columns.stop)).nonzero()[:, 0]
    weights[inside, batch[inside] - columns.start] = 0.0
    return weights
