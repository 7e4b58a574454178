"""Training losses per row and target, so that missing targets can be masked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from lvd._typing import Float, NDArray
from lvd.models.heads import gaussian_log_density, mean_and_variance

ORDERS, ORDER_WEIGHTS = (0.05, 0.5, 0.95), (9.7, 2.5, 9.7)
"""The quantiles that :class:`QuantilesLoss` learns. The weights are ``1 / pdf`` of the standard normal at its
quantiles, which makes the minimal losses of normal errors similar, so that the outer quantiles count as much as
the median."""
ERROR_SHARE = 0.485
"""A normal distribution's mean absolute error, relative to the distance from its median to its 95% quantile."""
LEAST_LOSS = 1e-6
UsualLosses = Callable[[Tensor, Tensor], Tensor]
"""Maps each target's mean loss in this step, and whether any row has it, to its usual loss."""


@runtime_checkable
class ElementLoss(Protocol):
    """A loss per row and target; an object rather than a function, so that the model can be saved."""

    outputs_per_target: ClassVar[int]

    def __call__(self, outputs: Float[Tensor, "b o"], targets: Float[Tensor, "b t"]) -> Float[Tensor, ""]:
        """The mean loss of a batch whose targets are all known."""
        return self.elements(outputs, targets).mean()

    def elements(self, outputs: Float[Tensor, "b o"], targets: Float[Tensor, "b t"]) -> Float[Tensor, "b t"]:
        """The loss of each row and target, on the network's scale."""
        ...

    def summary(self, means: Float[Tensor, "t"], scale: Float[Tensor, "t"]) -> Float[Tensor, ""]:
        """The value that ranks epochs, from each target's mean loss and scale."""
        ...

    def unscale(
        self, outputs: Float[Tensor, "n o"], mean: Float[Tensor, "t"], scale: Float[Tensor, "t"]
    ) -> Float[Tensor, "n o"]:
        """The network's outputs in the units of the targets; ``output * scale + mean`` by default."""
        return outputs * scale + mean

    def total(
        self, elements: Float[Tensor, "b t"], known: Float[Tensor, "b t"], usual: UsualLosses
    ) -> Float[Tensor, ""]:
        """The training objective: the mean over elements whose target is known (1); 0 if there are none.

        `usual` returns each target's running mean loss, for losses that weight targets by it.
        """
        return (elements * known).sum() / known.sum().clamp(min=1.0)

    def read(
        self, outputs: Float[NDArray, "n o"]
    ) -> tuple[Float[NDArray, "n o"], Float[NDArray, "n 2 t"] | None]:
        """Predictions, and the errors below and above them that the network itself predicts, if it does."""
        return outputs, None


def target_means(elements: Float[Tensor, "b t"], known: Float[Tensor, "b t"]) -> Float[Tensor, "t"]:
    """The mean of each target's known (1) elements; 0 if there are none."""
    return (elements * known).sum(0) / known.sum(0).clamp(min=1.0)


def quantile_loss(error: Float[Tensor, "*b q"], order: Any) -> Float[Tensor, "*b q"]:
    """``max(order * error, (order - 1) * error)`` with ``error = target - quantile``."""
    return torch.maximum(order * error, (order - 1.0) * error)


def known_mean(
    loss: ElementLoss, outputs: Float[Tensor, "b o"], targets: Float[Tensor, "b t"]
) -> Float[Tensor, ""]:
    """The mean loss of the known targets; 0 if there are none."""
    known = ~targets.isnan()
    elements = loss.elements(outputs, targets.nan_to_num())
    return (elements * known).sum() / known.sum().clamp(min=1)


@dataclass(frozen=True)
class SquaredLoss(ElementLoss):
    """Squared errors; epochs are ranked by their root mean, in the units of each target."""

    outputs_per_target: ClassVar[int] = 1

    def elements(self, outputs: Float[Tensor, "b t"], targets: Float[Tensor, "b t"]) -> Float[Tensor, "b t"]:
        """``(output - target)^2``."""
        return (outputs - targets).square()

    def summary(self, means: Float[Tensor, "t"], scale: Float[Tensor, "t"]) -> Float[Tensor, ""]:
        """The root mean squared error in original units, averaged over targets."""
        return (means.sqrt() * scale).mean()


