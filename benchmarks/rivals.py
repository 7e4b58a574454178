"""The straightforward implementations that ours is measured against."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

MATRIX_ELEMENTS = {"cpu": 2**25, "cuda": 2**28}
"""Plain torch takes as many queries at a time as keep their weight matrix below this many numbers."""


def sorted_by_score(points: Any, scores: Any, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Points sorted by score, and the radius of each rank, including the infinite one."""
    points, scores = torch.as_tensor(points), torch.as_tensor(scores)
    order = torch.argsort(scores, stable=True)
    return points[order].to(dtype), torch.cat([scores[order], scores.new_tensor([torch.inf])])


def full_matrix_radii(queries: Tensor, points: Tensor, radii: Tensor, levels: list[float]) -> Tensor:
    """Plain torch on sorted points: full weight matrices, for chunks of the queries."""
    parts = queries.split(max(1, MATRIX_ELEMENTS[points.device.type] // len(points)))
    return radii[torch.cat([full_matrix_ranks(part, points, levels) for part in parts])]


def full_matrix_ranks(queries: Tensor, points: Tensor, levels: list[float]) -> Tensor:
    """Plain torch: all distances, all exponentials, cumulative sums, searchsorted. Points sorted by score."""
    squared = (queries**2).sum(1, keepdim=True) + (points**2).sum(1) - 2 * queries @ points.T
    cumulative = torch.exp(-squared).cumsum(1)
    wanted = torch.stack([level * (cumulative[:, -1] + 1) for level in levels], 1)
    return torch.searchsorted(cumulative, wanted)


def float64_ranks(queries: Tensor, points: Tensor, levels: list[float]) -> Tensor:
    """The same in float64 and by differences, which avoids cancellation."""
    squared = torch.cdist(queries, points, compute_mode="donot_use_mm_for_euclid_dist").square_()
    cumulative = squared.neg_().exp_().cumsum(1)
    wanted = torch.stack([level * (cumulative[:, -1] + 1) for level in levels], 1)
    return torch.searchsorted(cumulative, wanted)


def row_by_row_ranks(queries: Tensor, points: Tensor, levels: list[float]) -> list[list[int]]:
    """One query at a time, as in the paper's script."""
    ranks = []
    for query in queries:
        weights = torch.exp(-((query - points) ** 2).sum(-1))
        weights = torch.cat([weights, weights.new_ones(1)])
        cumulative = (weights / weights.sum()).cumsum(0)
        ranks.append([int(torch.searchsorted(cumulative.cpu(), torch.tensor(level))) for level in levels])
    return ranks


def row_by_row_loss(components: Tensor, rows: Tensor, y: Tensor, batch: Tensor, neighbors: int) -> Tensor:
    """The leave-one-out loss one row at a time, differentiated by autograd (smoothness on)."""
    mean_of_others = (y.sum() - y) / (len(y) - 1)
    losses = []
    for i in batch.tolist():
        squared = ((rows[i] - rows) @ components.T).square().mean(1)
        weights, chosen = torch.exp(-squared).topk(neighbors)
        targets = torch.where(chosen == i, mean_of_others[i], y[chosen])
        losses.append(((weights * targets).sum() / weights.sum().clamp(min=1e-7) - y[i]).square())
    return torch.stack(losses).sum()


def batched_loss(components: Tensor, rows: Tensor, y: Tensor, batch: Tensor, neighbors: int | None) -> Tensor:
    """The same for the whole batch at once in plain torch, differentiated by autograd."""
    points = rows @ components.T
    chosen = points[batch]
    squared = (chosen**2).sum(1, keepdim=True) + (points**2).sum(1) - 2 * chosen @ points.T
    weights = torch.exp(-squared.clamp(min=0) / len(components)).scatter(1, batch[:, None], 1.0)
    others = ((y.sum() - y[batch]) / (len(y) - 1))[:, None]
    targets = y.expand(len(batch), -1).scatter(1, batch[:, None], others)
    if neighbors is not None:
        weights, indices = weights.topk(neighbors, dim=1, sorted=False)
        targets = targets.gather(1, indices)
    predicted = (weights * targets).sum(1) / weights.sum(1).clamp(min=1e-7)
    return (predicted - y[batch]).square().sum()
