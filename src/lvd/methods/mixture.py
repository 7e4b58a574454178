"""Methods that predict a normal distribution, above all one that sums up a mixture of networks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from lvd._parallel import few_threads
from lvd._typing import ArrayLike, Float, NDArray
from lvd._validation import check_positive, like
from lvd.intervals import from_radius
from lvd.methods.base import IntervalRegressor, refuse_choices


class NormalRegressor(IntervalRegressor):
    """All rows train, every prediction is a normal distribution, and its central intervals are the intervals."""

    guarantee: ClassVar[str] = "none"
    post_hoc: ClassVar[bool] = False
    model_: Any

    @abstractmethod
    def _train(self, X: Any, y: Float[NDArray, "n t"], seed: int) -> None:
        """Train ``model_``."""

    @abstractmethod
    def _mean_and_deviation(self, X: Any) -> tuple[Float[NDArray, "n t"], Float[NDArray, "n t"]]:
        """Mean and standard deviation of each row, in the units of y."""

    @abstractmethod
    def _log_densities(self, X: Any, y: Float[NDArray, "n t"]) -> Float[NDArray, "n t"]:
        """The logarithm of the predicted density at y, in the units of y."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> Any:
        """Train on all rows."""
        inputs, targets, seed = self._begin(X, y)
        with few_threads(inputs):
            self._train(inputs, targets, seed)
        return self

    def log_likelihood(self, X: ArrayLike, y: ArrayLike) -> Any:
        """The logarithm of the predicted density at each y, in the units of y: of the shape of y."""
        self._check_fitted()
        return like(self._as_given(self._log_densities(*self._check_rows(X, y, self.n_targets_))), X)

    def _predict(self, X: Any) -> Float[NDArray, "n t"]:
        return self._mean_and_deviation(X)[0]

    def _predict_interval(
        self, X: Any, levels: Float[NDArray, "l"], **choices: Any
    ) -> tuple[Float[NDArray, "n t"], Float[NDArray, "n 2 l t"]]:
        refuse_choices(self, choices)
        mean, deviation = self._mean_and_deviation(X)
        return mean, normal_intervals(mean, deviation, levels)


class MixtureRegressor(NormalRegressor):
    """A stack of networks gives every row a mixture; intervals are those of the normal of its mean and variance.

    Inside, inputs and targets are standardised; what leaves is in the units of y.
    """

    def _map_outputs(self, function: Callable[[slice, Tensor], Any], X: Any) -> list[Any]:
        """``function(rows, outputs)`` for chunks of rows, with the outputs of all parts of the mixture."""
        return self.model_.map_outputs(function, X)

    @abstractmethod
    def _moments(self, outputs: Float[Tensor, "m n o"]) -> tuple[Float[Tensor, "n t"], Float[Tensor, "n t"]]:
        """Mean and variance of the mixture, in the scale of the networks."""

    @abstractmethod
    def _log_density(self, y: Float[Tensor, "n t"], outputs: Float[Tensor, "m n o"]) -> Float[Tensor, "n t"]:
        """The logarithm of the predicted density at y, in the scale of the networks."""

    def _mean_and_deviation(self, X: Any) -> tuple[Float[NDArray, "n t"], Float[NDArray, "n t"]]:
        chunks = self._map_outputs(lambda _, outputs: self._moments(outputs), X)
        means, variances = zip(*chunks, strict=True)
        deviation = torch.cat(variances).sqrt().numpy() * self.model_.y_scale_
        return torch.cat(means).numpy() * self.model_.y_scale_ + self.model_.y_mean_, deviation

    def _log_densities(self, X: Any, y: Float[NDArray, "n t"]) -> Float[NDArray, "n t"]:
        scaled = self.model_.scale_targets(y)
        chunks = self._map_outputs(lambda rows, outputs: self._log_density(scaled[rows], outputs), X)
        return torch.cat(chunks).numpy() - np.log(self.model_.y_scale_)


def check_training(
    hidden_sizes: Sequence[int], epochs: int | None, batch_size: int = 1, learning_rate: float = 1.0
) -> None:
    """The settings of a network's training."""
    for size in hidden_sizes:
        check_positive(size, "hidden_sizes", integer=True)
    if epochs is not None:
        check_positive(epochs, "epochs", integer=True)
    check_positive(batch_size, "batch_size", integer=True)
    check_positive(learning_rate, "learning_rate")


def normal_intervals(
    mean: Float[NDArray, "n *t"], deviation: Float[NDArray, "n *t"], levels: Float[NDArray, "l"]
) -> Float[NDArray, "n 2 l *t"]:
    """The central intervals of normal distributions."""
    quantiles = ndtri(0.5 + 0.5 * levels).reshape(-1, *(1,) * (mean.ndim - 1))
    return from_radius(mean, quantiles * deviation[:, None])
