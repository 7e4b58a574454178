"""The Gamma prior on the precision of Gaussian weights, refined by expectation propagation."""

from __future__ import annotations

import numpy as np

from lvd.models.assumed_density import Gamma, match_gamma
from lvd.models.moments import Gaussians

PRIOR = Gamma(6.0, 6.0)
LEAST_PRECISION = 1e-6


class WeightPrior:
    """``N(w | 0, 1 / precision) Gamma(precision | 6, 6)``, one approximate factor per weight.

    A factor is Gaussian in its weight, with mean 0, and Gamma in the precision that all weights share. It is
    replaced, weight by weight, by the one that matches the moments of the exact factor times the posterior
    without it (section 3.2 of Hernandez-Lobato & Adams 2015). With s the variance that this cavity Gamma stands
    for, the weight's factor comes out as N(0, s): the mean and variance formulas there reduce to it.
    """

    def __init__(self, n_weights: int) -> None:
        self.gamma = PRIOR
        self.precisions = [1.0 / PRIOR.variance] * n_weights
        self.shares = [Gamma(0.0, 0.0)] * n_weights

    def refine(self, layers: list[Gaussians]) -> list[Gaussians]:
        """The weights' posterior once each factor has been replaced; factors without a proper cavity stay."""
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
        return _shaped_like(layers, means, variances)


def _shaped_like(layers: list[Gaussians], means: list[float], variances: list[float]) -> list[Gaussians]:
    ends = np.cumsum([weights.mean.size for weights in layers])[:-1]
    parts = zip(layers, np.split(np.array(means), ends), np.split(np.array(variances), ends), strict=True)
    return [
        Gaussians(mean.reshape(w.mean.shape), variance.reshape(w.mean.shape)) for w, mean, variance in parts
    ]
