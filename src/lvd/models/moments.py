"""Means and variances of Gaussian weights' products with their inputs and of ReLUs, and their derivatives.

Formulas of Hernandez-Lobato & Adams (2015). The derivatives are written out by hand: probabilistic
backpropagation takes one row at a time, where recording a graph would cost more than the arithmetic. For the
same reason the arrays are numpy's: on a few thousand numbers its calls cost a quarter of torch's.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from lvd._typing import NDArray


class Gaussians(NamedTuple):
    """Independent Gaussians, or the gradients of a function of them by their means and variances."""

    mean: NDArray
    variance: NDArray


class Slopes(NamedTuple):
    """Elementwise derivatives of output moments by input moments, named ``output_by_input``."""

    mean_by_mean: NDArray
    mean_by_variance: NDArray
    variance_by_mean: NDArray
    variance_by_variance: NDArray


def with_bias(inputs: Gaussians) -> Gaussians:
    """``[z, 1] / sqrt(i + 1)``: what enters a layer whose last column of weights is the bias."""
    n_rows, n_inputs = inputs.mean.shape
    scale = (n_inputs + 1) ** -0.5
    mean, variance = np.full((n_rows, n_inputs + 1), scale), np.zeros((n_rows, n_inputs + 1))
    np.multiply(inputs.mean, scale, out=mean[:, :-1])
    np.multiply(inputs.variance, scale**2, out=variance[:, :-1])
    return Gaussians(mean, variance)


def linear_moments(inputs: Gaussians, weights: Gaussians) -> Gaussians:
    """Moments (n, o) of ``W z`` (Eqs. 13 and 14; `with_bias` has divided z by the square root)."""
    z, w = inputs, weights
    variance = (z.variance + np.square(z.mean)) @ w.variance.T + z.variance @ np.square(w.mean).T
    return Gaussians(z.mean @ w.mean.T, variance)


def linear_weight_gradients(inputs: Gaussians, weights: Gaussians, outer: Gaussians) -> Gaussians:
    """Gradients by the weights, summed over rows, given those by ``W z``."""
    z, w = inputs, weights
    return Gaussians(
        outer.mean.T @ z.mean + 2.0 * w.mean * (outer.variance.T @ z.variance),
        outer.variance.T @ (z.variance + np.square(z.mean)),
    )


def linear_input_gradients(inputs: Gaussians, weights: Gaussians, outer: Gaussians) -> Gaussians:
    """Gradients by the inputs as they were before `with_bias`, given those by ``W z``."""
    z, w = inputs, weights
    scale = z.mean.shape[1] ** -0.5
    mean = outer.mean @ w.mean + 2.0 * z.mean * (outer.variance @ w.variance)
    variance = outer.variance @ (w.variance + np.square(w.mean))
    return Gaussians(scale * mean[:, :-1], scale**2 * variance[:, :-1])


def relu_moments(inputs: Gaussians) -> tuple[Gaussians, Slopes]:
    """Moments of ``max(a, 0)`` (Eqs. 15 and 16) and their slopes, in a form that keeps its digits in both tails.

    For a ~ N(m, s^2) and alpha = m / s, let r+ = s phi(alpha) + m Phi(alpha) be the mean of ``max(a, 0)`` and
    r- = s phi(alpha) - m Phi(-alpha) that of ``max(-a, 0)``. The variance is ``s^2 Phi(alpha) - r+ r-``.
    """
    scale = np.sqrt(inputs.variance)
    alpha = inputs.mean / scale
    density = np.exp(-0.5 * np.square(alpha)) * (2.0 * math.pi) ** -0.5
    above, below = ndtr(alpha), ndtr(-alpha)
    spread = scale * density
    mean, mirrored = spread + inputs.mean * above, spread - inputs.mean * below
    variance = np.maximum(inputs.variance * above - mean * mirrored, 0.0)
    ratio = density / scale
    return Gaussians(mean, variance), Slopes(above, 0.5 * ratio, 2.0 * mean * below, above - mean * ratio)


def chain(slopes: Slopes, outer: Gaussians) -> Gaussians:
    """Gradients by the inputs of an elementwise function, given those by its outputs."""
    return Gaussians(
        outer.mean * slopes.mean_by_mean + outer.variance * slopes.variance_by_mean,
        outer.mean * slopes.mean_by_variance + outer.variance * slopes.variance_by_variance,
    )
