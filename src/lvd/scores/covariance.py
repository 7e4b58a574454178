"""How the errors of several targets are correlated near each row."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from lvd._typing import Float, NDArray
from lvd.kernels.sums import weighted_sums
from lvd.regions import mahalanobis_norm
from lvd.scores.scales import BANDWIDTHS, LEAST_SHARE

MOST_ROWS = 2000
STRENGTHS = (1.0, 3.0, 10.0, 30.0)
"""Weights of the global matrix, in rows for each target."""
GAIN = 0.01
"""Local matrices are used if they beat the global one by so much, in log likelihood a row."""
CLIPPED = 0.99
"""Errors beyond this quantile of their norm are brought back to it, so that a few rows do not decide."""


def covariance_misfit(shapes: Float[NDArray, "n t t"], errors: Float[NDArray, "n t"]) -> float:
    """How badly covariance matrices fit the errors: the Gaussian likelihood's, at the best constant factor."""
    squares = np.square(mahalanobis_norm(errors, shapes)).mean()
    return float((np.linalg.slogdet(shapes)[1].mean() + errors.shape[1] * np.log(squares)) / 2.0)


def global_moments(errors: Float[NDArray, "n t"]) -> Float[NDArray, "t t"]:
    """The mean of e e', its correlations shrunk by as many rows as there are targets."""
    n_rows, n_targets = errors.shape
    products = errors.T @ errors
    return (products + n_targets * np.diag(np.diag(products)) / n_rows) / (n_rows + n_targets)


def kept_off_zero(moments: Float[NDArray, "*n t t"]) -> Float[NDArray, "*n t t"]:
    """With a small error in every direction, so that no region is flat."""
    return moments + LEAST_SHARE**2 * np.eye(moments.shape[-1])


class LocalCovariance:
    """``S(x) = (sum_j K_h(x, x_j) e_j e_j' + a S0) / (sum_j K_h(x, x_j) + a)``, S0 the same over all rows.

    The e are errors in units of the error to expect; every matrix is kept off zero. The bandwidth h and the
    strength a are those of the best leave-one-out Gaussian likelihood; where that is no better than with S0 at
    every row, it is S0.
    """

    points_: Float[NDArray, "r k"]
    errors_: Float[NDArray, "r t"]
    moments_: Float[NDArray, "t t"]
    reach_: tuple[float, float] | None
    """Bandwidth and strength; None for one matrix at every row."""

    def fit(
        self, points: Float[NDArray, "n k"] | None, errors: Float[NDArray, "n t"], seed: int
    ) -> LocalCovariance:
        """Learn from the rows' coordinates and errors; without coordinates it is one matrix for all rows."""
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
        found: list[tuple[float, Any]] = [(covariance_misfit(everywhere, self.errors_) - GAIN, None)]
        for bandwidth in BANDWIDTHS:
            others = self._sums(self.points_, bandwidth) - self._columns()
            for share in STRENGTHS:
                strength = share * self.errors_.shape[1]
                shapes = self._shrunk(others, strength)
                found.append((covariance_misfit(shapes, self.errors_), (bandwidth, strength)))
        best: tuple[float, float] | None = min(found, key=lambda one: one[0])[1]
        return best

    def _columns(self) -> Float[NDArray, "r c"]:
        """The products of each row's errors, each pair of targets once, and a column of ones."""
        first, second = np.triu_indices(self.errors_.shape[1])
        products = self.errors_[:, first] * self.errors_[:, second]
        return np.concatenate([products, np.ones((len(products), 1))], axis=1)

    def _sums(self, points: Float[NDArray, "n k"], bandwidth: float) -> Float[NDArray, "n c"]:
        queries, training = torch.as_tensor(points), torch.as_tensor(self.points_)
        widths = queries.new_full((len(queries),), bandwidth)
        return weighted_sums(queries, training, torch.as_tensor(self._columns()), widths).numpy()

    def _shrunk(self, sums: Float[NDArray, "n c"], strength: float) -> Float[NDArray, "n t t"]:
        n_targets = self.errors_.shape[1]
        first, second = np.triu_indices(n_targets)
        matrices = np.empty((len(sums), n_targets, n_targets))
        matrices[:, first, second] = sums[:, :-1]
        matrices[:, second, first] = sums[:, :-1]
        total = sums[:, -1, None, None].clip(min=0.0) + strength
        return kept_off_zero((matrices + strength * self.moments_) / total)
