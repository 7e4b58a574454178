"""How one row updates a network of Gaussian weights and its Gamma noise precision (Hernandez-Lobato & Adams 2015).

Moments propagate forward through linear layers and ReLUs; a row's evidence Z is Gaussian in the moments of the
output, and the gradients of log Z give the new moments of every weight (assumed density filtering). The
derivatives are written by hand: for one row at a time, recording a graph would cost more than the arithmetic.
The arrays are numpy's for the same reason: on a few thousand numbers its calls cost a quarter of torch's.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from lvd._typing import Float, NDArray

LEAST_VARIANCE, LARGEST_LOG = 1e-100, 700.0


class Gaussians(NamedTuple):
    """Independent Gaussians, or the gradients of a function with respect to their means and variances."""

    mean: NDArray
    variance: NDArray


class Slopes(NamedTuple):
    """Elementwise derivatives of output moments with respect to input moments, named ``output_by_input``."""

    mean_by_mean: NDArray
    mean_by_variance: NDArray
    variance_by_mean: NDArray
    variance_by_variance: NDArray


def with_bias(inputs: Gaussians) -> Gaussians:
    """``[z, 1] / sqrt(i + 1)``: the input of a layer whose last weight column is the bias."""
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
    """Gradients with respect to the weights, summed over rows, given those with respect to ``W z``."""
    z, w = inputs, weights
    return Gaussians(
        outer.mean.T @ z.mean + 2.0 * w.mean * (outer.variance.T @ z.variance),
        outer.variance.T @ (z.variance + np.square(z.mean)),
    )


def linear_input_gradients(inputs: Gaussians, weights: Gaussians, outer: Gaussians) -> Gaussians:
    """Gradients with respect to the inputs before `with_bias`, given those with respect to ``W z``."""
    z, w = inputs, weights
    scale = z.mean.shape[1] ** -0.5
    mean = outer.mean @ w.mean + 2.0 * z.mean * (outer.variance @ w.variance)
    variance = outer.variance @ (w.variance + np.square(w.mean))
    return Gaussians(scale * mean[:, :-1], scale**2 * variance[:, :-1])


def relu_moments(inputs: Gaussians) -> tuple[Gaussians, Slopes]:
    """Moments of ``max(a, 0)`` (Eqs. 15 and 16) and their slopes, numerically stable in both tails.

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
    """Gradients with respect to the inputs of an elementwise function, given those of its outputs."""
    return Gaussians(
        outer.mean * slopes.mean_by_mean + outer.variance * slopes.variance_by_mean,
        outer.mean * slopes.mean_by_variance + outer.variance * slopes.variance_by_variance,
    )


class Gamma(NamedTuple):
    """The Gamma distribution of a precision."""

    shape: float
    rate: float

    @property
    def variance(self) -> float:
        """The corresponding variance, ``E[1 / precision]``."""
        return self.rate / (self.shape - 1.0)


class Pass(NamedTuple):
    """A forward pass: the input of each layer, the slopes of each ReLU, and the output."""

    entered: list[Gaussians]
    slopes: list[Slopes]
    output: Gaussians


def run_network(layers: list[Gaussians], inputs: Gaussians) -> Pass:
    """Run rows prepared by `with_bias` through linear layers with ReLUs in between."""
    entered, slopes = [inputs], []
    for weights in layers[:-1]:
        hidden, slope = relu_moments(linear_moments(entered[-1], weights))
        entered.append(with_bias(hidden))
        slopes.append(slope)
    return Pass(entered, slopes, linear_moments(entered[-1], layers[-1]))


def evidence_gradients(
    layers: list[Gaussians], forward: Pass, noise_variance: float, targets: Float[NDArray, "n 1"]
) -> list[Gaussians]:
    """The gradients of log Z with respect to every layer's weights, summed over rows.

    ``Z = N(y | m, v + noise_variance)`` with the output's moments m and v (Eqs. 11 and 12).
    """
    variance = forward.output.variance + noise_variance
    slope = (targets - forward.output.mean) / variance
    outer = Gaussians(slope, 0.5 * (np.square(slope) - 1.0 / variance))
    gradients = [linear_weight_gradients(forward.entered[-1], layers[-1], outer)]
    for depth in reversed(range(len(layers) - 1)):
        above = linear_input_gradients(forward.entered[depth + 1], layers[depth + 1], outer)
        outer = chain(forward.slopes[depth], above)
        gradients.append(linear_weight_gradients(forward.entered[depth], layers[depth], outer))
    return gradients[::-1]


def absorb_row(
    layers: list[Gaussians], noise: Gamma, row: Gaussians, target: float
) -> tuple[list[Gaussians], Gamma]:
    """Update weights and noise with one row: the moments of ``Z^-1 N(y | f(x), 1 / precision) q`` (Eqs. 5 to 8)."""
    forward = run_network(layers, row)
    gradients = evidence_gradients(layers, forward, noise.variance, np.array([[target]]))
    updated = [match_gaussians(*pair) for pair in zip(layers, gradients, strict=True)]
    error = target - forward.output.mean.item()
    return updated, match_gamma(noise, error * error, forward.output.variance.item())


def match_gaussians(weights: Gaussians, gradients: Gaussians) -> Gaussians:
    """``m + v dlogZ/dm`` and ``v - v^2 ((dlogZ/dm)^2 - 2 dlogZ/dv)`` (Eqs. 5 and 6).

    A weight keeps its moments if its variance would vanish, turn negative or become NaN.
    """
    change = np.square(gradients.mean) - 2.0 * gradients.variance
    mean = weights.mean + weights.variance * gradients.mean
    variance = weights.variance * (1.0 - weights.variance * change)
    if variance.min() > LEAST_VARIANCE:  # false if one of them is NaN
        return Gaussians(mean, variance)
    valid = variance > LEAST_VARIANCE
    return Gaussians(np.where(valid, mean, weights.mean), np.where(valid, variance, weights.variance))


def match_gamma(gamma: Gamma, squared_error: float, variance: float) -> Gamma:
    """The Gamma with the moments after one Gaussian error, from log Z, log Z1, log Z2 (Eqs. 7 and 8).

    These are ``log N(error | 0, variance + E[1 / precision])`` for the shapes a, a + 1 and a + 2. If the error
    is so large that no Gamma with a finite variance has these moments, the Gamma is unchanged.
    """
    shape, rate = gamma
    log_z, log_z1, log_z2 = (
        -0.5 * (math.log(total) + squared_error / total)
        for total in (variance + rate / (shape + step) for step in (-1.0, 0.0, 1.0))
    )
    growth = log_z2 - 2.0 * log_z1 + log_z + math.log1p(1.0 / shape)
    if not (0.0 < growth < math.log(2.0) and log_z - log_z1 < LARGEST_LOG):
        return gamma
    excess = math.expm1(growth)
    return Gamma(1.0 / excess, rate * math.exp(log_z - log_z1) / (shape * excess))
