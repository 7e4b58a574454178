"""Training of the metric by stochastic gradient descent on the leave-one-out loss."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from lvd._parallel import workers
from lvd._typing import Float, Int, NDArray
from lvd.kernels.leave_one_out import LeaveOneOut


def initial_components(n_components: int, n_columns: int, seed: int) -> Float[Tensor, "k h"]:
    """Weights as torch draws them for a Linear layer, from a generator of their own."""
    components = torch.empty(n_components, n_columns)
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.init.kaiming_uniform_(components, a=math.sqrt(5), generator=generator)


def draw_batches(n_rows: int, batch_size: int, seed: int) -> Iterator[Int[NDArray, "b"]]:
    """Endless batches, each without replacement."""
    rng = np.random.RandomState(seed)  # the paper's numbers were drawn from this generator
    while True:
        yield rng.choice(n_rows, min(batch_size, n_rows), replace=False)


def descend(
    problem: LeaveOneOut,
    components: Float[Tensor, "k h"],
    batches: Iterable[Int[NDArray, "b"]],
    learning_rate: float,
) -> Iterator[tuple[Float[Tensor, "k h"], float]]:
    """One Adam step per batch: the components after it, and the batch's mean loss before it."""
    parameter = components.clone()
    optimizer = torch.optim.Adam([parameter], lr=learning_rate)
    with workers(None if parameter.device.type == "cpu" else 1) as run:
        for batch in batches:
            rows = torch.as_tensor(batch, dtype=torch.int64, device=parameter.device)
            squared_errors, parameter.grad = problem.loss_and_gradient(parameter, rows, run)
            optimizer.step()
            yield parameter.clone(), float(squared_errors.mean())


def keep_best(
    steps: Iterable[tuple[Float[Tensor, "k h"], float]], patience: int
) -> tuple[Float[Tensor, "k h"], list[float]]:
    """The components right after the step of the batch with the lowest loss, and the losses of all batches.

    So the paper's numbers were made. Ends after `patience` + 1 batches in a row without a lower loss.
    """
    losses: list[float] = []
    best_step = 0
    for step, (components, loss) in enumerate(steps):
        losses.append(loss)
        if step == 0 or loss < losses[best_step]:
            best, best_step = components, step
        elif step - best_step > patience:
            break
    return best, losses
