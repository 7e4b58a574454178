"""A whole predictive distribution for every row: quantiles, distribution function, PIT values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from lvd._typing import ArrayLike, Float, Labels, Levels, NDArray, RandomState
from lvd._validation import like, seed_from
from lvd.conformal.distribution import LocalDistribution
from lvd.conformal.guarantees import draw_shares


@dataclass(frozen=True, eq=False)
class Spread:
    """The centres of the distributions of some rows, and their units: y is ``y_pred + unit * score``."""

    y_pred: Float[NDArray, "n t"]
    unit: Float[NDArray, "n t"]
    keys: NDArray

    def score(self, target: int, y: Float[NDArray, "n"]) -> Float[NDArray, "n"]:
        """The signed score of one target."""
        return (y - self.y_pred[:, target]) / self.unit[:, target]

    def targets(self, target: int, scores: Float[NDArray, "n j"]) -> Float[NDArray, "n j"]:
        """The y of which these are the scores; past the largest number it is infinite."""
        with np.errstate(over="ignore"):
            return self.y_pred[:, target, None] + scores * self.unit[:, target, None]


class PredictiveDistribution(ABC):
    """What a method can say of y beside an interval, when it knows the distribution of its signed errors.

    For each row it is the distribution of the calibration rows' signed errors, weighted by similarity, around the
    prediction. The row's own mass, which represents what is not known, is half at -inf and half at +inf, so that
    far quantiles of a row that little is known of are infinite. Intervals with a guarantee are those of
    `predict_interval`, where all of that mass is beyond the end in question.
    """

    @abstractmethod
    def _locate(self, X: ArrayLike, **labels: ArrayLike | None) -> tuple[Spread, list[LocalDistribution]]:
        """The rows, with their groups and weights, and for each target the distribution of its signed errors."""

    @abstractmethod
    def _target_columns(self, X: ArrayLike, y: ArrayLike) -> Float[NDArray, "n t"]:
        """The targets of these rows, one column for each."""

    @abstractmethod
    def _as_given(self, array: Float[NDArray, "n *rest t"]) -> NDArray:
        """Without the last axis where y came as a vector."""

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
        seen, found = self._locate(X, groups=groups, weights=weights)
        columns = [seen.targets(t, local.quantile(q)) for t, local in enumerate(found)]
        result = np.stack(columns, axis=-1)
        return like(self._as_given(result if np.ndim(q) else result[:, 0]), X)

    def cdf(self, X: ArrayLike, y: ArrayLike, *, groups: Labels = None, weights: Labels = None) -> Any:
        """The probability that each row's target is at most `y`, (n,); for several targets (n, T)."""
        targets = self._target_columns(X, y)
        seen, found = self._locate(X, groups=groups, weights=weights)
        return like(self._as_given(_reached(seen, found, targets)), X)

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
        values of rows that little is known of would otherwise all be near 1/2. Too many values near 0 and 1 say
        that the distributions are too narrow; `lvd.reproduction.figures.pit_figure` draws their histogram.
        """
        targets = self._target_columns(X, y)
        seen, found = self._locate(X, groups=groups, weights=weights)
        return like(self._as_given(_reached(seen, found, targets, seed_from(random_state))), X)

    def predict_distribution(
        self, X: ArrayLike, *, groups: Labels = None, weights: Labels = None
    ) -> tuple[Any, Any]:
        """The distributions themselves: where their mass is and how much, both (n, m + 2), or (n, m + 2, T).

        The first place is -inf and the last +inf. The arrays are dense: one column for each calibration row.

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
        seen, found = self._locate(X, groups=groups, weights=weights)
        places = [seen.targets(t, local.places()) for t, local in enumerate(found)]
        masses = [local.masses() for local in found]
        at, mass = (like(self._as_given(np.stack(columns, axis=-1)), X) for columns in (places, masses))
        return at, mass


def _reached(
    seen: Spread, found: list[LocalDistribution], y: Float[NDArray, "n t"], seed: int | None = None
) -> Float[NDArray, "n t"]:
    """The distribution functions at `y`; with a `seed` the rows' own mass is split at random."""
    below: float | NDArray = 0.5
    columns = []
    for t, local in enumerate(found):
        if seed is not None:
            below = draw_shares(local.rows.points, seed, seen.keys).cpu().numpy()
        columns.append(local.cdf(seen.score(t, y[:, t]), below))
    return np.stack(columns, axis=-1)
