"""The leave-one-out loss of the learned metric (the paper's Eqs. 4-6) and its gradient, in tiles.

Written out by hand, because the gradient needs only sums over tiles of weights: no tensor of
rows x batch x components is ever held.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lvd._parallel import ChunkMap, chunk_slices, run_in_turn
from lvd._typing import Float, Int

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
        targets = self.y[batch]
        cut = self._cut(points, batch)
        slices = chunk_slices(len(points), TILE_POINTS)

        def sums(columns: slice) -> tuple[Tensor, Tensor]:
            weights = _weights(points, batch, columns, cut)
            return weights @ self.y[columns], weights.sum(1)

        partial = run(sums, slices)
        numerator = torch.stack([p[0] for p in partial]).sum(0)
        denominator = torch.stack([p[1] for p in partial]).sum(0)
        if self.smoothness:
            numerator = numerator + (self.y.sum() - targets) / (len(points) - 1)
            denominator = denominator + 1.0
        clamped = denominator < SMALLEST_DENOMINATOR
        denominator = denominator.clamp(min=SMALLEST_DENOMINATOR)
        predicted = numerator / denominator
        error = predicted - targets

        # d(error^2)/d(squared distance) of row i to row j is  weight_ij (slope_i y_j + offset_i).
        slope = -2.0 * error / denominator
        offset = torch.where(clamped, 0.0, -slope * predicted)

        def gradient(columns: slice) -> tuple[Tensor, Tensor]:
            pull = _weights(points, batch, columns, cut)
            pull *= torch.addcmul(offset[:, None], slope[:, None], self.y[columns])
            on_columns = pull.sum(0)[:, None] * points[columns] - pull.T @ points[batch]
            on_batch = pull.sum(1)[:, None] * points[batch] - pull @ points[columns]
            return on_batch, on_columns.T @ self.rows[columns]

        parts = run(gradient, slices)
        on_batch = torch.stack([p[0] for p in parts]).sum(0)
        total = on_batch.T @ self.rows[batch] + torch.stack([p[1] for p in parts]).sum(0)
        return error.square(), total * (2.0 * self.scale**-0.5)

    def _cut(self, points: Float[Tensor, "n k"], batch: Int[Tensor, "b"]) -> Tensor | None:
        """The smallest weight that counts for each row of the batch, or None when all count."""
        n_others = len(points) - 1
        if self.max_neighbors is None:
            return None
        n_kept = min(self.max_neighbors, n_others) - self.smoothness
        if n_kept >= n_others:
            return None
        weights = _weights(points, batch, slice(None), None)
        return weights.topk(max(n_kept, 1), dim=1, sorted=False).values.amin(1, keepdim=True)


def _weights(
    points: Float[Tensor, "n k"], batch: Int[Tensor, "b"], columns: slice, cut: Tensor | None
) -> Float[Tensor, "b t"]:
    """Kernel weights of the batch rows to a stretch of rows; a row's weight to itself is 0."""
    rows, others = points[batch], points[columns]
    start = columns.start or 0
    exponent = torch.mm(2.0 * rows, others.T) - rows.square().sum(1, keepdim=True) - others.square().sum(1)
    weights = exponent.clamp_(max=0.0).exp_()
    inside = ((batch >= start) & (batch < start + len(others))).nonzero()[:, 0]
    weights[inside, batch[inside] - start] = 0.0
    return weights if cut is None else weights.masked_fill_(weights < cut, 0.0)
