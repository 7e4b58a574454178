"""How far y is outside predicted quantiles (Romano, Patterson and Candès 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lvd._typing import Float, NDArray
from lvd._validation import InputError
from lvd.models import Model
from lvd.models.quantile_model import QuantileModel
from lvd.scores.score import BoundScore, ConformityScore, EvaluatedRows, Plan


@dataclass(frozen=True, eq=False)
class BoundQuantiles(BoundScore):
    """``max(lower - y, y - upper)`` at each trained level, signed: negative inside the predicted quantiles.

    If each end moves on its own, the two parts of the maximum are separate columns.
    """

    quantiles: Float[NDArray, "n 2 k t"]
    levels: Float[NDArray, "k"]
    symmetric: bool

    def __call__(self, y: Float[NDArray, "n t"]) -> Float[NDArray, "n c t"]:
        """One or two columns per level."""
        lower, upper = self.quantiles[:, 0], self.quantiles[:, 1]
        below, above = lower - y[:, None], y[:, None] - upper
        if self.symmetric:
            return np.maximum(below, above)
        return np.stack([below, above], axis=2).reshape(len(y), -1, y.shape[1])

    def intervals(
        self, radius: Float[NDArray, "n s l t"], levels: Float[NDArray, "l"]
    ) -> Float[NDArray, "n 2 l t"]:
        """The quantiles moved out by the radii; an interval that becomes empty shrinks to its middle."""
        at = [position(self.levels, level) for level in levels.tolist()]
        lower = self.quantiles[:, 0, at] - radius[:, 0]
        upper = self.quantiles[:, 1, at] + radius[:, -1]
        empty, middle = lower > upper, self.quantiles[:, :, at].mean(1)
        return np.stack([np.where(empty, middle, lower), np.where(empty, middle, upper)], axis=1)


class QuantileResidual(ConformityScore):
    """How far y is outside two quantiles that the model predicts, with one network per confidence level.

    Parameters
    ----------
    symmetric : move both ends by the same amount; otherwise each by its own, with half of the miscoverage.
    """

    measure: ClassVar[str] = "score"

    levels_: Float[NDArray, "k"]

    def __init__(self, symmetric: bool = True) -> None:
        self.symmetric = symmetric

    def prepare(self, model: Model, levels: Float[NDArray, "l"]) -> QuantileModel:
        """One network per level, trained with the pinball loss."""
        self.levels_ = levels
        return QuantileModel.of(model, levels)

    def bind(self, rows: EvaluatedRows) -> BoundQuantiles:
        """The quantiles of these rows."""
        quantiles = rows.evaluation.quantiles
        assert quantiles is not None
        return BoundQuantiles(rows.y_pred, np.ones_like(rows.y_pred), quantiles, self.levels_, self.symmetric)

    @property
    def only_levels(self) -> Float[NDArray, "l"]:
        """The levels that networks were trained for."""
        return np.asarray(self.levels_, np.float64)

    def plan(self, level: float) -> Plan:
        """The column, or the two columns, of the trained level."""
        at = position(self.levels_, level)
        return Plan((at,), level) if self.symmetric else Plan((2 * at, 2 * at + 1), (1.0 + level) / 2.0)


def position(trained: Float[NDArray, "k"], level: float) -> int:
    """Which of the trained levels this is."""
    found = np.flatnonzero(np.abs(trained - level) < 1e-9)
    if not found.size:
        listed = ", ".join(f"{known:g}" for known in trained)
        raise InputError(
            f"there is no network for confidence_level={level:g}: the trained levels are {listed}; "
            "give all levels you need to the constructor, as a list"
        )
    return int(found[0])
