"""A score of one's own: errors relative to the size of the prediction."""

from dataclasses import dataclass

import numpy as np

from lvd.scores import BoundScore, ConformityScore


@dataclass(frozen=True, eq=False)
class BoundRelative(BoundScore):
    """``|y - y_pred| / unit``."""

    def __call__(self, y):
        return (np.abs(y - self.y_pred) / self.unit)[:, None]

    def intervals(self, radius, levels):
        half = np.maximum(radius[:, 0], 0.0) * self.unit[:, None]
        return np.stack([self.y_pred[:, None] - half, self.y_pred[:, None] + half], axis=1)


class RelativeResidual(ConformityScore):
    """The unit is the size of the prediction, and at least a share of that of usual ones."""

    def __init__(self, least=0.1):
        self.least = least

    def fit(self, training):
        self.typical_ = np.abs(training.y).mean(axis=0)

    def bind(self, rows):
        unit = np.maximum(np.abs(rows.y_pred), self.least * self.typical_)
        return BoundRelative(rows.y_pred, unit)
