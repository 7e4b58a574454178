"""One score for all targets of a row; its radius gives a region that holds them together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from lvd._typing import Float, NDArray
from lvd._validation import check_choice, present_rows
from lvd.engine.quantiles import WeightedRows
from lvd.intervals import NO_BOUNDS, Bounds, Boxes, Ellipsoids, Region, mahalanobis_norm, reaches
from lvd.scores.scaled import BANDWIDTHS, LEAST_SHARE, ScaledResidual
from lvd.scores.score import BoundScore, ConformityScore, EvaluatedRows, TrainingRows

SHAPES = ("box", "ellipsoid")
MOST_ROWS = 2000
GLOBAL_STRENGTHS = (1.0, 3.0, 10.0, 30.0)
"""Candidate weights of the global matrix, in rows per target."""
COVARIANCE_GAIN = 0.01
"""Local matrices are used if they beat the global one by this much, in log likelihood per row."""
CLIPPED = 0.99
"""Errors whose norm is beyond this quantile are clipped to it, so that no few rows decide."""


def covariance_misfit(shapes: Float[NDArray, "n t t"], errors: Float[NDArray, "n t"]) -> float:
    """The negative Gaussian log likelihood of the errors, at the best constant factor."""
    squares = np.square(mahalanobis_norm(errors, shapes)).mean()
    return float((np.linalg.slogdet(shapes)[1].mean() + errors.shape[1] * np.log(squares)) / 2.0)


def global_moments(errors: Float[NDArray, "n t"]) -> Float[NDArray, "t t"]:
    """The mean of e e', with correlations shrunk as if by one further row per target."""
    n_rows, n_targets = errors.shape
    products = errors.T @ errors
    return (products + n_targets * np.diag(np.diag(products)) / n_rows) / (n_rows + n_targets)


def kept_off_zero(moments: Float[NDArray, "*n t t"]) -> Float[NDArray, "*n t t"]:
    """Plus a small variance in every direction, so that no region is flat."""
    return moments + LEAST_SHARE**2 * np.eye(moments.shape[-1])


class LocalCovariance:
    """``S(x) = (sum_j K_h(x, x_j) e_j e_j' + a S0) / (sum_j K_h(x, x_j) + a)``, S0 the same over all rows.

    The e are errors divided by the expected error; every matrix is kept positive definite. The bandwidth h and
    the strength a maximise the leave-one-out Gaussian likelihood; if that is no better than with S0 at every row,
    S0 is used.
    """

    points_: Float[NDArray, "r k"]
    errors_: Float[NDArray, "r t"]
    moments_: Float[NDArray, "t t"]
    reach_: tuple[float, float] | None
    """Bandwidth and strength; None for the same matrix at every row."""

    def fit(
        self, points: Float[NDArray, "n k"] | None, errors: Float[NDArray, "n t"], seed: int
    ) -> LocalCovariance:
        """Learn from the rows' coordinates and errors; without coordinates, one matrix for all rows."""
        norms = np.linalg.norm(errors, axis=1)
        limit = float(np.quantile(norms, CLIPPED))
        clipped = errors * np.minimum(1.0, limit / np.where(norms > 0.0, norms, 1.0))[:, None]
        self.moments_ = global_moments(clipped)
        rows = np.random.default_rng(seed).permutation(len(errors))[:MOST_ROWS]
        self.errors_, self.reach_ = clipped[rows], None
        self.points_ = np.empty((len(rows), 0)) if points is None else points[rows]
        if points is not None and norms.any():
            self.reach_ = self._choose()
        return self

    def predict(self, points: Float[NDArray, "n k"] | None, n_rows: int) -> Float[NDArray, "n t t"]:
        """The matrix of each row."""
        if self.reach_ is None or points is None:
            return np.repeat(kept_off_zero(self.moments_)[None], n_rows, axis=0)
        bandwidth, strength = self.reach_
        return self._shrunk(self._sums(points, bandwidth), strength)

    def _choose(self) -> tuple[float, float] | None:
        everywhere = self.predict(None, len(self.errors_))
        found: list[tuple[float, Any]] = [
            (covariance_misfit(everywhere, self.errors_) - COVARIANCE_GAIN, None)
        ]
        for bandwidth in BANDWIDTHS:
            others = self._sums(self.points_, bandwidth) - self._columns()
            for share in GLOBAL_STRENGTHS:
                strength = share * self.errors_.shape[1]
                shapes = self._shrunk(others, strength)
                found.append((covariance_misfit(shapes, self.errors_), (bandwidth, strength)))
        best: tuple[float, float] | None = min(found, key=lambda one: one[0])[1]
        return best

    def _columns(self) -> Float[NDArray, "r c"]:
        """The products of each row's errors, one per pair of targets, and a column of ones."""
        first, second = np.triu_indices(self.errors_.shape[1])
        products = self.errors_[:, first] * self.errors_[:, second]
        return np.concatenate([products, np.ones((len(products), 1))], axis=1)

    def _sums(self, points: Float[NDArray, "n k"], bandwidth: float) -> Float[NDArray, "n c"]:
        queries, training = torch.as_tensor(points), torch.as_tensor(self.points_)
        widths = queries.new_full((len(queries),), bandwidth)
        return WeightedRows(training, torch.as_tensor(self._columns())).sums(queries, widths).numpy()

    def _shrunk(self, sums: Float[NDArray, "n c"], strength: float) -> Float[NDArray, "n t t"]:
        n_targets = self.errors_.shape[1]
        first, second = np.triu_indices(n_targets)
        matrices = np.empty((len(sums), n_targets, n_targets))
        matrices[:, first, second] = sums[:, :-1]
        matrices[:, second, first] = sums[:, :-1]
        total = sums[:, -1, None, None].clip(min=0.0) + strength
        return kept_off_zero((matrices + strength * self.moments_) / total)


