"""Training of the metric by stochastic gradient descent on the leave-one-out loss (the paper's Eqs. 4-6).

The gradient is derived by hand: it needs only sums over tiles of weights, so no tensor of rows x batch x
components is ever stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import count, islice
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from lvd._parallel import ChunkMap, chunk_slices, run_in_turn, workers
from lvd._typing import Bool, Float, Int, NDArray
from lvd.engine import gpu

if TYPE_CHECKING:
    from lvd.kernels.compiled_training import CompiledNeighborhood
    from lvd.kernels.triton_training import FusedNeighborhood

SMALLEST_DENOMINATOR = 1e-7
TILE_POINTS = 4096
FEW_ROWS = 16_384
"""Up to this many rows a step on the CPU uses tiles, which reproduce the paper's numbers to the last digit."""
LEAST_EXPONENTS = {torch.float32: -80.0, torch.float64: -700.0}
"""Exponentials of smaller numbers count as 0: computing ones that underflow takes fifty times as long."""


@dataclass(frozen=True)
class LeaveOneOut:
    """The regression problem whose leave-one-out error the metric minimises.

    `scale` divides the squared distance: the number of components for a mean over them, 1 for their sum.
    With `smoothness` a row keeps its own weight 1, on the mean of the other targets.
    `max_neighbors` limits a prediction to the rows of largest weight, counting the row itself; None uses all.
    """

    rows: Float[Tensor, "n h"]
    y: Float[Tensor, "n"]
    scale: float
    smoothness: bool
    max_neighbors: int | None

    def fuses(self, n_components: int) -> bool:
        """Whether the fused GPU kernels apply: all rows count, in float32, on a GPU with Triton."""
        device, all_count = self.rows.device, self._n_kept() == len(self.y) - 1
        suited = all_count and self.rows.dtype == torch.float32 and device.type != "cpu"
        return suited and gpu.fuses_on(device, n_components)

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
        """Leave-one-out predictions, their denominators, and which of these were clamped."""
        if self.smoothness:
            numerator = numerator + (self.y.sum() - self.y[batch]) / (len(self.y) - 1)
            denominator = denominator + 1.0
        clamped = denominator < SMALLEST_DENOMINATOR
        denominator = denominator.clamp(min=SMALLEST_DENOMINATOR)
        return numerator / denominator, denominator, clamped

    def _n_kept(self) -> int:
        """How many other rows enter a prediction; with smoothness the row itself is one of `max_neighbors`."""
        n_others = len(self.y) - 1
        if self.max_neighbors is None:
            return n_others
        return max(1, min(self.max_neighbors, n_others) - self.smoothness)


@dataclass(frozen=True)
class SampledLeaveOneOut:
    """The same problem on a fresh sample of the rows in each step (the paper's B_2).

    `take` returns a sample as a :class:`LeaveOneOut`; its first `batch_size` rows are the batch. This estimates,
    without bias, the loss of a problem of the sample's size, not of the whole one: see `max_rows` of
    :class:`MahalanobisKernel`.
    """

    take: Callable[[Int[Tensor, "s"]], LeaveOneOut]
    batch_size: int

    def fuses(self, n_components: int) -> bool:
        """Never: a recorded step needs the same rows each time."""
        return False

    def loss_and_gradient(
        self, components: Float[Tensor, "k h"], sample: Int[Tensor, "s"], run: ChunkMap = run_in_turn
    ) -> tuple[Float[Tensor, "b"], Float[Tensor, "k h"]]:
        """Squared leave-one-out errors of the sample's first rows within the sample, and the gradient."""
        batch = torch.arange(min(self.batch_size, len(sample)), device=components.device)
        return self.take(sample).loss_and_gradient(components, batch, run)


@dataclass(frozen=True)
class TiledNeighborhood:
    """A batch and all projected rows in plain torch, with the weights in tiles of columns."""

    points: Float[Tensor, "n k"]
    batch: Int[Tensor, "b"]
    tiles: list[tuple[slice, Float[Tensor, "b _"]]]
    run: ChunkMap

    @classmethod
    def of(cls, points: Float[Tensor, "n k"], batch: Int[Tensor, "b"], run: ChunkMap) -> TiledNeighborhood:
        """Compute the weights, which both sums and gradient use."""
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
        """The gradient at the projected points of the batch, and that at the columns' points, multiplied into A."""
        (columns, weights), points, batch = tile, self.points, self.batch
        pull = torch.addcmul(offset, slope, y[columns]).mul_(weights)
        on_batch = pull.sum(1)[:, None] * points[batch] - pull @ points[columns]
        on_columns = pull.sum(0)[:, None] * points[columns] - pull.T @ points[batch]
        return on_batch, on_columns.T @ rows[columns]


def tile_weights(
    points: Float[Tensor, "n k"], batch: Int[Tensor, "b"], columns: slice
) -> Float[Tensor, "b t"]:
    """Kernel weights of the batch rows to a range of rows; a row's weight to itself is 0."""
    rows, others = points[batch], points[columns]
    norms = rows.square().sum(1, keepdim=True) + others.square().sum(1)
    exponents = norms.addmm_(rows, others.T, beta=-1.0, alpha=2.0)
    weights = exponents.clamp_(min=LEAST_EXPONENTS[exponents.dtype], max=0.0).exp_()
    inside = ((batch >= columns.start) & (batch < columns.stop)).nonzero()[:, 0]
    weights[inside, batch[inside] - columns.start] = 0.0
    return weights


STEPS_AT_A_TIME = 10
"""This many steps are enqueued on a GPU before the host reads their losses."""


def initial_components(n_components: int, n_columns: int, seed: int) -> Float[Tensor, "k h"]:
    """Weights initialised as in torch's Linear layer, from a separate generator."""
    components = torch.empty(n_components, n_columns)
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.init.kaiming_uniform_(components, a=math.sqrt(5), generator=generator)


def draw_batches(n_rows: int, batch_size: int, seed: int) -> Iterator[Int[NDArray, "b"]]:
    """Endless batches, each without replacement."""
    return map(_drawn(n_rows, min(batch_size, n_rows), seed).batch, count())


def draw_samples(n_rows: int, size: int, seed: int) -> Iterator[Int[NDArray, "s"]]:
    """Endless samples without replacement, in random order, from a generator that does not permute all rows."""
    rng = np.random.default_rng(seed)
    while True:
        yield rng.choice(n_rows, size, replace=False)


@lru_cache(maxsize=4)
def _drawn(n_rows: int, batch_size: int, seed: int) -> _Drawn:
    return _Drawn(n_rows, batch_size, seed)


class _Drawn:
    """The batches of a seed, drawn on demand: the kernels of several targets share them."""

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
    """One Adam step per batch; yields the components after it and the batch's mean loss before it."""
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
    """The same on a GPU: a step is recorded once as a CUDA graph, since launching it takes longer than computing
    it.

    The host reads the losses of several steps at a time, so a few may be wasted, and draws the next batches while
    the GPU works: a draw permutes all rows, which takes longer than a step.
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
    """A recorded step: a replay reads `rows`, updates `parameter` and stores the mean loss; the optimizer is
    reset."""

    def step() -> Tensor:
        squared_errors, parameter.grad = problem.loss_and_gradient(parameter, rows)
        optimizer.step()
        return squared_errors.mean()

    # A first step before recording compiles the kernels and allocates the optimizer's state.
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

    As in the paper's experiments. Stops after `patience` + 1 batches in a row without a lower loss.
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
    """The mean of the components over the second half of `n_steps` steps, and the losses of all batches.

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
