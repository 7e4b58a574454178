"""Methods whose prediction is a mixture of networks, summed up by a normal distribution."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from scipy.stats import norm
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from lvd._typing import ArrayLike, Float, NDArray, RandomState
from lvd._validation import check_positive, like
from lvd.intervals import from_radius
from lvd.methods.base import IntervalRegressor, refuse_choices


class MixtureRegressor(IntervalRegressor):
    """A stack of networks gives every row a mixture; intervals are those of the normal of its mean and variance.

    Inside, inputs and targets are standardised; what leaves is in the units of y.
    """

    model_: Any
    hidden_sizes: Sequence[int]
    epochs: int | None
    batch_size: int
    learning_rate: float
    device: str
    random_state: RandomState

    @abstractmethod
    def _new_model(self) -> Any:
        """The untrained networks."""

    @abstractmethod
    def _train(self, X: Any, y: Float[NDArray, "n t"], seed: int) -> None:
        """Train ``model_``."""

    @abstractmethod
    def _map_outputs(self, function: Callable[[slice, Tensor], Any], X: Any) -> list[Any]:
        """``function(rows, outputs)`` for chunks of rows, with the outputs of all parts of the mixture."""

    @abstractmethod
    def _moments(self, outputs: Float[Tensor, "m n o"]) -> tuple[Float[Tensor, "n t"], Float[Tensor, "n t"]]:
        """Mean and variance of the mixture, in the scale of the networks."""

    @abstractmethod
    def _log_density(self, y: Float[Tensor, "n t"], outputs: Float[Tensor, "m n o"]) -> Float[Tensor, "n t"]:
        """The logarithm of the predicted density at y, in the scale of the networks."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> Any:
        """Train on all rows."""
        self._check_training_parameters()
        self._train(*self._begin(X, y, lambda _: self._new_model()))
        return self

    def log_likelihood(self, X: ArrayLike, y: ArrayLike) -> Any:
        """The logarithm of the predicted density at each y, in the units of y: of the shape of y."""
        check_is_fitted(self, "model_")
        inputs, targets = self._check_rows(X, y, self.n_targets_)
        scaled = self.model_.scale_targets(targets)
        log_density = torch.cat(
            self._map_outputs(lambda rows, outputs: self._log_density(scaled[rows], outputs), inputs)
        )
        return like(self._as_given(log_density.numpy() - np.log(self.model_.y_scale_)), X)

    def _predict(self, X: Any) -> Float[NDArray, "n t"]:
        return self._mean_and_deviation(X)[0]

    def _predict_interval(
        self, X: Any, levels: Float[NDArray, "l"], **choices: Any
    ) -> tuple[Float[NDArray, "n t"], Float[NDArray, "n 2 l t"]]:
        refuse_choices(self, choices)
        mean, deviation = self._mean_and_deviation(X)
        return mean, normal_intervals(mean, deviation, levels)

    def _mean_and_deviation(self, X: Any) -> tuple[Float[NDArray, "n t"], Float[NDArray, "n t"]]:
        chunks = self._map_outputs(lambda _, outputs: self._moments(outputs), X)
        means, variances = zip(*chunks, strict=True)
        deviation = torch.cat(variances).sqrt().numpy() * self.model_.y_scale_
        return torch.cat(means).numpy() * self.model_.y_scale_ + self.model_.y_mean_, deviation

    def _check_training_parameters(self) -> None:
        for size in self.hidden_sizes:
            check_positive(size, "hidden_sizes", integer=True)
        if self.epochs is not None:
            check_positive(self.epochs, "epochs", integer=True)
        check_positive(self.batch_size, "batch_size", integer=True)
        check_positive(self.learning_rate, "learning_rate")


def normal_intervals(
    mean: Float[NDArray, "n *t"], deviation: Float[NDArray, "n *t"], levels: Float[NDArray, "l"]
) -> Float[NDArray, "n 2 l *t"]:
    """The central intervals of normal distributions."""
    quantiles = norm.ppf(0.5 + 0.5 * levels).reshape(-1, *(1,) * (mean.ndim - 1))
    return from_radius(mean, quantiles * deviation[:, None])
