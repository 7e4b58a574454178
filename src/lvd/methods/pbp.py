"""Probabilistic backpropagation (Hernandez-Lobato & Adams 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch

from lvd._typing import Float, NDArray
from lvd.methods.mixture import NormalRegressor, check_training
from lvd.models.heads import gaussian_log_density
from lvd.models.probabilistic import ProbabilisticNet


@dataclass(eq=False, repr=False)
class PBPRegressor(NormalRegressor):
    """A Bayesian network with Gaussian weights, learned by assumed density filtering.

    Rows are processed one at a time. Means and variances propagate forward through linear and ReLU layers, and
    the gradients of the row's log evidence update the mean and variance of every weight. Noise and weights have
    precisions with a Gamma(6, 6) prior; the weights' prior is refined after every pass. There is no learning
    rate to choose. The intervals are those of a normal distribution whose variance is that of the network's
    output plus that of the noise. Coverage is not guaranteed: it depends on the model being right.

    The sequential updates run on the CPU, and each of several targets gets its own network.

    Parameters
    ----------
    hidden_sizes : widths of the ReLU layers.
    epochs : passes over the rows.
    confidence_level, y_range : as in :class:`LVDRegressor`.
    random_state : seeds the initial means and the order of the rows.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(100, 2))
    >>> reg = lvd.PBPRegressor(epochs=5, random_state=0).fit(X, X[:, 0])
    >>> reg.predict_interval(X[:5], [0.5, 0.9])[1].shape
    (5, 2, 2)
    """

    _: KW_ONLY
    hidden_sizes: Sequence[int] = (50,)
    epochs: int = 40

    def _check_parameters(self) -> None:
        check_training(self.hidden_sizes, self.epochs)

    def _new_model(self, seed: int) -> ProbabilisticNet:
        return ProbabilisticNet(self.hidden_sizes)

    def _train(self, X: Float[NDArray, "n p"], y: Float[NDArray, "n t"], seed: int) -> None:
        self.model_.fit(X, y, epochs=self.epochs, seed=seed)

    def _mean_and_deviation(self, X: Any) -> tuple[Float[NDArray, "n t"], Float[NDArray, "n t"]]:
        mean, variance = self.model_.moments(X)
        return mean, variance**0.5

    def _log_densities(self, X: Any, y: Float[NDArray, "n t"]) -> Float[NDArray, "n t"]:
        return gaussian_log_density(*map(torch.as_tensor, (y, *self.model_.moments(X)))).numpy()
