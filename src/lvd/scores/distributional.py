"""How deep y is in the tails of the error's distribution at its row (Chernozhukov, Wüthrich and Zhu 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lvd._progress import announce
from lvd._typing import Float, NDArray
from lvd._validation import present_rows
from lvd.scores.residuals import BoundResidual
from lvd.scores.scaled import ScaledResidual, features_of
from lvd.scores.score import BoundScore, ConformityScore, EvaluatedRows, TrainingRows
from lvd.scores.shapes import GRID, MIDDLE, ErrorShape, depth_of, error_at

QUARTER, THREE_QUARTERS, LOW, HIGH = (int(np.flatnonzero(tau == GRID)[0]) for tau in (0.25, 0.75, 0.05, 0.95))
UNEVEN = 1.5
"""Errors are called uneven if those on one side are so many times as large as on the other."""


@dataclass(frozen=True, eq=False)
class BoundDistribution(BoundScore):
    """The size of the depth of y; see :mod:`lvd.scores.shapes`.

    `quantiles` are those of the errors of each target, in the units of `residual`; a target without them is scored
    by `residual` itself.
    """

    residual: BoundResidual
    quantiles: tuple[Float[NDArray, "n k"] | None, ...]

    def __call__(self, y: Float[NDArray, "n t"]) -> Float[NDArray, "n 1 t"]:
        """One column."""
        scores, depths = self.residual(y), np.abs(self.signed(y))
        for target, quantiles in enumerate(self.quantiles):
            if quantiles is not None:
                scores[:, 0, target] = depths[:, target]
        return scores

    def signed(self, y: Float[NDArray, "n t"]) -> Float[NDArray, "n t"]:
        """The depth of y."""
        result, z = self.residual.signed(y), self._in_units(y)
        for target, quantiles in enumerate(self.quantiles):
            if quantiles is not None:
                result[:, target] = depth_of(z[:, target], quantiles)
        return result

    def targets_at(self, signed: Float[NDArray, "n j t"]) -> Float[NDArray, "n j t"]:
        """The y of these depths."""
        result = self.residual.targets_at(signed)
        for target, quantiles in enumerate(self.quantiles):
            if quantiles is not None:
                z = error_at(signed[..., target], quantiles)
                result[..., target] = self.y_pred[:, None, target] + self._times_units(z, target)
        return result

    def intervals(
        self, radius: Float[NDArray, "n 1 l t"], levels: Float[NDArray, "l"]
    ) -> Float[NDArray, "n 2 l t"]:
        """All y at most as deep as `radius`, and what is between them and the prediction; an empty set shrinks to
        the prediction."""
        depth, y_pred = np.maximum(radius[:, 0], 0.0), self.y_pred[:, None]
        ends = self.targets_at(np.concatenate([-depth, depth], axis=1))
        lower, upper = np.minimum(ends[:, : len(levels)], y_pred), np.maximum(ends[:, len(levels) :], y_pred)
        result = np.where(radius < 0.0, y_pred[:, None], np.stack([lower, upper], axis=1))
        alike = [target for target, quantiles in enumerate(self.quantiles) if quantiles is None]
        if alike:
            result[..., alike] = self.residual.intervals(radius, levels)[..., alike]
        return result

    def remark(self, row: int, target: int) -> str | None:
        """In one sentence, on which side of the prediction errors are larger, or that it is too low or too high."""
        quantiles = self.quantiles[target]
        if quantiles is None:
            return None
        below, above = self.residual.below[row, target], self.residual.above[row, target]
        errors = np.where(quantiles[row] < 0.0, quantiles[row] * below, quantiles[row] * above)
        if errors[QUARTER] > 0.0 or errors[THREE_QUARTERS] < 0.0:
            side = "low" if errors[MIDDLE] > 0.0 else "high"
            size = float(f"{abs(errors[MIDDLE]):.2g}")
            return f"The model predicts about {size:,.10g} too {side} here."
        smaller, larger = sorted((-errors[LOW], errors[HIGH]))
        if larger < UNEVEN * smaller or larger <= 0.0:
            return None
        sides = ("above", "below") if errors[HIGH] == larger else ("below", "above")
        ratio = f"{larger / smaller:.2g}" if smaller > 0.0 else "inf"
        times = {"2": "twice", "inf": "many times"}.get(ratio, f"{ratio} times")
        return f"Errors {sides[0]} the prediction are about {times} as large as {sides[1]}."

    def _in_units(self, y: Float[NDArray, "n t"]) -> Float[NDArray, "n t"]:
        error = y - self.y_pred
        return error / np.where(error < 0.0, self.residual.below, self.residual.above)

    def _times_units(self, z: Float[NDArray, "n j"], target: int) -> Float[NDArray, "n j"]:
        below, above = self.residual.below[:, None, target], self.residual.above[:, None, target]
        with np.errstate(over="ignore"):
            return z * np.where(z < 0.0, below, above)


class DistributionalResidual(ConformityScore):
    """How deep y is in the tails of the distribution that its error has at the row, for errors that are not alike
    on both sides.

    Errors in units of those to expect, as in :class:`ScaledResidual`, have a distribution of their own at each row:
    skewed, with other tails, or around another value than zero where the model is biased. It is learned from the
    errors on training rows held out, by boosted trees and small networks of quantiles, and used where it serves
    rows that were not learned from; a target whose errors are symmetric and all of one shape is scored as by
    :class:`ScaledResidual`, to the bit. One radius moves both ends by the distribution's quantiles; intervals are
    extended to hold the prediction.

    Parameters
    ----------
    scales : which scales may enter the units, as in :class:`ScaledResidual`.

    Attributes
    ----------
    shapes_ : for each target the :class:`~lvd.scores.shapes.ErrorShape`; None where the scaled error does as well.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(2000, 2))
    >>> y = X[:, 0] + rng.exponential(size=2000)
    >>> reg = lvd.LVDRegressor("trees", conformity_score="distributional", random_state=0).fit(X, y)
    >>> y_pred, intervals = reg.predict_interval(X[:200])
    >>> below, above = np.median(np.abs(intervals[..., 0] - y_pred[:, None]), axis=0)
    >>> bool(above > 1.5 * below)
    True
    """

    residual_: ScaledResidual
    shapes_: list[ErrorShape | None]
    learns_errors = True

    def __init__(self, scales: tuple[str, ...] = ("own", "kernel", "boosted", "network")) -> None:
        self.scales = scales

    def _check_parameters(self) -> None:
        ScaledResidual(self.scales)._check_parameters()

    @property
    def typical(self) -> float:
        """The mean of a depth, which is exponential; that of a scaled error where no shape was learned."""
        return 1.0 if all(shape is None for shape in self.shapes_) else float(1.0 / np.log(2.0))

    def measure_of(self, target: int) -> str:
        """A depth, where there is a shape."""
        return self.measure if self.shapes_[target] is None else "depth"

    def fit(self, training: TrainingRows) -> None:
        """Learn the scales, and the shape of the errors in units of them.

        Of a model with a spread of its own it is learned from the rows that it was not trained on.
        """
        self.residual_ = ScaledResidual(self.scales)
        units = self.residual_.learn(training)
        if self.residual_.own_spread(training.rows) is None:
            self._learn_shapes(training, training.held_out_predictions, units, units)
        else:
            bound = self.residual_.bind(training.rows)
            unseen = np.zeros((len(units), 1), bool)
            unseen[training.model.rows_held_out] = True
            y_pred = np.where(unseen, bound.y_pred, np.nan)
            self._learn_shapes(training, y_pred, bound.below, bound.above)

    def fit_crossed(self, training: TrainingRows) -> BoundScore:
        """Learn; the training rows are measured by scales and shapes that have not seen their fold."""
        self.residual_ = ScaledResidual(self.scales)
        residual = self.residual_.fit_crossed(training)
        quantiles = self._learn_shapes(training, residual.y_pred, residual.below, residual.above)
        if all(shape is None for shape in self.shapes_):
            return residual
        return BoundDistribution(residual.y_pred, residual.unit, residual, quantiles)

    def _learn_shapes(
        self,
        training: TrainingRows,
        y_pred: Float[NDArray, "n t"],
        below: Float[NDArray, "n t"],
        above: Float[NDArray, "n t"],
    ) -> tuple[Float[NDArray, "n k"] | None, ...]:
        """Learn the shape of each target; returns the training rows' quantiles, by what has not seen their fold."""
        errors = training.y - y_pred
        z = errors / np.where(errors < 0.0, below, above)
        shared, folds = features_of(training.rows, y_pred), training.fold_of
        self.shapes_, crossed = [], []
        for target, column in enumerate(z.T):
            announce("learning the shape of errors")
            rows = present_rows(column)
            features = _features(shared, below, above, target)[rows]
            own = (below + above)[rows, target] / 2.0
            found = ErrorShape.learned(
                features, column[rows], own, training.seed, None if folds is None else folds[rows]
            )
            self.shapes_.append(None if found is None else found[0])
            crossed.append(None if found is None else _at_rows(found[1], rows, len(column)))
        return tuple(crossed)

    def bind(self, rows: EvaluatedRows) -> BoundScore:
        """The score of these rows."""
        residual = self.residual_.bind(rows)
        if all(shape is None for shape in self.shapes_):
            return residual
        shared = features_of(rows, rows.y_pred)
        quantiles = tuple(
            None
            if shape is None
            else shape.predict(_features(shared, residual.below, residual.above, target))
            for target, shape in enumerate(self.shapes_)
        )
        return BoundDistribution(residual.y_pred, residual.unit, residual, quantiles)


def _at_rows(quantiles: Float[NDArray, "m k"], rows: Any, n_rows: int) -> Float[NDArray, "n k"]:
    """The quantiles at their rows; rows without the target, whose score is NaN, get any."""
    result = np.tile(quantiles[:1], (n_rows, 1))
    result[rows] = quantiles
    return result


def _features(
    shared: Float[NDArray, "n f"], below: Float[NDArray, "n t"], above: Float[NDArray, "n t"], target: int
) -> Float[NDArray, "n g"]:
    """Predictions, inputs, and the errors to expect below and above."""
    return np.column_stack([shared, np.log(below[:, target]), np.log(above[:, target])])
