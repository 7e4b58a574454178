"""Networks of the same shape trained as one: stacked parameters, one batched product per layer, one optimizer.

`torch.func.vmap` over a functional call computes the same, but its overhead per step is several times the cost
of the small products it batches; ``benchmarks/deep_ensemble_stack.py`` measures both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TypeVar

import torch
from torch import Tensor

from lvd._parallel import chunk_slices, workers
from lvd._typing import ArrayLike, Float, NDArray
from lvd._validation import InputError, check_matrix, resolve_device
from lvd.models.scaling import mean_and_scale
from lvd.models.torch_modules import Parameters, forward, layers, new_stack

Result = TypeVar("Result")
Objective = Callable[[Parameters, Tensor, Tensor], Tensor]

EVALUATION_NUMBERS = 2_000_000


def train_stack(
    parameters: Parameters,
    inputs: Float[Tensor, "n p"],
    targets: Float[Tensor, "n t"],
    objective: Objective,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    generator: torch.Generator,
) -> Parameters:
    """The parameters after `epochs` of Adam, where each member sees the rows in its own order.

    `objective` returns each member's loss on a batch; the losses are summed, so members do not affect each other.
    """
    parameters = {name: tensor.clone().requires_grad_() for name, tensor in parameters.items()}
    optimizer = torch.optim.Adam(parameters.values(), lr=learning_rate, fused=True)
    n_members = len(next(iter(parameters.values())))
    losses = targets.new_zeros(n_members)
    for _ in range(epochs):
        order = torch.rand(n_members, len(inputs), generator=generator).argsort(1).to(inputs.device)
        for rows in order.split(batch_size, dim=1):
            optimizer.zero_grad()
            losses = objective(parameters, inputs[rows], targets[rows])
            losses.sum().backward()
            optimizer.step()
    if not torch.isfinite(losses).all():
        raise InputError("training diverged: the last batch's loss is not finite; lower learning_rate")
    return {name: tensor.detach() for name, tensor in parameters.items()}


def map_outputs(
    function: Callable[[slice, Tensor], Result], parameters: Parameters, inputs: Float[Tensor, "n p"]
) -> list[Result]:
    """``function(rows, outputs)`` for each chunk of rows, with every member's outputs (m, rows, o).

    Computed in float64, so a row's result does not depend on the other rows.
    """
    parameters, inputs = {name: tensor.double() for name, tensor in parameters.items()}, inputs.double()
    n_members = len(next(iter(parameters.values())))
    widest = max(weight.shape[1] for weight, _ in layers(parameters))

    def evaluate(rows: slice) -> Result:
        return function(rows, forward(parameters, inputs[rows].expand(n_members, -1, -1)).cpu())

    with workers(None if inputs.device.type == "cpu" else 1) as run:
        return run(evaluate, chunk_slices(len(inputs), max(1, EVALUATION_NUMBERS // (n_members * widest))))


@dataclass(eq=False)
class NetStack:
    """A stack of networks on standardised inputs and targets.

    `outputs_per_target` is 1 for networks that predict a value, 2 for those that predict mean and variance.
    """

    n_members: int
    hidden_sizes: Sequence[int]
    _: KW_ONLY
    outputs_per_target: int = 1
    device: str = "auto"

    def check(self, X: ArrayLike) -> Float[NDArray, "n p"]:
        """Return a finite matrix with the columns of `fit`."""
        return check_matrix(X, n_columns=len(self.x_mean_) if hasattr(self, "x_mean_") else None)

    def fit(
        self,
        X: Float[NDArray, "n p"],
        y: Float[NDArray, "n t"],
        objective: Objective,
        *,
        epochs: int,
        batch_size: int,
        learning_rate: float,
        seed: int,
    ) -> NetStack:
        """Train new networks with :func:`train_stack` on the device."""
        device = resolve_device(self.device)
        generator = torch.Generator().manual_seed(seed)
        self.x_mean_, self.x_scale_ = mean_and_scale(X)
        self.y_mean_, self.y_scale_ = mean_and_scale(y)
        sizes = [X.shape[1], *self.hidden_sizes, self.outputs_per_target * y.shape[1]]
        fresh = new_stack(self.n_members, sizes, generator)
        with workers(1):
            self.parameters_ = train_stack(
                {name: parameter.to(device) for name, parameter in fresh.items()},
                self.scale_inputs(X),
                self.scale_targets(y).to(device, torch.float32),
                objective,
                epochs=epochs,
                batch_size=batch_size,
                learning_rate=learning_rate,
                generator=generator,
            )
        return self

    def scale_inputs(self, X: Float[NDArray, "n p"]) -> Float[Tensor, "n p"]:
        """Standardised rows, the networks' inputs."""
        scaled = (X - self.x_mean_) / self.x_scale_
        return torch.as_tensor(scaled, dtype=torch.float32, device=resolve_device(self.device))

    def scale_targets(self, y: Float[NDArray, "n t"]) -> Float[Tensor, "n t"]:
        """Standardised targets, in float64 like the networks' outputs."""
        return torch.as_tensor((y - self.y_mean_) / self.y_scale_)

    def map_outputs(
        self, function: Callable[[slice, Tensor], Result], X: Float[NDArray, "n p"]
    ) -> list[Result]:
        """Apply :func:`map_outputs` to all networks."""
        return map_outputs(function, self.parameters_, self.scale_inputs(X))

    def member(self, index: int) -> Parameters:
        """The parameters of one network, as a stack of one."""
        return {name: parameter[index : index + 1] for name, parameter in self.parameters_.items()}
