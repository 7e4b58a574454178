"""Influence functions: a network's leave-one-out parameters by Taylor expansion.

Everything is float64, with the exact Hessian H of the mean loss over all n rows. Giving row i the extra weight
e in the mean moves the minimum along a curve theta(e); ``e = -1 / n`` removes the row. Order 1 follows the
curve's tangent, ``IF1 = -H^-1 g_i / n``; order 2 adds ``IF2 = (2 / n) H^-1 H_i IF1`` with the row's own Hessian
H_i, and drops the term in third derivatives (Alaa & van der Schaar 2020).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vjp, vmap

from lvd._parallel import chunk_slices, workers
from lvd._typing import Float
from lvd._validation import InputError
from lvd.models.torch_modules import Loss, as_predictions

Run: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""A network as a function of its parameters (p,) and inputs (n, ...), with outputs (n, t)."""

WORKING_NUMBERS = 2**22
HESSIAN_ROWS = 256


def flatten_module(module: nn.Module, n_targets: int) -> tuple[Run, Float[Tensor, "p"]]:
    """The module in float64 as a function of one vector of its trainable parameters, and that vector.

    The function is not thread-safe: a call puts the parameters into its copy of the module.
    """
    twin = copy.deepcopy(module).double().eval()
    parameters = {name: p.detach() for name, p in twin.named_parameters() if p.requires_grad}
    if not parameters:
        raise InputError("the module has no trainable parameters; call module.requires_grad_(True) first")
    sizes = [parameter.numel() for parameter in parameters.values()]

    def run(flat: Tensor, inputs: Tensor) -> Tensor:
        parts = zip(parameters.items(), flat.split(sizes), strict=True)
        named = {name: part.view_as(parameter) for (name, parameter), part in parts}
        return as_predictions(functional_call(twin, named, (inputs,)), len(inputs), n_targets)

    return run, torch.cat([parameter.flatten() for parameter in parameters.values()])


def memory_needed(n_parameters: int, n_rows: int) -> int:
    """Bytes for the Hessian and its factors, and for every row's gradient, product and parameters."""
    return 8 * (3 * n_parameters**2 + 5 * n_rows * n_parameters)


def mean_hessian(
    run: Run, parameters: Float[Tensor, "p"], inputs: Tensor, targets: Float[Tensor, "n t"], loss: Loss
) -> Float[Tensor, "p p"]:
    """The exact Hessian of the mean loss, by differentiating the gradient in many directions at a time."""
    n_parameters = len(parameters)
    chunks = chunk_slices(n_parameters, _at_once(HESSIAN_ROWS * n_parameters))
    hessian = parameters.new_zeros(n_parameters, n_parameters)
    with workers() as run_chunks:
        for x, y in zip(inputs.split(HESSIAN_ROWS), targets.split(HESSIAN_ROWS), strict=True):
            pull_back = vjp(_loss_gradient(run, loss, x, y), parameters)[1]
            run_chunks(partial(_add_derivatives, hessian, pull_back, len(x) / len(inputs)), chunks)
    return hessian


def leave_one_out_parameters(
    run: Run,
    parameters: Float[Tensor, "p"],
    inputs: Tensor,
    targets: Float[Tensor, "n t"],
    *,
    loss: Loss,
    order: int,
    damping: float,
) -> Float[Tensor, "n p"]:
    """``theta - (IF1 + IF2 / 2)`` for every row (without IF2 for order 1), `damping` added to H's diagonal."""

    def row_gradient(row: Tensor, target: Tensor) -> Tensor:
        return _loss_gradient(run, loss, row[None], target[None])(parameters)

    def row_hessian_product(row: Tensor, target: Tensor, vector: Tensor) -> Tensor:
        pull_back = vjp(_loss_gradient(run, loss, row[None], target[None]), parameters)[1]
        return pull_back(vector)[0]

    n, at_once = len(inputs), _at_once(len(parameters))
    hessian = mean_hessian(run, parameters, inputs, targets, loss)
    hessian.diagonal().add_(damping)
    try:
        factors = torch.linalg.lu_factor(hessian)
    except RuntimeError:
        raise InputError(
            f"the Hessian of the mean loss has no inverse with damping={damping:g}; raise damping, to 1e-4 say"
        ) from None
    change = vmap(row_gradient, chunk_size=at_once)(inputs, targets)
    change = torch.linalg.lu_solve(*factors, change, left=False).div_(-n)
    if order == 2:
        half_second = vmap(row_hessian_product, chunk_size=at_once)(inputs, targets, change)
        half_second = torch.linalg.lu_solve(*factors, half_second, left=False)
        change.add_(half_second, alpha=1.0 / n)
    return change.neg_().add_(parameters)


def outputs_of_own_row(run: Run, parameters: Float[Tensor, "n p"], inputs: Tensor) -> Float[Tensor, "n t"]:
    """The output of each parameter vector for the row with the same index."""
    own = vmap(lambda flat, row: run(flat, row[None])[0], chunk_size=_at_once(parameters.shape[1]))
    return own(parameters, inputs)


def outputs_of_all_rows(run: Run, parameters: Float[Tensor, "n p"], inputs: Tensor) -> Float[Tensor, "n m t"]:
    """The outputs of each parameter vector for all m rows."""
    at_once = _at_once(len(inputs) * parameters.shape[1])
    return vmap(run, (0, None), chunk_size=at_once)(parameters, inputs)


def _loss_gradient(run: Run, loss: Loss, inputs: Tensor, targets: Tensor) -> Callable[[Tensor], Tensor]:
    """The gradient of these rows' loss as a function of the parameters."""

    def rows_loss(flat: Tensor) -> Tensor:
        return loss(run(flat, inputs), targets)

    return grad(rows_loss)


def _add_derivatives(
    hessian: Float[Tensor, "p p"], pull_back: Callable[..., tuple[Tensor, ...]], share: float, rows: slice
) -> None:
    """Add a batch's contribution to these rows of the Hessian."""
    directions = torch.zeros_like(hessian[rows])
    directions[:, rows].fill_diagonal_(1.0)
    hessian[rows].add_(vmap(pull_back)(directions)[0], alpha=share)


def _at_once(numbers_each: int) -> int:
    """How many computations of this size to batch: few enough to stay near the processor's caches."""
    return max(1, WORKING_NUMBERS // numbers_each)
