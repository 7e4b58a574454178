"""The conditional methods of other packages, around the network of a split."""

from __future__ import annotations

from experiments.arena import rivals
from experiments.paper.stages import Stages, TableSplit
from lvd._typing import NDArray

MAPIE_ROWS = 200
"""MAPIE solves one linear program per row: on larger tables only this many test rows are predicted."""


class AroundNetwork:
    """A split in the form of the arena's methods; the network has seen the training rows whose errors are used."""

    def __init__(self, split: TableSplit) -> None:
        parts = (split.train, split.calib, split.test)
        self.X_train, self.X_calib, self.X_test = (split.X[rows] for rows in parts)
        self.y_train, self.y_calib, _ = (split.y[rows] for rows in parts)
        self.predict, self.stages = split.estimator.predict, Stages()

    @property
    def held_out(self) -> NDArray:
        return self.predict(self.X_train)

    @property
    def calib_errors(self) -> NDArray:
        return self.y_calib - self.predict(self.X_calib)


def crepes_knn(split: TableSplit, level: float) -> NDArray:
    """Normalised conformal regression; difficulty is the mean error of the 25 nearest training rows."""
    around = AroundNetwork(split)
    return rivals.crepes_normalized(around, level)(around.X_test)[:, :, None]


def crepes_mondrian(split: TableSplit, level: float) -> NDArray:
    """Conformal regression within five bins of the same difficulty."""
    around = AroundNetwork(split)
    return rivals.crepes_mondrian(around, level, around.X_calib)(around.X_test)[:, :, None]


def mapie_conditional(split: TableSplit, level: float) -> NDArray:
    """Exact conditional cutoffs of Gibbs et al. over linear functions of five principal components."""
    around = AroundNetwork(split)
    return rivals.mapie_conditional(around, level)(around.X_test[:MAPIE_ROWS])[:, :, None]
