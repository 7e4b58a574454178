"""A network of Gaussian weights, trained by probabilistic backpropagation (Hernandez-Lobato & Adams 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lvd._parallel import chunk_slices
from lvd._typing import ArrayLike, Float, NDArray
from lvd._validation import check_matrix
from lvd.models.assumed_density import Gamma, Gaussians, absorb_row, match_gamma, run_network, with_bias
from lvd.models.scaling import mean_and_scale

PRIOR = Gamma(6.0, 6.0)
LEAST_PRECISION = 1e-6
EVALUATION_ROWS = 8192


class WeightPrior:
    """``N(w | 0, 1 / precision) Gamma(precision | 6, 6)``, one approximate factor per weight.

    A factor is Gaussian in its weight, with mean 0, and Gamma in the shared precision of all weights. Weight by
    weight it is replaced by the one that matches the moments of the exact factor times the posterior without it
    (section 3.2 of Hernandez-Lobato & Adams 2015). With s the variance ``E[1 / precision]`` of this cavity
    Gamma, the weight's factor is N(0, s): the paper's mean and variance formulas reduce to it.
    """

    def __init__(self, n_weights: int) -> None:
        self.gamma = PRIOR
        self.precisions = [1.0 / PRIOR.variance] * n_weights
        self.shares = [Gamma(0.0, 0.0)] * n_weights

    def refine(self, layers: list[Gaussians]) -> list[Gaussians]:
        """The weights' posterior after replacing each factor; factors without a proper cavity are kept."""
        means = np.concatenate([weights.mean.ravel() for weights in layers]).tolist()
        variances = np.concatenate([weights.variance.ravel() for weights in layers]).tolist()
        for i, (mean, variance) in enumerate(zip(means, variances, strict=True)):
            precision = 1.0 / variance - self.precisions[i]
            cavity = Gamma(self.gamma.shape - self.shares[i].shape, self.gamma.rate - self.shares[i].rate)
            if not (precision > LEAST_PRECISION and cavity.shape > 1.0 and cavity.rate > 0.0):
                continue
            scaled_mean = mean / variance
            self.gamma = match_gamma(cavity, (scaled_mean / precision) ** 2, 1.0 / precision)
            self.shares[i] = Gamma(self.gamma.shape - cavity.shape, self.gamma.rate - cavity.rate)
            self.precisions[i] = 1.0 / cavity.variance
            variances[i] = 1.0 / (precision + self.precisions[i])
            means[i] = scaled_mean * variances[i]
        ends = np.cumsum([weights.mean.size for weights in layers])[:-1]
        parts = zip(layers, np.split(np.array(means), ends), np.split(np.array(variances), ends), strict=True)
        return [
            Gaussians(mean.reshape(w.mean.shape), variance.reshape(w.mean.shape))
            for w, mean, variance in parts
        ]


def train_probabilistic(
    inputs: Float[NDArray, "n p"],
    targets: Float[NDArray, "n"],
    hidden_sizes: Sequence[int],
    *,
    epochs: int,
    seed: int,
) -> tuple[list[Gaussians], Gamma]:
    """The posterior of weights and noise precision after `epochs` passes over the rows in random order.

    The initial means are random: with zero means, all units of a layer would stay identical.
    """
    rng = np.random.default_rng(seed)
    layers = [_initial_layer(*sizes, rng) for sizes in pairwise([inputs.shape[1], *hidden_sizes, 1])]
    prior, noise = WeightPrior(sum(weights.mean.size for weights in layers)), PRIOR
    rows, values = [certain(row[None]) for row in inputs], targets.tolist()
    for _ in range(epochs):
        for i in rng.permutation(len(rows)).tolist():
            layers, noise = absorb_row(layers, noise, rows[i], values[i])
        layers = prior.refine(layers)
    return layers, noise


def certain(inputs: Float[NDArray, "n p"]) -> Gaussians:
    """Known rows, with zero variance, as input of the first layer."""
    return with_bias(Gaussians(inputs, np.zeros_like(inputs)))


@dataclass(eq=False)
class ProbabilisticNet:
    """One network per target, on standardised inputs and targets."""

    hidden_sizes: Sequence[int]

    def check(self, X: ArrayLike) -> Float[NDArray, "n p"]:
        """Return a finite matrix with the columns of `fit`."""
        return check_matrix(X, n_columns=len(self.x_mean_) if hasattr(self, "x_mean_") else None)

    def fit(
        self, X: Float[NDArray, "n p"], y: Float[NDArray, "n t"], *, epochs: int, seed: int
    ) -> ProbabilisticNet:
        """Train the networks; each target gets the network that it would get on its own."""
        self.x_mean_, self.x_scale_ = mean_and_scale(X)
        self.y_mean_, self.y_scale_ = mean_and_scale(y)
        trained = [
            train_probabilistic(self._scale(X), column, self.hidden_sizes, epochs=epochs, seed=seed)
            for column in ((y - self.y_mean_) / self.y_scale_).T
        ]
        networks, noises = zip(*trained, strict=True)
        by_layer = list(zip(*networks, strict=True))
        self.weight_means_ = [np.stack([w.mean for w in layer]) for layer in by_layer]
        self.weight_variances_ = [np.stack([w.variance for w in layer]) for layer in by_layer]
        self.noise_variances_ = np.array([noise.variance for noise in noises]) * self.y_scale_**2
        return self

    def moments(self, X: Float[NDArray, "n p"]) -> tuple[Float[NDArray, "n t"], Float[NDArray, "n t"]]:
        """Mean and variance of y, including the noise, in the units of y."""
        chunks = [self._outputs(self._scale(X[rows])) for rows in chunk_slices(len(X), EVALUATION_ROWS)]
        means, variances = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
        return means * self.y_scale_ + self.y_mean_, variances * self.y_scale_**2 + self.noise_variances_

    def _scale(self, X: Float[NDArray, "n p"]) -> Float[NDArray, "n p"]:
        return (X - self.x_mean_) / self.x_scale_

    def _outputs(self, inputs: Float[NDArray, "n p"]) -> Gaussians:
        """The network outputs, one column per target."""
        moments = zip(self.weight_means_, self.weight_variances_, strict=True)
        networks = zip(*(map(Gaussians, *layer) for layer in moments), strict=True)
        outputs = [run_network(list(network), certain(inputs)).output for network in networks]
        return Gaussians(*(np.concatenate(parts, axis=1) for parts in zip(*outputs, strict=True)))


def _initial_layer(n_inputs: int, n_outputs: int, rng: np.random.Generator) -> Gaussians:
    """Random means, and the variance of the prior."""
    mean = rng.normal(scale=(n_inputs + 1) ** -0.5, size=(n_outputs, n_inputs + 1))
    return Gaussians(mean, np.full_like(mean, PRIOR.variance))
