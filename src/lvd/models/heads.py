"""Networks that predict a normal distribution: a mean and a variance for every target."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

from lvd._typing import Float
from lvd.models.torch_modules import Parameters, forward

LEAST_VARIANCE = 1e-6


def mean_and_variance(
    outputs: Float[Tensor, "*rows o"],
) -> tuple[Float[Tensor, "*rows t"], Float[Tensor, "*rows t"]]:
    """Split the columns: the first half are means; the second half, through a softplus, are variances."""
    mean, raw = outputs.chunk(2, dim=-1)
    return mean, softplus(raw) + LEAST_VARIANCE


def gaussian_log_density(
    y: Float[Tensor, "*shape"], mean: Float[Tensor, "*shape"], variance: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    """``log N(y; mean, variance)``."""
    return -0.5 * ((y - mean).square() / variance + variance.log() + math.log(2.0 * math.pi))


def negative_log_likelihood(
    parameters: Parameters, inputs: Float[Tensor, "m b p"], targets: Float[Tensor, "m b t"]
) -> Float[Tensor, "m"]:
    """The mean negative log-likelihood of a batch for each member (equation 1 of Lakshminarayanan et al. 2017)."""
    mean, variance = mean_and_variance(forward(parameters, inputs))
    return -gaussian_log_density(targets, mean, variance).mean((1, 2))


def adversarial_loss(
    parameters: Parameters,
    inputs: Float[Tensor, "m b p"],
    targets: Float[Tensor, "m b t"],
    step: Float[Tensor, "p"],
) -> Float[Tensor, "m"]:
    """The loss of a batch plus that of its adversarial examples (Algorithm 1, lines 4 and 5).

    Each row moves by `step` along the sign of its loss gradient, separately for each member.
    """
    inputs = inputs.detach().requires_grad_()
    loss = negative_log_likelihood(parameters, inputs, targets)
    (slope,) = torch.autograd.grad(loss.sum(), inputs, retain_graph=True)
    attacked = inputs.detach() + step * slope.sign()
    return loss + negative_log_likelihood(parameters, attacked, targets)


def mixture_moments(
    mean: Float[Tensor, "m n t"], variance: Float[Tensor, "m n t"]
) -> tuple[Float[Tensor, "n t"], Float[Tensor, "n t"]]:
    """Mean and variance of the members' equal mixture: mean variance plus variance of the means."""
    return mean.mean(0), variance.mean(0) + mean.var(0, correction=0)