@dataclass(frozen=True)
class PinballLoss(ElementLoss):
    """The pinball loss of the two quantiles of one level.

    The targets come twice: the first half of the columns are lower quantiles, the other half upper ones.
    """

    level: float
    outputs_per_target: ClassVar[int] = 1

    def elements(self, outputs: Float[Tensor, "b q"], targets: Float[Tensor, "b q"]) -> Float[Tensor, "b q"]:
        """The :func:`quantile_loss` of every output."""
        half = outputs.shape[1] // 2
        # Filled on the device: a captured CUDA graph cannot contain values from the host.
        lower, upper = (outputs.new_full((half,), (1.0 + sign * self.level) / 2.0) for sign in (-1.0, 1.0))
        return quantile_loss(targets - outputs, torch.cat([lower, upper]))

    def summary(self, means: Float[Tensor, "q"], scale: Float[Tensor, "q"]) -> Float[Tensor, ""]:
        """The mean over quantiles, in original units."""
        return (means * scale).mean()


@dataclass(frozen=True)
class NormalLoss(ElementLoss):
    """The negative log-likelihood of a normal distribution: all means first, then all variances."""

    outputs_per_target: ClassVar[int] = 2

    def elements(self, outputs: Float[Tensor, "b o"], targets: Float[Tensor, "b t"]) -> Float[Tensor, "b t"]:
        """``-log N(target; mean, variance)`` (equation 1 of Lakshminarayanan et al. 2017)."""
        return -gaussian_log_density(targets, *mean_and_variance(outputs))

    def summary(self, means: Float[Tensor, "t"], scale: Float[Tensor, "t"]) -> Float[Tensor, ""]:
        """The mean over targets; their units shift it by an irrelevant constant."""
        return means.mean()

    def unscale(
        self, outputs: Float[Tensor, "n o"], mean: Float[Tensor, "t"], scale: Float[Tensor, "t"]
    ) -> Float[Tensor, "n o"]:
        """Means in the units of the targets, variances in squared units."""
        means, variances = mean_and_variance(outputs)
        return torch.cat([means * scale + mean, variances * scale.square()], dim=-1)


@dataclass(frozen=True)
class QuantilesLoss(ElementLoss):
    """Pinball losses of three quantiles: the median predicts, the outer ones give the size of errors on each side.

    The outputs are all targets' lowest quantiles first, and their highest ones last. A step lowers each
    target's loss relative to its usual one, and so their geometric mean: a plain mean would let hard targets
    dominate easy ones. A batch's own loss would not work as a unit: if a target is almost constant, most
    batches have almost no loss.
    """

    outputs_per_target: ClassVar[int] = len(ORDERS)

    def elements(self, outputs: Float[Tensor, "b o"], targets: Float[Tensor, "b t"]) -> Float[Tensor, "b t"]:
        """The weighted sum of the :func:`quantile_loss` losses."""
        quantiles = outputs.split(targets.shape[1], dim=1)
        losses = [
            weight * quantile_loss(targets - quantile, order)
            for order, weight, quantile in zip(ORDERS, ORDER_WEIGHTS, quantiles, strict=True)
        ]
        return torch.stack(losses).sum(0)

    def total(
        self, elements: Float[Tensor, "b t"], known: Float[Tensor, "b t"], usual: UsualLosses
    ) -> Float[Tensor, ""]:
        """The mean over targets of their loss relative to the usual one; targets that no row has do not count."""
        means, seen = target_means(elements, known), known.sum(0).clamp(max=1.0)
        return (means / (usual(means.detach(), seen) + LEAST_LOSS)).sum() / seen.sum().clamp(min=1.0)

    def summary(self, means: Float[Tensor, "t"], scale: Float[Tensor, "t"]) -> Float[Tensor, ""]:
        """The mean log loss; the targets' units shift it by an irrelevant constant."""
        return (means + LEAST_LOSS).log().mean()

    def unscale(
        self, outputs: Float[Tensor, "n o"], mean: Float[Tensor, "t"], scale: Float[Tensor, "t"]
    ) -> Float[Tensor, "n o"]:
        """The quantiles in the units of the targets, sorted to remove crossings."""
        quantiles = outputs.unflatten(1, (len(ORDERS), -1)).sort(dim=1).values
        return (quantiles * scale + mean).flatten(1)

    def read(self, outputs: Float[NDArray, "n o"]) -> tuple[Float[NDArray, "n t"], Float[NDArray, "n 2 t"]]:
        """The medians, and the expected error on each side, from the distance to the outer quantiles."""
        lowest, median, highest = np.split(outputs, len(ORDERS), axis=1)
        return median, ERROR_SHARE * np.stack([median - lowest, highest - median], axis=1)
