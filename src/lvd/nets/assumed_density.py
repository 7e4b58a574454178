"""Assumed density filtering: Gaussian weights through linear and ReLU layers, and their update by one row.

The mathematics of probabilistic backpropagation (Hernandez-Lobato & Adams 2015). Every weight is an independent
Gaussian, the noise precision has a Gamma distribution. A row's evidence Z is Gaussian in the network's output
moments; the gradients of log Z, written out by hand because rows come one at a time, move the weights.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from lvd._typing import Float

LEAST_VARIANCE = 1e-100


class Gaussians(NamedTuple):
    """Independent Gaussians of any shape, or the gradients with respect to their means and variances."""

    mean: Tensor
    variance: Tensor


class Gamma(NamedTuple):
    """The Gamma distribution of a precision; ``rate / (shape - 1)`` is the variance it stands for."""

    shape: float
    rate: float

    @property
    def variance(self) -> float:
        """The expected variance ``E[1 / precision]``."""
        return self.rate / (self.shape - 1.0)


def linear_moments(inputs: Gaussians, weights: Gaussians) -> Gaussians:
    """Moments (n, o) of ``W [z, 1] / sqrt(i + 1)`` (the paper's Eqs. 13 and 14); the bias is W's last column."""
    z, w, size = _with_bias(inputs), weights, weights.mean.shape[1]
    spread = (z.variance + z.mean.square()) @ w.variance.T + z.variance @ w.mean.square().T
    return Gaussians(z.mean @ w.mean.T / math.sqrt(size), spread / size)


def linear_gradients(inputs: Gaussians, weights: Gaussians, outer: Gaussians) -> tuple[Gaussians, Gaussians]:
    """Gradients with respect to the inputs and to the weights, given those with respect to the outputs."""
    z, w, size = _with_bias(inputs), weights, weights.mean.shape[1]
    by_mean, by_variance = outer.mean / math.sqrt(size), outer.variance / size
    of_inputs = Gaussians(
        by_mean @ w.mean + 2.0 * z.mean * (by_variance @ w.variance),
        by_variance @ (w.variance + w.mean.square()),
    )
    of_weights = Gaussians(
        by_mean.T @ z.mean + 2.0 * w.mean * (by_variance.T @ z.variance),
        by_variance.T @ (z.variance + z.mean.square()),
    )
    return Gaussians(of_inputs.mean[:, :-1], of_inputs.variance[:, :-1]), of_weights


def relu_moments(inputs: Gaussians) -> Gaussians:
    """Moments of ``max(a, 0)`` (Eqs. 15 and 16), in a form without cancellation in either tail.

    With alpha = m / s, and r(alpha) = phi(alpha) + alpha Phi(alpha) the mean of a rectified N(alpha, 1), the mean
    is ``s r(alpha)`` and the variance ``s^2 (Phi(alpha) - r(alpha) r(-alpha))``.
    """
    scale = inputs.variance.sqrt()
    alpha = inputs.mean / scale
    density, above, below = _normal(alpha)
    mean = density + alpha * above
    variance = above - mean * (density - alpha * below)
    return Gaussians(scale * mean, inputs.variance * variance.clamp(min=0.0))


def relu_gradients(inputs: Gaussians, outer: Gaussians) -> Gaussians:
    """Gradients with respect to the moments before the ReLU, given those after it."""
    scale = inputs.variance.sqrt()
    alpha = inputs.mean / scale
    density, above, below = _normal(alpha)
    mean = density + alpha * above
    return Gaussians(
        outer.mean * above + outer.variance * (2.0 * scale * mean * below),
        outer.mean * (density / (2.0 * scale)) + outer.variance * (above - mean * density),
    )


def output_moments(layers: list[Gaussians], inputs: Float[Tensor, "n p"]) -> tuple[Gaussians, Gaussians]:
    """Moments of the network's output (n, 1), and of its last hidden layer (n, h)."""
    hidden, linear = _forward(layers, inputs)
    return linear[-1], hidden[-1]


def log_evidence(output: Gaussians, noise: Gamma, targets: Float[Tensor, "n 1"]) -> Float[Tensor, "n 1"]:
    """``log Z``: the log density of each target under the Gaussian of output and noise (Eqs. 11 and 12)."""
    variance = output.variance + noise.variance
    return -0.5 * (torch.log(2.0 * math.pi * variance) + (targets - output.mean).square() / variance)


def evidence_gradients(
    layers: list[Gaussians], noise: Gamma, inputs: Float[Tensor, "n p"], targets: Float[Tensor, "n 1"]
) -> tuple[Gaussians, list[Gaussians]]:
    """The output's moments, and the gradients of the summed log Z with respect to every layer's weights."""
    hidden, linear = _forward(layers, inputs)
    output = linear[-1]
    variance = output.variance + noise.variance
    slope = (targets - output.mean) / variance
    outer = Gaussians(slope, 0.5 * (slope.square() - 1.0 / variance))
    gradients = []
    for depth in reversed(range(len(layers))):
        inner, of_weights = linear_gradients(hidden[depth], layers[depth], outer)
        gradients.append(of_weights)
        if depth:
            outer = relu_gradients(linear[depth - 1], inner)
    return output, gradients[::-1]


def absorb_row(
    layers: list[Gaussians], noise: Gamma, row: Float[Tensor, "1 p"], target: Float[Tensor, "1 1"]
) -> tuple[list[Gaussians], Gamma]:
    """Weights and noise after one row: the moments of ``Z^-1 N(y | f(x), noise) q`` (Eqs. 5 to 8)."""
    output, gradients = evidence_gradients(layers, noise, row, target)
    updated = [_match_moments(*pair) for pair in zip(layers, gradients, strict=True)]
    error = float(target) - float(output.mean)
    return updated, match_gamma(noise, error * error, float(output.variance))


def match_gamma(gamma: Gamma, squared_error: float, variance: float) -> Gamma:
    """The Gamma whose first two moments are those after one Gaussian error of the given extra variance.

    The evidence is taken as ``N(error | 0, variance + E[1 / precision])`` for shapes a, a + 1, a + 2: log Z, log Z1
    and log Z2 of Eqs. 7 and 8.
    """
    shape, rate = gamma

    def log_z(shape: float) -> float:
        total = variance + rate / (shape - 1.0)
        return -0.5 * (math.log(total) + squared_error / total)

    first = log_z(shape + 1.0) - log_z(shape)
    second = log_z(shape + 2.0) - log_z(shape + 1.0)
    return Gamma(
        1.0 / math.expm1(second - first + math.log1p(1.0 / shape)),
        rate / (math.exp(second) * (shape + 1.0) - math.exp(first) * shape),
    )


def _match_moments(weights: Gaussians, gradients: Gaussians) -> Gaussians:
    """``m + v dlogZ/dm`` and ``v - v^2 ((dlogZ/dm)^2 - 2 dlogZ/dv)``; a weight with no valid update keeps its own."""
    change = gradients.mean.square() - 2.0 * gradients.variance
    mean = torch.addcmul(weights.mean, weights.variance, gradients.mean)
    variance = torch.addcmul(weights.variance, weights.variance.square(), change, value=-1.0)
    if not float(variance.min()) > LEAST_VARIANCE:  # also when it is NaN
        valid = variance > LEAST_VARIANCE
        mean, variance = (
            torch.where(valid, mean, weights.mean),
            torch.where(valid, variance, weights.variance),
        )
    return Gaussians(mean, variance)


def _forward(
    layers: list[Gaussians], inputs: Float[Tensor, "n p"]
) -> tuple[list[Gaussians], list[Gaussians]]:
    """What enters each layer, and what leaves it before the ReLU."""
    hidden, linear = [Gaussians(inputs, torch.zeros_like(inputs))], []
    for weights in layers:
        linear.append(linear_moments(hidden[-1], weights))
        if len(linear) < len(layers):
            hidden.append(relu_moments(linear[-1]))
    return hidden, linear


def _with_bias(inputs: Gaussians) -> Gaussians:
    """The inputs and a constant 1."""
    pad = torch.nn.functional.pad
    return Gaussians(pad(inputs.mean, (0, 1), value=1.0), pad(inputs.variance, (0, 1)))


def _normal(alpha: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The standard normal's density at alpha, its probability below alpha and, as exactly, above it."""
    unit = alpha * math.sqrt(0.5)
    density = torch.exp(-unit.square()) / math.sqrt(2.0 * math.pi)
    return density, 0.5 * torch.special.erfc(-unit), 0.5 * torch.special.erfc(unit)
