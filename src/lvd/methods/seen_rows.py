"""Rows as a fitted :class:`LVDRegressor` sees them, and how it accounts for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lvd._typing import Float, NDArray
from lvd._validation import row_digests
from lvd.conformal import SignedResidual
from lvd.conformal.explanation import Evidence


@dataclass(frozen=True)
class SeenRows:
    """What one pass of the network gives: embeddings, predictions, and the units in which errors are measured."""

    inputs: Any
    embeddings: Float[NDArray, "n h"]
    y_pred: Float[NDArray, "n t"]
    units: Float[NDArray, "n t"]

    @property
    def keys(self) -> NDArray:
        """What random draws belong to: the inputs, as the network's last digits depend on the rows beside them."""
        return row_digests(self.inputs)

    def residual(self, target: int) -> SignedResidual:
        """The signed score of one target."""
        return SignedResidual(self.y_pred[:, target], self.units[:, target])

    def errors(self, y: Float[NDArray, "n t"]) -> Float[NDArray, "n t"]:
        """The signed scores of all targets."""
        return SignedResidual(self.y_pred, self.units)(y)


@dataclass(frozen=True)
class Explanation:
    """One row's interval and what stands behind it; `label` is what the row is called where it has a name."""

    row: int
    target: int
    y_pred: float
    lower: float
    upper: float
    evidence: Evidence
    label: str | None = None

    @property
    def sentence(self) -> str:
        """Why the interval is as wide as it is, or infinite."""
        return self.evidence.sentence