@dataclass(frozen=True, eq=False)
class BoundJoint(BoundScore):
    """The largest of ``|y_t - y_pred_t| / unit_t``, or, with `shapes`, the Mahalanobis norm of the error.

    In both, a radius r reaches ``r * unit_t`` from the prediction of target t.
    """

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
        ]  # level by level, so that these equal a region's own projections bit for bit
        return np.stack(columns, axis=2)

    def region(self, radius: Float[NDArray, "n"], bounds: Bounds = NO_BOUNDS) -> Region:
        """All y that score at most the radius."""
        scale = np.maximum(radius, 0.0)
        if self.shapes is not None:
            return Ellipsoids(self.y_pred, self.shapes, scale, bounds)
        with np.errstate(over="ignore"):
            return Boxes(self.y_pred, scale[:, None] * self.unit, bounds)


class JointResidual(ConformityScore):
    """One score for the errors of all targets, each divided by its expected error at the row.

    The units are those of :class:`ScaledResidual`, one for each target. A box is ``max_t |e_t| / s_t(x)``: one
    radius for all targets, each in its own units. An ellipsoid is ``sqrt(z' S(x)^-1 z)`` with
    ``z_t = e_t / s_t(x)`` and S the second moments of z near x, estimated from out-of-fold errors unless the
    model predicts its own: it is smaller where errors are correlated. Units are the same on both sides. As a
    `conformity_score` it is called ``"box"`` or ``"ellipsoid"``.

    Parameters
    ----------
    shape : ``"box"`` or ``"ellipsoid"``.
    scales : the scales to choose from, as in :class:`ScaledResidual`; with none, each target's unit is its mean
        error at every row.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(400, 2))
    >>> score = lvd.scores.JointResidual("box", scales=("boosted",))
    >>> reg = lvd.SplitConformalRegressor(conformity_score=score, random_state=0).fit(X, X)
    >>> reg.predict_region(X[:5]).contains(X[:5]).shape
    (5,)
    """

    joint: ClassVar[bool] = True
    learns_errors = True
    residual_: ScaledResidual
    covariance_: LocalCovariance | None

    def __init__(
        self, shape: str = "box", scales: tuple[str, ...] = ("own", "kernel", "boosted", "network")
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
        """The norm of the errors, each divided by its target's mean error: one kernel serves all targets."""
        means = np.nansum(np.abs(errors), axis=0) / np.maximum(1, (~np.isnan(errors)).sum(axis=0))
        return np.linalg.norm(errors / np.where(means > 0.0, means, 1.0), axis=1, keepdims=True)

    def fit(self, training: TrainingRows) -> None:
        """Learn each target's units and, for ellipsoids, how the targets' errors are correlated."""
        self.residual_ = ScaledResidual(self.scales)
        self.residual_.fit(training)
        self.covariance_ = None
        own = self.residual_.own_spread(training.rows) is not None
        y_pred = training.rows.y_pred if own else training.held_out_predictions
        seen = replace(training.rows, evaluation=training.rows.evaluation._replace(y_pred=y_pred))
        errors = training.y - y_pred
        if self.shape == "ellipsoid":
            some = present_rows(errors.sum(axis=1))
            scaled = errors[some] / self.residual_.bind(seen).unit[some]
            points = _points(seen)
            self.covariance_ = LocalCovariance().fit(
                None if points is None else points[some], scaled, training.seed
            )
        self.mean_ = float(np.nanmean(self.bind(seen)(training.y)))

    def bind(self, rows: EvaluatedRows) -> BoundJoint:
        """The score of these rows."""
        unit = self.residual_.bind(rows).unit
        if self.covariance_ is None:
            return BoundJoint(rows.y_pred, unit)
        shapes = self.covariance_.predict(_points(rows), len(unit)) * unit[:, :, None] * unit[:, None]
        return BoundJoint(rows.y_pred, reaches(shapes), shapes)


def _points(rows: EvaluatedRows) -> Float[NDArray, "n k"] | None:
    return rows.coordinates(0) if rows.kernels else None
