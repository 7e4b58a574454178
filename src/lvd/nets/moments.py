"""Means and variances of Gaussian weights' products with their inputs and of ReLUs, and their derivatives.

Formulas of Hernandez-Lobato & Adams (2015). The derivatives are written out by hand: probabilistic
backpropagation takes one row at a time, where recording a graph would cost more than the arithmetic.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Gaussians(NamedTuple):
    """Independent Gaussians, or the gradients of a function of them by their means and variances."""

    mean: Tensor
    variance: Tensor


class Slopes(NamedTuple):
    """Elementwise derivatives of output moments by input moments, named ``output_by_input``."""

    mean_by_mean: Tensor
    mean_by_variance: Tensor
    variance_by_mean: Tensor
    variance_by_variance: Tensor


def with_bias(inputs: Gaussians) -> Gaussians:
    """``[z, 1] / sqrt(i + 1)``: what enters a layer whose last column of weights is the bias."""
    scale = (inputs.mean.shape[1] + 1) ** -0.5
    mean = torch.nn.functional.pad(inputs.mean * scale, (0, 1), value=scale)
    return Gaussians(mean, torch.nn.functional.pad(inputs.variance * scale**2, (0, 1)))


def linear_moments(inputs: Gaussians, weights: Gaussians) -> Gaussians:
    """Moments (n, o) of ``W z`` (Eqs. 13 and 14; `with_bias` has divided z by the square root)."""
    z, w = inputs, weights
    variance = (z.variance + z.mean.square()) @ w.variance.T + z.variance @ w.mean.square().T
    return Gaussians(z.mean @ w.mean.T, variance)


def linear_weight_gradients(inputs: Gaussians, weights: Gaussians, outer: Gaussians) -> Gaussians:
    """Gradients by the weights, summed over rows, given those by ``W z``."""
    z, w = inputs, weights
    return Gaussians(
        outer.mean.T @ z.mean + 2.0 * w.mean * (outer.variance.T @ z.variance),
        outer.variance.T @ (z.variance + z.mean.square()),
    )


def linear_input_gradients(inputs: Gaussians, weights: Gaussians, outer: Gaussians) -> Gaussians:
    """Gradients by the inputs as they were before `with_bias`, given those by ``W z``."""
    z, w = inputs, weights
    scale = z.mean.shape[1] ** -0.5
    mean = outer.mean @ w.mean + 2.0 * z.mean * (outer.variance @ w.variance)
    variance = outer.variance @ (w.variance + w.mean.square())
    return Gaussians(scale * mean[:, :-1], scale**2 * variance[:, :-1])


def relu_moments(inputs: Gaussians) -> tuple[Gaussians, Slopes]:
    """Moments of ``max(a, 0)`` (Eqs. 15 and 16) and their slopes, in a form that keeps its digits in both tails.

    For a ~ N(m, s^2) and alpha = m / s, let r+ = s phi(alpha) + m Phi(alpha) be the mean of ``max(a, 0)`` and
    r- = s phi(alpha) - m Phi(-alpha) that of ``max(-a, 0)``. The variance is ``s^2 Phi(alpha) - r+ r-``.
    """
    scale = inputs.variance.sqrt()
    unit = inputs.mean / scale * math.sqrt(0.5)
    density = torch.exp(-unit.square()) * (2.0 * math.pi) ** -0.5
    # torch.special.ndtr is 1 + erf and loses the lower tail; erfc keeps it.
    above, below = 0.5 * torch.special.erfc(-unit), 0.5 * torch.special.erfc(unit)
    spread = scale * density
    mean, mirrored = spread + inputs.mean * above, spread - inputs.mean * below
    variance = (inputs.variance * above - mean * mirrored).clamp(min=0.0)
    ratio = density / scale
    return Gaussians(mean, variance), Slopes(above, 0.5 * ratio, 2.0 * mean * below, above - mean * ratio)


def chain(slopes: Slopes, outer: Gaussians) -> Gaussians:
    """Gradients by the inputs of an elementwise function, given those by its outputs."""
    return Gaussians(
        outer.mean * slopes.mean_by_mean + outer.variance * slopes.variance_by_mean,
        outer.mean * slopes.mean_by_variance + outer.variance * slopes.variance_by_variance,
    )
