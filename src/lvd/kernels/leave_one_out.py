"""The leave-one-out loss of the learned metric (the paper's Eqs. 4-6) and its gradient, in tiles.

Written out by hand, because the gradient needs only sums over tiles of weights: no tensor of
rows x batch x components is ever held.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from lvd._parallel import ChunkMap, chunk_slices, run_in_turn
from lvd._typing import Bool, Float, Int

SMALLEST_DENOMINATOR = 1e-7
TILE_POINTS = 4096


@dataclass(frozen=True)
class LeaveOneOut:
    """The regression problem whose leave-one-out error the metric minimises.

    `scale` divides the squared distance: the number of components for a mean over them, 1 for their sum.
    With `smoothness` a row keeps its own weight 1 and stands there for the mean of the other targets.
    `max_neighbors` limits a prediction to the rows of largest weight, the row itself counted; None takes all.
    """

    rows: Float[Tensor, "n h"]
    y: Float[Tensor, "n"]
    scale: float
    smoothness: bool
    max_neighbors: int | None

    def loss_and_gradient(
        self, components: Float[Tensor, "k h"], batch: Int[Tensor, "b"], run: ChunkMap = run_in_turn
    ) -> tuple[Float[Tensor, "b"], Float[Tensor, "k h"]]:
        """Squared leave-one-out errors of the batch, and the gradient of their sum; `run` maps over tiles."""
        points = (self.rows @ components.T) * self.scale**-0.5
        points -= points.mean(0)
        slices = chunk_slices(len(points), TILE_POINTS)
        neighborhood = _Neighborhood(points, batch, self._cut(points, batch, slices))
        predicted, denominator, clamped = self._predict(
            neighborhood, run(partial(self._sums, neighborhood), slices)
        )
        error = predicted - self.y[batch]

        # d(error^2)/d(squared distance) of row i to row j is  weight_ij (slope_i y_j + offset_i).
        slope = -2.0 * error / denominator
        offset = torch.where(clamped, 0.0, -slope * predicted)
        parts = run(partial(self._pull, neighborhood, slope[:, None], offset[:, None]), slices)
        on_batch, on_columns = (torch.stack(part).sum(0) for part in zip(*parts, strict=True))
        gradient = on_batch.T @ self.rows[batch] + on_columns
        return error.square(), gradient * (2.0 * self.scale**-0.5)

    def _sums(
        self, neighborhood: _Neighborhood, columns: slice
    ) -> tuple[Float[Tensor, "b"], Float[Tensor, "b"]]:
        weights = neighborhood.weights(columns)
        return weights @ self.y[columns], weights.sum(1)

    def _predict(
        self, neighborhood: _Neighborhood, sums: list[tuple[Tensor, Tensor]]
    ) -> tuple[Float[Tensor, "b"], Float[Tensor, "b"], Bool[Tensor, "b"]]:
        """Leave-one-out predictions, their denominators, and where these had to be raised."""
        numerator, denominator = (torch.stack(part).sum(0) for part in zip(*sums, strict=True))
        if self.smoothness:
            numerator = numerator + (self.y.sum() - self.y[neighborhood.batch]) / (len(self.y) - 1)
            denominator = denominator + 1.0
        clamped = denominator < SMALLEST_DENOMINATOR
        denominator = denominator.clamp(min=SMALLEST_DENOMINATOR)
        return numerator / denominator, denominator, clamped

    def _pull(
        self,
        neighborhood: _Neighborhood,
        slope: Float[Tensor, "b 1"],
        offset: Float[Tensor, "b 1"],
        columns: slice,
    ) -> tuple[Float[Tensor, "b k"], Float[Tensor, "k h"]]:
        """How the loss pulls at the projected points of the batch, and, carried to A, at those of the columns."""
        points, batch = neighborhood.points, neighborhood.batch
        pull = neighborhood.weights(columns) * torch.addcmul(offset, slope, self.y[columns])
        on_batch = pull.sum(1)[:, None] * points[batch] - pull @ points[columns]
        on_columns = pull.sum(0)[:, None] * points[columns] - pull.T @ points[batch]
        return on_batch, on_columns.T @ self.rows[columns]

    def _cut(
        self, points: Float[Tensor, "n k"], batch: Int[Tensor, "b"], slices: list[slice]
    ) -> Float[Tensor, "b 1"] | None:
        """The smallest weight that counts for each row of the batch, or None when all count.

        It is found in the very tiles that are compared with it: a product of another shape may round otherwise.
        """
        n_others = len(points) - 1
        if self.max_neighbors is None:
            return None
        n_kept = min(self.max_neighbors, n_others) - self.smoothness
        if n_kept >= n_others:
            return None
        uncut = _Neighborhood(points, batch, None)
        weights = torch.cat([uncut.weights(columns) for columns in slices], dim=1)
        return weights.topk(max(n_kept, 1), dim=1, sorted=False).values.amin(1, keepdim=True)


@dataclass(frozen=True)
class _Neighborhood:
    """The rows of a batch among all projected rows; weights below `cut` do not count."""

    points: Float[Tensor, "n k"]
    batch: Int[Tensor, "b"]
    cut: Float[Tensor, "b 1"] | None

    def weights(self, columns: slice) -> Float[Tensor, "b t"]:
        """Kernel weights of the batch rows to a stretch of rows; a row's weight to itself is 0."""
        rows, others = self.points[self.batch], self.points[columns]
        norms = rows.square().sum(1, keepdim=True) + others.square().sum(1)
        weights = torch.addmm(norms, rows, others.T, beta=-1.0, alpha=2.0).clamp_(max=0.0).exp_()
        inside = ((self.batch >= columns.start) & (self.batch < columns.stop)).nonzero()[:, 0]
        weights[inside, self.batch[inside] - columns.start] = 0.0
        return weights if self.cut is None else weights.masked_fill_(weights < self.cut, 0.0)
