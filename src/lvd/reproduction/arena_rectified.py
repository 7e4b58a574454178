"""Rectified conformal prediction (RCP 2025), and its form weighted by the density around the quantile (CPCP 2025).

A network tau(x) learns the quantile of the held-out absolute errors; the score is |error| - tau(x). The authors
take the rows for the network from the calibration set; here they are the training rows, so that all calibration
rows calibrate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor, nn

from lvd._typing import Float, NDArray
from lvd.models.scaling import mean_and_scale

HIDDEN, LEARNING_RATE, BATCH = 256, 2e-3, 1024
EPOCHS = 200
"""Of each of the two stages; RCP's one stage gets both."""
STEP = 0.02
"""How far from the level the two quantiles lie between which the density is measured."""
CLIP, MIX, LEAST_GAP = 5.0, 0.5, 1e-4

Quantile = Callable[[Float[NDArray, "n p"]], Float[NDArray, "n"]]


def learn_quantile(
    X: Float[NDArray, "n p"], errors: Float[NDArray, "n"], level: float, seed: int, *, weighted: bool
) -> Quantile:
    """The network's quantile of absolute errors, not below 1e-4 of their mean; `weighted` is CPCP's, else RCP's."""
    generator = torch.Generator().manual_seed(seed)
    mean, scale = mean_and_scale(X)
    unit = float(errors.mean()) or 1.0
    inputs = torch.as_tensor((X - mean) / scale, dtype=torch.float32)
    targets = torch.as_tensor(errors / unit, dtype=torch.float32)
    network = _Quantiles(inputs.shape[1], generator)
    levels = torch.tensor([max(level - STEP, 0.01), level, min(level + STEP, 0.99)])
    if weighted:
        order = torch.randperm(len(inputs), generator=generator)
        first, second = order[: len(order) // 2], order[len(order) // 2 :]
        _train(
            network.parameters(),
            lambda rows: (
                _pinball(targets[first][rows, None] - network(inputs[first][rows]), levels).sum(1).mean()
            ),
            len(first),
            EPOCHS,
            generator,
        )
        with torch.no_grad():
            hidden, quantiles = network.trunk(inputs[second]), network(inputs[second])
        weights = 2 * STEP / (quantiles[:, 2] - quantiles[:, 0]).clamp(min=LEAST_GAP)

        def refine(rows: Tensor) -> Tensor:
            loss = _pinball(targets[second][rows] - network.centre(hidden[rows])[:, 0], levels[1])
            relative = (weights[rows] / weights[rows].mean()).clamp(max=CLIP)
            return MIX * (relative * loss).mean() + (1 - MIX) * loss.mean()

        _train(network.centre.parameters(), refine, len(second), EPOCHS, generator)
    else:
        _train(
            network.parameters(),
            lambda rows: _pinball(targets[rows] - network(inputs[rows])[:, 1], levels[1]).mean(),
            len(inputs),
            2 * EPOCHS,
            generator,
        )

    def quantile(rows: Float[NDArray, "n p"]) -> Float[NDArray, "n"]:
        with torch.no_grad():
            answer = network(torch.as_tensor((rows - mean) / scale, dtype=torch.float32))[:, 1]
        return np.maximum(answer.double().numpy(), LEAST_GAP) * unit

    return quantile


class _Quantiles(nn.Module):
    """A trunk with three heads: the quantile, and how far the ones below and above it are."""

    def __init__(self, n_inputs: int, generator: torch.Generator) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(n_inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()
        )
        self.centre, self.gaps = nn.Linear(HIDDEN, 1), nn.Linear(HIDDEN, 2)
        for parameter in self.parameters():  # torch's own bounds, from this generator
            fan_in = parameter.shape[1] if parameter.ndim == 2 else HIDDEN
            nn.init.uniform_(parameter, -(fan_in**-0.5), fan_in**-0.5, generator=generator)

    def forward(self, X: Tensor) -> Tensor:
        """The three quantiles, ascending."""
        hidden = self.trunk(X)
        centre, gaps = self.centre(hidden), nn.functional.softplus(self.gaps(hidden))
        return torch.cat([centre - gaps[:, :1], centre, centre + gaps[:, 1:]], dim=1)


def _pinball(error: Tensor, level: Tensor) -> Tensor:
    return torch.maximum(level * error, (level - 1.0) * error)


def _train(
    parameters: Iterable[nn.Parameter],
    loss: Callable[[Tensor], Tensor],
    n_rows: int,
    epochs: int,
    generator: torch.Generator,
) -> None:
    optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE)
    for _ in range(epochs):
        for rows in torch.randperm(n_rows, generator=generator).split(BATCH):
            optimizer.zero_grad()
            loss(rows).backward()
            optimizer.step()
