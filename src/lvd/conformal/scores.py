"""Conformal scores: how badly a prediction missed, and the interval that a score's quantile stands for.

All are elementwise: rows (n,), or rows and targets (n, t); radii then are (n, l) or (n, l, t).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lvd import intervals as _intervals
from lvd._typing import Float, NDArray

ERROR_OFFSET = 1e-5


@dataclass(frozen=True)
class AbsoluteResidual:
    """``|y - y_pred|``."""

    y_pred: Float[NDArray, "n *t"]

    def __call__(self, y: Float[NDArray, "n *t"]) -> Float[NDArray, "n *t"]:
        """The score of each row."""
        return np.abs(y - self.y_pred)

    def intervals(self, radius: Float[NDArray, "n l *t"]) -> Float[NDArray, "n 2 l *t"]:
        """All y whose score is at most `radius`."""
        return _intervals.from_radius(self.y_pred, radius)


@dataclass(frozen=True)
class NormalizedResidual:
    """``|y - y_pred| / (1e-5 + |error_pred|)``, the error predicted by a second model (MAD normalisation).

    The paper prints an interval that divides by the predicted error; it must multiply, as here.
    """

    y_pred: Float[NDArray, "n *t"]
    error_pred: Float[NDArray, "n *t"]

    def __call__(self, y: Float[NDArray, "n *t"]) -> Float[NDArray, "n *t"]:
        """The score of each row."""
        return np.abs(y - self.y_pred) / self._unit()

    def intervals(self, radius: Float[NDArray, "n l *t"]) -> Float[NDArray, "n 2 l *t"]:
        """All y whose score is at most `radius`."""
        return _intervals.from_radius(self.y_pred, radius * self._unit()[:, None])

    def _unit(self) -> Float[NDArray, "n *t"]:
        return ERROR_OFFSET + np.abs(self.error_pred)


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
