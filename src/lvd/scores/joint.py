"""One score for all targets of a row, whose radius gives a region that holds them together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from lvd._typing import Float, NDArray
from lvd._validation import check_choice, present_rows
from lvd.regions import NO_BOUNDS, Bounds, Boxes, Ellipsoids, Region, mahalanobis_norm, reaches
from lvd.scores.covariance import LocalCovariance
from lvd.scores.scaled import ScaledResidual
from lvd.scores.score import BoundScore, ConformityScore, EvaluatedRows, TrainingRows

SHAPES = ("box", "ellipsoid")


@dataclass(frozen=True, eq=False)
class BoundJoint(BoundScore):
    """The largest of ``|y_t - y_pred_t| / unit_t``, or, with `shapes`, the Mahalanobis norm of the error.

    A radius r reaches ``r * unit_t`` from the prediction of target t, in both.
    """

    y_pred: Float[NDArray, "n t"]
    unit: Float[NDArray, "n t"]
    shapes: Float[NDArray, "n t t"] | None = None

    def __call__(self, y: Float[NDArray, "n t"]) -> Float[NDArray, "n 1 1"]:
        """One column for all targets; NaN for a row without one of them."""
        errors = y - self.y_pred
        if self.shapes is None:
            sizes: NDArray = (np.abs(errors) / self.unit).max(axis=1)
        else:
            sizes = mahalanobis_norm(errors, self.shapes)
        return sizes[:, None, None]

    def intervals(
        self, radius: Float[NDArray, "n 1 l 1"], levels: Float[NDArray, "l"]
    ) -> Float[NDArray, "n 2 l t"]:
        """The region's projections on each target; an empty region shrinks to the prediction."""
        columns = [
            self.region(radius[:, 0, number, 0]).project() for number in range(len(levels))
        ]  # one level after the other, so that a region's own projections are these to the bit
        return np.stack(columns, axis=2)

    def region(self, radius: Float[NDArray, "n"], bounds: Bounds = NO_BOUNDS) -> Region:
        """All y that score at most the radius."""
        scale = np.maximum(radius, 0.0)
        if self.shapes is not None:
            return Ellipsoids(self.y_pred, self.shapes, scale, bounds)
        with np.errstate(over="ignore"):
            return Boxes(self.y_pred, scale[:, None] * self.unit, bounds)


class JointResidual(ConformityScore):
    """All targets' errors in one score, in units of the errors to expect at the row.

    The units are those of :class:`ScaledResidual`, one for each target. A box is ``max_t |e_t| / s_t(x)``: one
    radius for all targets, each in its own units. An ellipsoid is ``sqrt(z' S(x)^-1 z)`` with
    ``z_t = e_t / s_t(x)`` and S the moments of z near x, from training rows held out of the model: where errors
    are correlated, it is smaller. ``"box"`` and ``"ellipsoid"`` are its names as a `conformity_score`.

    Parameters
    ----------
    shape : ``"box"`` or ``"ellipsoid"``.
    scales : which scales may enter the units, as in :class:`ScaledResidual`; with none each target's unit is its
        mean error, the same at every row.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(400, 2))
    >>> score = lvd.scores.JointResidual("box", scales=("boosted",))
    >>> reg = lvd.ConformalRegressor(conformity_score=score, random_state=0).fit(X, X)
    >>> reg.predict_region(X[:5]).contains(X[:5]).shape
    (5,)
    """

    joint: ClassVar[bool] = True
    learns_errors = True
    residual_: ScaledResidual
    covariance_: LocalCovariance | None

    def __init__(
        self, shape: str = "box", scales: tuple[str, ...] = ("kernel", "boosted", "network")
    ) -> None:
        self.shape = shape
        self.scales = scales

    def _check_parameters(self) -> None:
        check_choice(self.shape, "shape", SHAPES)
        ScaledResidual(self.scales)._check_parameters()

    @property
    def typical(self) -> float:
        """The mean score of the training rows."""
        return self.mean_

    def error_sizes(self, errors: Float[NDArray, "n t"]) -> Float[NDArray, "n 1"]:
        """The norm of the errors, each target's in units of its mean error: one kernel serves all targets."""
        means = np.nansum(np.abs(errors), axis=0) / np.maximum(1, (~np.isnan(errors)).sum(axis=0))
        return np.linalg.norm(errors / np.where(means > 0.0, means, 1.0), axis=1, keepdims=True)

    def fit(self, training: TrainingRows) -> None:
        """Learn each target's units, and, for ellipsoids, how its errors go with the others'."""
        self.residual_ = ScaledResidual(self.scales)
        self.residual_.fit(training)
        self.covariance_ = None
        evaluation = training.rows.evaluation._replace(y_pred=training.held_out_predictions)
        held_out = replace(training.rows, evaluation=evaluation)
        errors = training.held_out_errors
        if self.shape == "ellipsoid":
            some = present_rows(errors.sum(axis=1))
            scaled = errors[some] / self.residual_.bind(held_out).unit[some]
            points = _points(held_out)
            self.covariance_ = LocalCovariance().fit(
                None if points is None else points[some], scaled, training.seed
            )
        self.mean_ = float(np.nanmean(self.bind(held_out)(training.y)))

    def bind(self, rows: EvaluatedRows) -> BoundJoint:
        """The score of these rows."""
        unit = self.residual_.bind(rows).unit
        if self.covariance_ is None:
            return BoundJoint(rows.y_pred, unit)
        shapes = self.covariance_.predict(_points(rows), len(unit)) * unit[:, :, None] * unit[:, None]
        return BoundJoint(rows.y_pred, reaches(shapes), shapes)


def _points(rows: EvaluatedRows) -> Float[NDArray, "n k"] | None:
    return rows.coordinates(0) if rows.kernels else None
