"""Methods that predict a normal distribution, and the normal approximation of a mixture of networks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from lvd._parallel import few_threads
from lvd._typing import ArrayLike, Float, NDArray
from lvd._validation import check_positive, like
from lvd.intervals import from_radius
from lvd.methods.base import IntervalRegressor, refuse_choices

MapOutputs: TypeAlias = Callable[[Callable[[slice, Tensor], Any], Any], list[Any]]
"""``map_outputs(function, X)`` returns ``function(rows, outputs)`` for each chunk of X."""


class NormalRegressor(IntervalRegressor):
    """A method that trains on all rows, predicts a normal distribution and returns its central intervals."""

    guarantee: ClassVar[str] = "none"
    post_hoc: ClassVar[bool] = False
    model_: Any

    @abstractmethod
    def _train(self, X: Any, y: Float[NDArray, "n t"], seed: int) -> None:
        """Train ``model_``."""

    @abstractmethod
    def _mean_and_deviation(self, X: Any) -> tuple[Float[NDArray, "n t"], Float[NDArray, "n t"]]:
        """The mean and standard deviation of each row, in the units of y."""

    @abstractmethod
    def _log_densities(self, X: Any, y: Float[NDArray, "n t"]) -> Float[NDArray, "n t"]:
        """The log predictive density at y, in the units of y."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> Any:
        """Train on all rows."""
        inputs, targets, seed = self._begin(X, y)
        with few_threads(inputs):
            self._train(inputs, targets, seed)
        return self

    def log_likelihood(self, X: ArrayLike, y: ArrayLike) -> Any:
        """The log predictive density at each y, in the units of y, with the shape of y."""
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


def mixture_mean_and_deviation(
    stack: Any, map_outputs: MapOutputs, X: Any, moments: Callable[[Tensor], tuple[Tensor, Tensor]]
) -> tuple[Float[NDArray, "n t"], Float[NDArray, "n t"]]:
    """The mean and standard deviation of the mixture that a stack of networks predicts, in the units of y.

    `map_outputs` runs the mixture's components on chunks of rows; `moments` computes mean and variance from
    their outputs, on the networks' standardised scale.
    """
    means, variances = zip(*map_outputs(lambda _, outputs: moments(outputs), X), strict=True)
    deviation = torch.cat(variances).sqrt().numpy() * stack.y_scale_
    return torch.cat(means).numpy() * stack.y_scale_ + stack.y_mean_, deviation


def mixture_log_densities(
    stack: Any,
    map_outputs: MapOutputs,
    X: Any,
    y: Float[NDArray, "n t"],
    log_density: Callable[[Tensor, Tensor], Tensor],
) -> Float[NDArray, "n t"]:
    """The log density of the mixture at y, in the units of y; `log_density` works on the networks' scale."""
    scaled = stack.scale_targets(y)
    chunks = map_outputs(lambda rows, outputs: log_density(scaled[rows], outputs), X)
    return torch.cat(chunks).numpy() - np.log(stack.y_scale_)


def check_training(
    hidden_sizes: Sequence[int], epochs: int | None, batch_size: int = 1, learning_rate: float = 1.0
) -> None:
    """Check the training settings of a network."""
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
