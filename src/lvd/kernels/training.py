"""Training of the metric by stochastic gradient descent on the leave-one-out loss."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import count, islice
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from lvd._parallel import workers
from lvd._typing import Float, Int, NDArray
from lvd.kernels.leave_one_out import LeaveOneOut, SampledLeaveOneOut

STEPS_AT_A_TIME = 10
"""So many steps are enqueued on a GPU before the host looks at their losses."""


def initial_components(n_components: int, n_columns: int, seed: int) -> Float[Tensor, "k h"]:
    """Weights as torch draws them for a Linear layer, from a generator of their own."""
    components = torch.empty(n_components, n_columns)
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.init.kaiming_uniform_(components, a=math.sqrt(5), generator=generator)


def draw_batches(n_rows: int, batch_size: int, seed: int) -> Iterator[Int[NDArray, "b"]]:
    """Endless batches, each without replacement."""
    return map(_drawn(n_rows, min(batch_size, n_rows), seed).batch, count())


def draw_samples(n_rows: int, size: int, seed: int) -> Iterator[Int[NDArray, "s"]]:
    """Endless samples without replacement, in random order, from a generator that need not permute all rows."""
    rng = np.random.default_rng(seed)
    while True:
        yield rng.choice(n_rows, size, replace=False)


@lru_cache(maxsize=4)
def _drawn(n_rows: int, batch_size: int, seed: int) -> _Drawn:
    return _Drawn(n_rows, batch_size, seed)


class _Drawn:
    """The batches of a seed, drawn when first asked for: the kernels of several targets share them."""

    def __init__(self, n_rows: int, batch_size: int, seed: int) -> None:
        self.n_rows, self.batch_size = n_rows, batch_size
        self.rng = np.random.RandomState(seed)  # the paper's numbers were drawn from this generator
        self.batches: list[Int[NDArray, "b"]] = []
        self.lock = Lock()

    def batch(self, number: int) -> Int[NDArray, "b"]:
        with self.lock:
            while len(self.batches) <= number:
                self.batches.append(self.rng.choice(self.n_rows, self.batch_size, replace=False))
            return self.batches[number]


def descend(
    problem: LeaveOneOut | SampledLeaveOneOut,
    components: Float[Tensor, "k h"],
    batches: Iterable[Int[NDArray, "b"]],
    learning_rate: float,
) -> Iterator[tuple[Float[Tensor, "k h"], float]]:
    """One Adam step per batch: the components after it, and the batch's mean loss before it."""
    if problem.fuses(len(components)):
        yield from _descend_by_replay(problem, components, batches, learning_rate)
        return
    parameter = components.clone()
    optimizer = torch.optim.Adam([parameter], lr=learning_rate)
    with workers(None if parameter.device.type == "cpu" else 1) as run:
        for batch in batches:
            rows = torch.as_tensor(batch, dtype=torch.int64, device=parameter.device)
            squared_errors, parameter.grad = problem.loss_and_gradient(parameter, rows, run)
            optimizer.step()
            yield parameter.clone(), float(squared_errors.mean())


def _descend_by_replay(
    problem: LeaveOneOut | SampledLeaveOneOut,
    components: Float[Tensor, "k h"],
    batches: Iterable[Int[NDArray, "b"]],
    learning_rate: float,
) -> Iterator[tuple[Float[Tensor, "k h"], float]]:
    """The same on a GPU: a step is recorded once as a CUDA graph, for launching it takes longer than computing it.

    The host reads the losses of several steps at a time, so a few may be computed in vain, and draws
    the next batches while the GPU works: a draw permutes all rows, which takes longer than a step.
    """
    upcoming = iter(batches)
    parameter = components.clone()
    optimizer = torch.optim.Adam([parameter], lr=learning_rate, capturable=True)
    graph = None
    table = list(islice(upcoming, STEPS_AT_A_TIME))
    while table:
        on_device = torch.as_tensor(np.stack(table), dtype=torch.int64, device=parameter.device)
        if graph is None:
            rows = on_device[0].clone()
            loss, graph = _record_step(problem, parameter, rows, optimizer)
            parameter.copy_(components)
        history = parameter.new_empty(len(table), *parameter.shape)
        losses = parameter.new_empty(len(table))
        for step, batch in enumerate(on_device):
            rows.copy_(batch)
            graph.replay()
            history[step].copy_(parameter)
            losses[step].copy_(loss)
        table = list(islice(upcoming, STEPS_AT_A_TIME))
        yield from zip(history, losses.tolist(), strict=True)


def _record_step(
    problem: LeaveOneOut | SampledLeaveOneOut,
    parameter: Float[Tensor, "k h"],
    rows: Int[Tensor, "b"],
    optimizer: torch.optim.Adam,
) -> tuple[Float[Tensor, ""], torch.cuda.CUDAGraph]:
    """A step whose replay reads `rows`, moves `parameter` and leaves the mean loss; the optimizer is as new."""

    def step() -> Tensor:
        squared_errors, parameter.grad = problem.loss_and_gradient(parameter, rows)
        optimizer.step()
        return squared_errors.mean()

    # A first step outside the recording compiles the kernels and makes the optimizer's state.
    aside = torch.cuda.Stream(parameter.device)
    aside.wait_stream(torch.cuda.current_stream(parameter.device))
    with torch.cuda.stream(aside):
        step()
    torch.cuda.current_stream(parameter.device).wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    for value in optimizer.state[parameter].values():
        value.zero_()
    return loss, graph


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


def keep_average(
    steps: Iterable[tuple[Float[Tensor, "k h"], float]], n_steps: int
) -> tuple[Float[Tensor, "k h"], list[float]]:
    """The mean of the components after each of the second half of `n_steps` steps, and the losses of all batches.

    Which batch has the lowest loss is mostly luck, and the steps before it may be few.
    """
    losses: list[float] = []
    total: Tensor | float = 0.0
    for step, (components, loss) in enumerate(steps):
        losses.append(loss)
        if step >= n_steps // 2:
            total = total + components
    assert isinstance(total, Tensor)
    return total / (n_steps - n_steps // 2), losses
