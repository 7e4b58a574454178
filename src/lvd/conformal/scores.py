"""Conformal scores: how badly a prediction missed, and the interval that a score's quantile stands for.

All are elementwise: rows (n,), or rows and targets (n, t); radii then are (n, l) or (n, l, t).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lvd import intervals as _intervals
from lvd._typing import Float, NDArray

ERROR_OFFSET = 1e-5


def error_unit(error_pred: Float[NDArray, "n *t"]) -> Float[NDArray, "n *t"]:
    """What an error is measured by: a predicted error, kept off zero."""
    return ERROR_OFFSET + np.abs(error_pred)


def _times(scores: NDArray, unit: NDArray) -> NDArray:
    """The product; past the largest number it is infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(scores * unit)


@dataclass(frozen=True)
class AbsoluteResidual:
    """``|y - y_pred|``."""

    y_pred: Float[NDArray, "n *t"]

    def __call__(self, y: Float[NDArray, "n *t"]) -> Float[NDArray, "n *t"]:
        """The score of each row."""
        return np.abs(y - self.y_pred)

    def intervals(self, radius: Float[NDArray, "n l *t"]) -> Float[NDArray, "n 2 l *t"]:
        """All y whose score is at most `radius`; an empty set, of a negative one, shrinks to the prediction."""
        return _intervals.from_radius(self.y_pred, np.maximum(radius, 0.0))


@dataclass(frozen=True)
class NormalizedResidual:
    """``|y - y_pred| / (1e-5 + |error_pred|)``, the error predicted by a second model (MAD normalisation).

    The paper prints an interval that divides by the predicted error; it must multiply, as here.
    """

    y_pred: Float[NDArray, "n *t"]
    error_pred: Float[NDArray, "n *t"]

    def __call__(self, y: Float[NDArray, "n *t"]) -> Float[NDArray, "n *t"]:
        """The score of each row."""
        return np.abs(y - self.y_pred) / error_unit(self.error_pred)

    def intervals(self, radius: Float[NDArray, "n l *t"]) -> Float[NDArray, "n 2 l *t"]:
        """All y whose score is at most `radius`; an empty set, of a negative one, shrinks to the prediction."""
        unit = error_unit(self.error_pred)[:, None]
        return _intervals.from_radius(self.y_pred, _times(np.maximum(radius, 0.0), unit))


@dataclass(frozen=True)
class SignedResidual:
    """``(y - y_pred) / unit``, with its sign: negative below the prediction."""

    y_pred: Float[NDArray, "n *t"]
    unit: Float[NDArray, "n *t"]

    def __call__(self, y: Float[NDArray, "n *t"]) -> Float[NDArray, "n *t"]:
        """The score of each row."""
        return (y - self.y_pred) / self.unit

    def intervals(self, ends: Float[NDArray, "n 2 l *t"]) -> Float[NDArray, "n 2 l *t"]:
        """All y whose score lies between the two `ends`; an empty set shrinks to the prediction."""
        empty = ends[:, :1] > ends[:, 1:]
        return self.targets(np.where(empty, 0.0, ends))

    def targets(self, scores: Float[NDArray, "n *l"]) -> Float[NDArray, "n *l"]:
        """The y of which these are the scores."""
        shape = (len(scores), *(1,) * (scores.ndim - self.y_pred.ndim), *self.y_pred.shape[1:])
        return self.y_pred.reshape(shape) + _times(scores, self.unit.reshape(shape))


@dataclass(frozen=True)
class SidedResidual:
    """``max((y_pred - y) / below, (y - y_pred) / above)``: an error against what is usual on its side.

    One radius moves both ends, each by its own measure: joint control of both sides.
    """

    y_pred: Float[NDArray, "n *t"]
    below: Float[NDArray, "n *t"]
    above: Float[NDArray, "n *t"]

    def __call__(self, y: Float[NDArray, "n *t"]) -> Float[NDArray, "n *t"]:
        """The score of each row."""
        error = y - self.y_pred
        return np.maximum(-error / self.below, error / self.above)

    def intervals(self, radius: Float[NDArray, "n l *t"]) -> Float[NDArray, "n 2 l *t"]:
        """All y whose score is at most `radius`; an empty set, of a negative one, shrinks to the prediction."""
        radius, y_pred = np.maximum(radius, 0.0), self.y_pred[:, None]
        below, above = (_times(radius, unit[:, None]) for unit in (self.below, self.above))
        return np.stack([y_pred - below, y_pred + above], axis=1)


@dataclass(frozen=True)
class QuantileResidual:
    """``max(lower - y, y - upper)``, signed: negative inside the predicted quantiles (CQR)."""

    lower: Float[NDArray, "n *t"]
    upper: Float[NDArray, "n *t"]

    def __call__(self, y: Float[NDArray, "n *t"]) -> Float[NDArray, "n *t"]:
        """The score of each row."""
        return np.maximum(self.lower - y, y - self.upper)

    def intervals(
        self, radius: Float[NDArray, "n l *t"], upper_radius: Float[NDArray, "n l *t"] | None = None
    ) -> Float[NDArray, "n 2 l *t"]:
        """All y whose score is at most `radius`; an emptied interval shrinks to its middle.

        With `upper_radius` the ends move each by its own radius: the asymmetric form of CQR.
        """
        lower = self.lower[:, None] - radius
        upper = self.upper[:, None] + (radius if upper_radius is None else upper_radius)
        empty, middle = lower > upper, self.middle[:, None]
        return np.stack([np.where(empty, middle, lower), np.where(empty, middle, upper)], axis=1)

    @property
    def middle(self) -> Float[NDArray, "n *t"]:
        """Half way between the two quantiles."""
        return (self.lower + self.upper) / 2.0
