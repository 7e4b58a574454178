"""Rectified conformal prediction (RCP 2025), and its form weighted by the density around the quantile (CPCP 2025).

A network tau(x) learns the quantile of the out-of-fold absolute errors; the score is |error| - tau(x). The
authors train it on part of the calibration set; here it uses the training rows, so that all calibration rows
calibrate.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from lvd._typing import Float, NDArray
from lvd.models.losses import quantile_loss
from lvd.models.scaling import mean_and_scale

HIDDEN, LEARNING_RATE, BATCH = 256, 2e-3, 1024
EPOCHS, PATIENCE, HELD_OUT = 200, 50, 0.1
"""The epochs in each of CPCP's two stages. RCP's single stage gets at most as many as both, with early stopping
on a tenth of its rows: twice as many epochs on all rows usually overfits."""
STEP = 0.02
"""The distance from the level of the two quantiles between which the density is measured."""
CLIP, MIX, LEAST_GAP = 5.0, 0.5, 1e-4

Quantile = Callable[[Float[NDArray, "n p"]], Float[NDArray, "n"]]


def learn_quantile(
    X: Float[NDArray, "n p"], errors: Float[NDArray, "n"], level: float, seed: int, *, weighted: bool
) -> Quantile:
    """The network's quantile of absolute errors, at least 1e-4 of their mean; `weighted` is CPCP, otherwise RCP."""
    generator = torch.Generator().manual_seed(seed)
    mean, scale = mean_and_scale(X)
    unit = float(errors.mean()) or 1.0
    inputs = torch.as_tensor((X - mean) / scale, dtype=torch.float32)
    targets = torch.as_tensor(errors / unit, dtype=torch.float32)
    network = _Quantiles(inputs.shape[1], generator)
    levels = torch.tensor([max(level - STEP, 0.01), level, min(level + STEP, 0.99)])
    if weighted:
        first, second = torch.randperm(len(inputs), generator=generator).tensor_split(2)

        def begin(rows: Tensor) -> Tensor:
            error = targets[first][rows, None] - network(inputs[first][rows])
            return quantile_loss(error, levels).sum(1).mean()

        _train(network, begin, len(first), EPOCHS, generator)
        with torch.no_grad():
            hidden, quantiles = network.trunk(inputs[second]), network(inputs[second])
        weights = 2 * STEP / (quantiles[:, 2] - quantiles[:, 0]).clamp(min=LEAST_GAP)

        def refine(rows: Tensor) -> Tensor:
            loss = quantile_loss(targets[second][rows] - network.centre(hidden[rows])[:, 0], levels[1])
            relative = (weights[rows] / weights[rows].mean()).clamp(max=CLIP)
            return MIX * (relative * loss).mean() + (1 - MIX) * loss.mean()

        _train(network.centre, refine, len(second), EPOCHS, generator)
    else:

        def whole(rows: Tensor) -> Tensor:
            return quantile_loss(targets[rows] - network(inputs[rows])[:, 1], levels[1]).mean()

        _train(network, whole, len(inputs), 2 * EPOCHS, generator, held_out=HELD_OUT)

    def quantile(rows: Float[NDArray, "n p"]) -> Float[NDArray, "n"]:
        with torch.no_grad():
            answer = network(torch.as_tensor((rows - mean) / scale, dtype=torch.float32))[:, 1]
        return np.maximum(answer.double().numpy(), LEAST_GAP) * unit

    return quantile


class _Quantiles(nn.Module):
    """A shared trunk with three heads: the quantile, and the distances to the ones below and above it."""

    def __init__(self, n_inputs: int, generator: torch.Generator) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(n_inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()
        )
        self.centre, self.gaps = nn.Linear(HIDDEN, 1), nn.Linear(HIDDEN, 2)
        for parameter in self.parameters():  # torch's default bounds, drawn from this generator
            fan_in = parameter.shape[1] if parameter.ndim == 2 else HIDDEN
            nn.init.uniform_(parameter, -(fan_in**-0.5), fan_in**-0.5, generator=generator)

    def forward(self, X: Tensor) -> Tensor:
        """The three quantiles, ascending."""
        hidden = self.trunk(X)
        centre, gaps = self.centre(hidden), nn.functional.softplus(self.gaps(hidden))
        return torch.cat([centre - gaps[:, :1], centre, centre + gaps[:, 1:]], dim=1)


def _train(
    learner: nn.Module,
    loss: Callable[[Tensor], Tensor],
    n_rows: int,
    epochs: int,
    generator: torch.Generator,
    *,
    held_out: float = 0.0,
) -> None:
    """Adam with early stopping on held-out rows, if any; the best weights are kept."""
    optimizer = torch.optim.Adam(learner.parameters(), lr=LEARNING_RATE)
    order = torch.randperm(n_rows, generator=generator)
    judged, learned = order.tensor_split([int(held_out * n_rows)])
    lowest, best, waited = math.inf, copy.deepcopy(learner.state_dict()), 0
    for _ in range(epochs):
        for rows in learned[torch.randperm(len(learned), generator=generator)].split(BATCH):
            optimizer.zero_grad()
            loss(rows).backward()
            optimizer.step()
        if not len(judged):
            continue
        with torch.no_grad():
            now = float(loss(judged))
        waited += 1
        if now < lowest:
            lowest, best, waited = now, copy.deepcopy(learner.state_dict()), 0
        if waited >= PATIENCE:
            break
    if len(judged):
        learner.load_state_dict(best)
