"""EPICSCORE (Cabezas and others 2025), Monte Carlo dropout: a predictive distribution of the score, made uniform.

A mixture density network with dropout models the distribution F(s | x) of the absolute error; the values of F
at the calibration rows are calibrated, and the radius is F's inverse at that level. The network learns from the
training rows' out-of-fold errors, so that all calibration rows calibrate. Passes are averaged as distributions
instead of sampled from; batch statistics are those of training, so that rows do not affect each other.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from lvd._typing import Float, NDArray
from lvd.models.scaling import mean_and_scale

HIDDEN, N_NORMALS, DROPOUT = 64, 3, 0.5
LEARNING_RATE, DECAY, DECAY_EPOCHS = 4e-3, 0.99, 5
BATCH, MOST_EPOCHS, PATIENCE, TRAIN_SHARE = 512, 500, 30, 0.7
"""The authors use batches of 28 rows and a rate of 1e-3; these were no worse on the tables tried, and fit the
arena's hour."""
PASSES = 100
ROWS_AT_ONCE = 2048


@dataclass(frozen=True, eq=False)
class ScoreDistribution:
    """F(s | x): the mean of the passes' distributions, each a mixture of normals."""

    network: nn.Module
    mean: Float[NDArray, "p"]
    scale: Float[NDArray, "p"]
    shift: float
    unit: float
    seed: int

    def cdf(self, X: Float[NDArray, "n p"], scores: Float[NDArray, "n"]) -> Float[NDArray, "n"]:
        """F at one score for each row."""
        standard = torch.as_tensor((scores - self.shift) / self.unit)
        blocks = zip(self._mixtures(X), standard.split(ROWS_AT_ONCE), strict=True)
        return torch.cat([_mixture_cdf(mixture, block) for mixture, block in blocks]).numpy()

    def quantile(self, X: Float[NDArray, "n p"], share: float) -> Float[NDArray, "n"]:
        """The score at which F reaches a share, by bisection; +inf for a share of 1, which no score reaches."""
        if share >= 1.0:
            return np.full(len(X), np.inf)
        found = []
        for mixture in self._mixtures(X):
            n_rows = mixture[0].shape[1]
            low, high = torch.full((2, n_rows), 1e3, dtype=torch.float64) * torch.tensor([[-1.0], [1.0]])
            for _ in range(60):
                middle = (low + high) / 2.0
                short = _mixture_cdf(mixture, middle) < share
                low, high = torch.where(short, middle, low), torch.where(short, high, middle)
            found.append(high)
        return np.maximum(torch.cat(found).numpy() * self.unit + self.shift, 0.0)

    def _mixtures(self, X: Float[NDArray, "n p"]) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Yield weights, means and deviations of all passes, by blocks of rows."""
        inputs, mixtures = torch.as_tensor((X - self.mean) / self.scale, dtype=torch.float32), []
        for block in inputs.split(ROWS_AT_ONCE):
            # All rows of a pass and all calls share the masks: F is one function, fixed before calibration.
            generator = torch.Generator().manual_seed(self.seed)
            with torch.no_grad():
                outputs = torch.stack([_forward(self.network, block, generator) for _ in range(PASSES)])
            # In float32 F would reach 1 well before its end.
            mixtures.append(_split_outputs(outputs.double()))
        return mixtures


def learn_scores(X: Float[NDArray, "n p"], errors: Float[NDArray, "n"], seed: int) -> ScoreDistribution:
    """The distribution of absolute errors, learned from training rows, 30% of which choose the epoch."""
    generator = torch.Generator().manual_seed(seed)
    (mean, scale), shift, unit = mean_and_scale(X), float(errors.mean()), float(errors.std()) or 1.0
    inputs = torch.as_tensor((X - mean) / scale, dtype=torch.float32)
    targets = torch.as_tensor((errors - shift) / unit, dtype=torch.float32)
    order = torch.randperm(len(inputs), generator=generator)
    train, held_out = order.tensor_split([int(TRAIN_SHARE * len(order))])
    network = _new_network(inputs.shape[1], generator)
    optimizer = torch.optim.Adamax(network.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, DECAY_EPOCHS, DECAY)
    lowest, best, waited = np.inf, copy.deepcopy(network), 0
    for _ in range(MOST_EPOCHS):
        network.train()
        for rows in train[torch.randperm(len(train), generator=generator)].split(BATCH):
            if len(rows) > 1:  # a batch of one row cannot be normalised
                optimizer.zero_grad()
                _loss(_forward(network, inputs[rows], generator), targets[rows]).backward()
                optimizer.step()
        schedule.step()
        network.eval()
        with torch.no_grad():
            loss = float(_loss(_forward(network, inputs[held_out], None), targets[held_out]))
        waited += 1
        if loss < lowest:
            lowest, best, waited = loss, copy.deepcopy(network), 0
        if waited >= PATIENCE:
            break
    return ScoreDistribution(best.eval(), mean, scale, shift, unit, seed)


def _new_network(n_inputs: int, generator: torch.Generator) -> nn.Sequential:
    network = nn.Sequential(
        *(nn.Linear(n_inputs, HIDDEN), nn.BatchNorm1d(HIDDEN)),
        *(nn.Linear(HIDDEN, HIDDEN), nn.BatchNorm1d(HIDDEN)),
        nn.Linear(HIDDEN, 3 * N_NORMALS),
    )
    for layer in network:
        if isinstance(layer, nn.Linear):
            bound = layer.in_features**-0.5
            for parameter in layer.parameters():
                nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return network


def _forward(network: nn.Module, inputs: Tensor, generator: torch.Generator | None) -> Tensor:
    """Linear, ReLU, batch normalisation and dropout, twice, then linear; without a generator, no dropout."""
    first, first_norm, second, second_norm, last = network.children()
    hidden = inputs
    for linear, norm in ((first, first_norm), (second, second_norm)):
        hidden = norm(torch.relu(linear(hidden)))
        if generator is not None:
            shape = hidden.shape if network.training else hidden.shape[1:]
            hidden = hidden * (torch.rand(shape, generator=generator) >= DROPOUT) / (1.0 - DROPOUT)
    return torch.as_tensor(last(hidden))


def _split_outputs(outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    weights, means, deviations = outputs.chunk(3, dim=-1)
    return weights.softmax(dim=-1), means, nn.functional.softplus(deviations) + 1e-4


def _loss(outputs: Tensor, targets: Tensor) -> Tensor:
    weights, means, deviations = _split_outputs(outputs)
    density = torch.distributions.Normal(means, deviations).log_prob(targets[:, None]).exp()
    return -torch.log((weights * density).sum(dim=-1) + 1e-8).mean()


def _mixture_cdf(mixture: tuple[Tensor, Tensor, Tensor], scores: Tensor) -> Tensor:
    weights, means, deviations = mixture
    below = torch.special.ndtr((scores[:, None] - means) / deviations)
    return (weights * below).sum(dim=-1).mean(dim=0)
