"""Dropout as approximate inference (Gal & Ghahramani 2016): masks, the loss, and the passes as a stack."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lvd._typing import Float
from lvd.models.stack import map_outputs
from lvd.models.torch_modules import Parameters, forward, layers


def draw_mask(
    shape: tuple[int, ...], dropout: Float[Tensor, "*m"], generator: torch.Generator
) -> Float[Tensor, "..."]:
    """Zero with probability `dropout`, else ``1 / (1 - dropout)``; members with different rates share the draw."""
    uniform = torch.rand(shape, generator=generator).to(dropout.device)
    keep = 1.0 - dropout
    return (uniform < keep) / keep


def dropout_loss(
    parameters: Parameters,
    inputs: Float[Tensor, "m b p"],
    targets: Float[Tensor, "m b t"],
    *,
    dropout: Float[Tensor, "m"],
    decay: Float[Tensor, "m"],
    generator: torch.Generator,
) -> Float[Tensor, "m"]:
    """Half the squared error, with a new mask per row and layer, plus the decay of all parameters (equation 1)."""
    rate = dropout[:, None, None]
    masks = [
        draw_mask((inputs.shape[1], weight.shape[2]), rate, generator) for weight, _ in layers(parameters)
    ]
    errors = 0.5 * (forward(parameters, inputs, masks) - targets).square().sum(2).mean(1)
    norms = sum(parameter.square().flatten(1).sum(1) for parameter in parameters.values())
    return errors + decay * norms


def weight_decay(
    dropout: Float[Tensor, "m"], tau: Float[Tensor, "m"], *, length_scale: float, n_rows: int
) -> Float[Tensor, "m"]:
    """The decay that makes `tau` the model precision: ``l^2 (1 - p) / (2 N tau)`` (equation 7)."""
    return length_scale**2 * (1.0 - dropout) / (2.0 * n_rows * tau)


def thin(parameters: Parameters, dropout: float, n_passes: int, generator: torch.Generator) -> Parameters:
    """One network's stochastic passes, as a stack of networks with masked layer inputs.

    A pass uses the same masks for all rows: it is one draw of the weights, as in the paper, so a row's
    prediction does not depend on the other rows.
    """
    thinned = {}
    for name, parameter in parameters.items():
        if name.endswith("weight"):
            rate = torch.tensor(dropout, device=parameter.device)
            thinned[name] = parameter * draw_mask((n_passes, 1, parameter.shape[2]), rate, generator)
        else:
            thinned[name] = parameter.expand(n_passes, -1)
    return thinned


def pass_log_density(
    y: Float[Tensor, "n t"], passes: Float[Tensor, "k n t"], tau: float
) -> Float[Tensor, "n t"]:
    """The log of the passes' mean density, each pass a normal of variance ``1 / tau`` (equation 8)."""
    exponents = -0.5 * tau * (y - passes).square()
    return exponents.logsumexp(0) - math.log(len(passes)) - 0.5 * math.log(2.0 * math.pi / tau)


def pass_log_likelihood(
    passes: Parameters, inputs: Float[Tensor, "n p"], targets: Float[Tensor, "n t"], tau: float
) -> Float[Tensor, "n t"]:
    """:func:`pass_log_density`, computed in chunks of rows."""
    return torch.cat(
        map_outputs(lambda rows, outputs: pass_log_density(targets[rows], outputs, tau), passes, inputs)
    )
