"""Small networks trained as one, of which each leaves a fold out, and the folds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lvd._typing import Float, Int, NDArray
from lvd.models.torch_modules import Parameters, forward

N_FOLDS = 5
MOST_EPOCHS = 200


def fold_numbers(n_rows: int, seed: int) -> Int[NDArray, "n"]:
    """The fold of each row."""
    from sklearn.model_selection import KFold  # slow to import, and only needed here

    numbers = np.empty(n_rows, np.int64)
    for fold, (_, rows) in enumerate(KFold(N_FOLDS, shuffle=True, random_state=seed).split(numbers)):
        numbers[rows] = fold
    return numbers


class Schedule(NamedTuple):
    """How networks are trained: AdamW's rate and decay, and after how many epochs without progress they stop."""

    rate: float = 2e-3
    decay: float = 1e-2
    batch: int = 128
    epochs: int = 200
    patience: int = 15


def train_fold_networks(
    fresh: Parameters,
    inputs: Float[Tensor, "n f"],
    targets: Float[Tensor, "n"],
    folds: Int[Tensor, "n"],
    losses_of: Callable[[Tensor, Tensor], Tensor],
    *,
    generator: torch.Generator,
    schedule: Schedule,
    blind: bool = False,
) -> Parameters:
    """Network f learns from the rows outside fold f, and is kept as it is when the loss on fold f is lowest.

    A `blind` one is kept when the other networks' losses on their folds are lowest: the rows of fold f, which it
    is to measure, then take no part in it, and look no better than new rows do. `losses_of` gives the losses (m, b)
    of outputs (m, b, o) for targets (b,) or (m, b).
    """
    n_folds = len(next(iter(fresh.values())))
    parameters = {name: tensor.clone().requires_grad_() for name, tensor in fresh.items()}
    optimizer = torch.optim.AdamW(parameters.values(), lr=schedule.rate, weight_decay=schedule.decay)
    rows = [(folds != fold).nonzero()[:, 0] for fold in range(n_folds)]
    counts = torch.bincount(folds, minlength=n_folds)
    judged = folds.argsort(stable=True).split(counts.tolist())
    # Folds differ by a row at most: the shorter ones are filled up with any row, which does not count.
    filled = torch.nn.utils.rnn.pad_sequence(list(judged), batch_first=True)
    counted = torch.arange(filled.shape[1]) < counts[:, None]
    size = min(len(some) for some in rows)
    best = torch.full((n_folds,), torch.inf)
    kept = {name: tensor.detach().clone() for name, tensor in parameters.items()}
    waited = 0
    for _ in range(min(schedule.epochs, MOST_EPOCHS)):
        order = torch.stack([some[torch.randperm(len(some), generator=generator)[:size]] for some in rows])
        for some in order.split(schedule.batch, dim=1):
            optimizer.zero_grad()
            losses_of(forward(parameters, inputs[some]), targets[some]).mean(1).sum().backward()
            optimizer.step()
        with torch.no_grad():
            found = losses_of(forward(parameters, inputs[filled]), targets[filled])
            losses = (found * counted).sum(1) / counts.clamp(min=1)
        if blind:
            losses = (losses.sum() - losses) / (n_folds - 1)
        better = losses < best - 1e-4
        best = torch.where(better, losses, best)
        for name, tensor in parameters.items():
            kept[name][better] = tensor.detach()[better]
        waited = 0 if bool(better.any()) else waited + 1
        if waited >= schedule.patience:
            break
    return kept
