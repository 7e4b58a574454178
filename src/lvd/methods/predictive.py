"""A whole predictive distribution for every row: quantiles, distribution function, PIT values."""

from __future__ import annotations

from typing import Any

import numpy as np

from lvd._typing import ArrayLike, Float, Int, Labels, Levels, NDArray, RandomState
from lvd._validation import InputError, like, seed_from
from lvd.conformal import LocalConformal
from lvd.conformal.distribution import LocalDistribution
from lvd.conformal.guarantees import draw_shares
from lvd.methods.conformal import ConformalBase
from lvd.scores import BoundScore, EvaluatedRows


class PredictiveDistribution(ConformalBase):
    """What a method with local weights can say of y beside an interval.

    For each row it is the distribution of the calibration rows' signed errors, weighted by similarity, around the
    prediction. The row's own mass, which represents what is not known, is half at -inf and half at +inf, so that
    far quantiles of a row about which little is known are infinite. Intervals with a guarantee are those of
    `predict_interval`, where all of that mass is beyond the end in question.
    """

    def predict_quantiles(
        self, X: ArrayLike, q: Levels, *, groups: Labels = None, weights: Labels = None
    ) -> Any:
        """Quantiles of y, (n,) for one `q` in (0, 1), (n, Q) for a list; for several targets (n, T), (n, Q, T).

        Examples
        --------
        >>> import numpy as np, lvd
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, size=(400, 2))
        >>> y = X[:, 0] + rng.exponential(size=400)
        >>> reg = lvd.LVDRegressor(random_state=0).fit(X, y)
        >>> low, middle, high = np.median(reg.predict_quantiles(X, [0.1, 0.5, 0.9]), axis=0)
        >>> bool(high - middle > middle - low)
        True
        """
        _, bound, found = self._locate(X, groups=groups, weights=weights)
        result = _targets_at(bound, [local.quantile(q) for local in found])
        return like(self._as_given(result if np.ndim(q) else result[:, 0]), X)

    def cdf(self, X: ArrayLike, y: ArrayLike, *, groups: Labels = None, weights: Labels = None) -> Any:
        """The probability that each row's target is at most `y`, (n,); for several targets (n, T)."""
        _, bound, found = self._locate(X, groups=groups, weights=weights)
        scores = self._signed_scores(bound, X, y)
        columns = [local.cdf(column) for local, column in zip(found, scores.T, strict=True)]
        return like(self._as_given(np.stack(columns, axis=-1)), X)

    def pit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        groups: Labels = None,
        weights: Labels = None,
        random_state: RandomState = 0,
    ) -> Any:
        """Probability integral transforms: uniform on (0, 1) where the distributions are right.

        As :meth:`cdf`, but with the row's own mass split at a share drawn for the row instead of half and half: the
        values of rows about which little is known would otherwise all be near 1/2. Too many values near 0 and 1 say
        that the distributions are too narrow; `lvd.reproduction.figures.pit_figure` draws their histogram.
        """
        rows, bound, found = self._locate(X, groups=groups, weights=weights)
        scores, seed = self._signed_scores(bound, X, y), seed_from(random_state)
        shares = (draw_shares(local.rows.points, seed, rows.keys).cpu().numpy() for local in found)
        columns = [local.cdf(*pair) for local, *pair in zip(found, scores.T, shares, strict=True)]
        return like(self._as_given(np.stack(columns, axis=-1)), X)

    def predict_distribution(
        self, X: ArrayLike, *, groups: Labels = None, weights: Labels = None
    ) -> tuple[Any, Any]:
        """The distributions themselves: where their mass is and how much, both (n, m + 2), or (n, m + 2, T).

        The first place is -inf and the last +inf. The arrays are dense: one column for each calibration row. Those
        of targets that fewer rows have end in more places at +inf, without mass.

        Examples
        --------
        >>> import numpy as np, lvd
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, size=(400, 2))
        >>> y = X[:, 0] + 0.1 * rng.normal(size=400)
        >>> reg = lvd.LVDRegressor(random_state=0).fit(X[:300], y[:300])
        >>> scores = lvd.metrics.crps(y[300:], *reg.predict_distribution(X[300:]), given_finite=True)
        >>> bool(scores.mean() < 0.1)
        True
        """
        _, bound, found = self._locate(X, groups=groups, weights=weights)
        places = _targets_at(bound, _of_one_width([local.places() for local in found], np.inf))
        masses = np.stack(_of_one_width([local.masses() for local in found], 0.0), axis=-1)
        return like(self._as_given(places), X), like(self._as_given(masses), X)

    def _locate(
        self, X: ArrayLike, **labels: Labels
    ) -> tuple[EvaluatedRows, BoundScore, list[LocalDistribution]]:
        """The rows, and for each target the distribution of its signed errors, in the score's units."""
        self._check_calibrated()
        self._check_errors()
        rows, bound = self._bind(self._check_inputs(X))
        scores = (self.residuals_calib_ / self.units_calib_).T
        signed = [
            columns[0].rescored(column[numbers])
            for (columns, numbers), column in zip(self._by_target(), scores, strict=True)
        ]
        return rows, bound, [conformal.distribution(rows.embeddings, **labels) for conformal in signed]

    def _signed_scores(self, bound: BoundScore, X: ArrayLike, y: ArrayLike) -> Float[NDArray, "n t"]:
        return (self._check_rows(X, y, self.n_targets_)[1] - bound.y_pred) / bound.unit

    def _by_target(self) -> list[tuple[list[LocalConformal], Int[NDArray, "k"]]]:
        """For each target what was calibrated, which all may share, and the numbers of the rows it was by."""
        numbers = map(np.flatnonzero, self._complete(self.y_calib_).T)
        found = list(zip(self.conformals_, numbers, strict=True))
        return found * self.n_targets_ if self.score_.joint else found

    def _check_errors(self) -> None:
        """The calibration rows' signed errors are known."""
        if not hasattr(self, "residuals_calib_"):
            raise InputError(
                "this model was saved by an older lvd, which kept no signed errors: conformalize it again"
            )


def _of_one_width(parts: list[Float[NDArray, "n _"]], beyond: float) -> list[Float[NDArray, "n j"]]:
    """The arrays, filled up at their end to the width of the widest."""
    width = max(part.shape[1] for part in parts)
    return [np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=beyond) for part in parts]


def _targets_at(bound: BoundScore, scores: list[Float[NDArray, "n j"]]) -> Float[NDArray, "n j t"]:
    """The y that have these signed scores; past the largest number they are infinite."""
    with np.errstate(over="ignore"):
        return bound.y_pred[:, None] + np.stack(scores, axis=-1) * bound.unit[:, None]
