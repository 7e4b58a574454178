"""The predictive distribution of each row, and decisions based on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lvd._parallel import chunk_slices
from lvd._typing import ArrayLike, Bool, Float, Levels, NDArray, RandomState
from lvd._validation import (
    InputError,
    check_fraction,
    check_levels,
    check_positive,
    check_targets,
    check_vector,
    like,
    seed_from,
    to_numpy,
)
from lvd.calibration.calibration_rows import LocalDistribution, draw_shares
from lvd.metrics.distribution import crps
from lvd.scores import BoundScore, EvaluatedRows

MOST_ROWS, MOST_ATOMS = 20_000, 2**20
"""How many rows, with their model outputs, and how many probability masses to hold in memory at a time."""


class Exceedance(NamedTuple):
    """The result of :meth:`LVDRegressor.exceeds`: whether y exceeds a threshold."""

    probability: Any
    p_value: Any


class Decision(NamedTuple):
    """The result of :meth:`LVDRegressor.decide`: the action of least expected cost for each row."""

    action: Any
    index: Any
    expected_cost: Any


@dataclass(frozen=True, eq=False)
class PredictiveDistribution:
    """The predictive distributions of n rows, as :meth:`LVDRegressor.predict_distribution` returns them.

    Each combines the signed scores of similar calibration rows around the prediction. The row's own mass, which
    stands for what is unknown there, is half at -inf and half at +inf: outer quantiles of a row with few
    similar calibration rows are infinite. This is an estimate from calibrated scores; the guarantees apply to
    :meth:`LVDRegressor.predict_interval`. An unknown row has all its mass at the two ends, unless unknown rows
    are widened.

    With several targets every answer has a last dimension for them. Beyond 20,000 rows the model is evaluated
    in parts, again for each query, so that memory holds one part and the answer.

    Examples
    --------
    >>> import numpy as np, lvd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(400, 2))
    >>> y = X[:, 0] + rng.exponential(size=400)
    >>> reg = lvd.LVDRegressor("trees", random_state=0).fit(X, y)
    >>> found = reg.predict_distribution(X[:5])
    >>> found.quantile([0.1, 0.5, 0.9]).shape, found.sample(100, random_state=0).shape
    ((5, 3), (5, 100))
    >>> bool((found.cdf(found.quantile(0.5) + 1e-6) >= 0.5).all())
    True
    """

    parts: Sequence[slice]
    part_at: Callable[[int], PartDistribution]
    single_target: bool
    given: Any

    def __len__(self) -> int:
        return int(self.parts[-1].stop)

    def quantile(self, q: Levels) -> Any:
        """Quantiles, (n,) for one `q` in (0, 1), (n, Q) for a list."""
        levels = check_levels(q, "q")
        result = self._joined(lambda part, _: part.quantile(levels))
        return self._answer(result if np.ndim(q) else result[:, 0])

    def cdf(self, y: ArrayLike) -> Any:
        """The probability that each row's target is at most `y`, (n,)."""
        targets = self._targets(y)
        return self._answer(self._joined(lambda part, some: part.cdf(targets[some])))

    def pit(self, y: ArrayLike, random_state: RandomState = 0) -> Any:
        """Probability integral transforms: uniform on (0, 1) if the distributions are right.

        Like :meth:`cdf`, but the row's own mass is split at a random share instead of in half: otherwise the
        values of rows about which little is known would all be near 1/2. Too many values near 0 and 1 mean that
        the distributions are too narrow. At an end of the target's range the mass beyond it is split at random
        too.
        """
        seed, targets = seed_from(random_state), self._targets(y)
        return self._answer(self._joined(lambda part, some: part.pit(targets[some], seed)))

    def mean(self) -> Any:
        """The mean of the finite part of each distribution, (n,); NaN if there is none."""
        return self._answer(self._joined(lambda part, _: part.mean()))

    def sample(self, n: int, random_state: RandomState = None) -> Any:
        """Draws from the finite part of each distribution, (n_rows, n); NaN if there is none."""
        check_positive(n, "n", integer=True)
        rng = np.random.default_rng(seed_from(random_state))
        return self._answer(self._joined(lambda part, _: part.sample(n, rng)))

    def crps(self, y: ArrayLike) -> Any:
        """The continuous ranked probability score of each row, given a finite y; NaN where nothing is known."""
        targets = self._targets(y)
        return self._answer(self._joined(lambda part, some: part.crps(targets[some])))

    def atoms(self) -> tuple[Any, Any]:
        """The positions and probability masses, both (n, m + 2): dense, one column per calibration row.

        The first position is -inf and the last +inf. Targets with fewer calibration rows are padded with
        positions at +inf of mass zero.
        """
        found = self._joined(lambda part, _: np.stack(part.atoms(), axis=1))
        return self._answer(found[:, 0]), self._answer(found[:, 1])

    def expected(self, cost: Callable[[Any, Any], Any], actions: NDArray) -> Float[NDArray, "n a"]:
        """The expected cost of each action under the finite part of each distribution; NaN if there is none."""
        return self._joined(lambda part, _: part.expected(cost, actions))

    def above(self, threshold: ArrayLike, *, equal_weights: bool) -> tuple[NDArray, NDArray]:
        """The probability that y is above the threshold, and the conformal p-value for y being at most it."""
        limits = np.broadcast_to(to_numpy(threshold).astype(np.float64), (len(self),))
        found = self._joined(lambda part, some: part.above(limits[some], equal_weights=equal_weights))
        return found[:, 0], found[:, 1]

    def _joined(self, answer: Callable[[PartDistribution, slice], NDArray]) -> NDArray:
        """Concatenate the answers of all parts."""
        return np.concatenate([answer(self.part_at(i), some) for i, some in enumerate(self.parts)])

    def _targets(self, y: ArrayLike) -> Float[NDArray, "n t"]:
        targets, wanted = check_targets(y), (len(self), self.part_at(0).n_targets)
        if targets.shape != wanted:
            raise InputError(f"y must have the shape {wanted} of the predictions, got {targets.shape}")
        return targets

    def _answer(self, array: Float[NDArray, "n *rest t"]) -> Any:
        return like(array[..., 0] if self.single_target else array, self.given)


def parts_of(n_rows: int) -> list[slice]:
    """Split the rows into parts that fit in memory together."""
    return chunk_slices(n_rows, MOST_ROWS)


@dataclass(frozen=True, eq=False)
class PartDistribution:
    """The distributions of rows that fit in memory together; answers have a last dimension for the targets."""

    rows: EvaluatedRows
    bound: BoundScore
    local: tuple[LocalDistribution, ...]
    known: Bool[NDArray, "n"]
    bounds: tuple[float, float]

    @property
    def n_targets(self) -> int:
        """The number of targets."""
        return self.bound.y_pred.shape[1]

    def quantile(self, levels: Float[NDArray, "q"]) -> Float[NDArray, "n q t"]:
        """As :meth:`PredictiveDistribution.quantile`."""
        signed = np.stack([one.quantile(levels) for one in self.local], axis=-1)
        result = self.bound.targets_at(signed)
        result[~self.known] = np.where(levels < 0.5, -np.inf, np.inf)[:, None]
        return np.clip(result, *self.bounds)

    def cdf(self, targets: Float[NDArray, "n t"]) -> Float[NDArray, "n t"]:
        """As :meth:`PredictiveDistribution.cdf`."""
        low, high = self.bounds
        return np.where(targets < low, 0.0, np.where(targets >= high, 1.0, self._below(targets, 0.5)))

    def pit(self, targets: Float[NDArray, "n t"], seed: int) -> Float[NDArray, "n t"]:
        """As :meth:`PredictiveDistribution.pit`."""
        low, high = self.bounds
        shares, others = (
            [draw_shares(one.rows.points, one_seed, self.rows.keys).cpu().numpy() for one in self.local]
            for one_seed in (seed, (seed + 1) % 2**32)
        )
        result, split = self._below(targets, *shares), np.stack(others, axis=1)
        result = np.where(targets <= low, result * split, result)
        return np.where(targets >= high, 1.0 - (1.0 - result) * split, result)

    def mean(self) -> Float[NDArray, "n t"]:
        """As :meth:`PredictiveDistribution.mean`."""
        return np.concatenate([_mean(places, masses) for _, places, masses in self._chunks()])

    def sample(self, n: int, rng: np.random.Generator) -> Float[NDArray, "n s t"]:
        """As :meth:`PredictiveDistribution.sample`."""
        parts = []
        for _, places, masses in self._chunks():
            finite = np.where(np.isfinite(places), masses, 0.0)
            reached = np.cumsum(finite, axis=1)
            drawn = np.full((len(places), n, places.shape[2]), np.nan)
            for row, target in zip(*np.nonzero(reached[:, -1] > 0.0), strict=True):
                wanted = rng.uniform(size=n) * reached[row, -1, target]
                atoms = np.searchsorted(reached[row, :, target], wanted, side="right")
                drawn[row, :, target] = places[row, np.minimum(atoms, len(reached[row]) - 1), target]
            parts.append(drawn)
        return np.concatenate(parts)

    def crps(self, targets: Float[NDArray, "n t"]) -> Float[NDArray, "n t"]:
        """As :meth:`PredictiveDistribution.crps`."""
        parts = []
        for some, places, masses in self._chunks():
            columns = zip(targets[some].T, np.moveaxis(places, 2, 0), np.moveaxis(masses, 2, 0), strict=True)
            parts.append(np.stack([crps(*column, given_finite=True) for column in columns], axis=1))
        return np.concatenate(parts)

    def atoms(self) -> tuple[Float[NDArray, "n j t"], Float[NDArray, "n j t"]]:
        """As :meth:`PredictiveDistribution.atoms`."""
        _, places, masses = zip(*self._chunks(), strict=True)
        return np.concatenate(places), np.concatenate(masses)

    def expected(self, cost: Callable[[Any, Any], Any], actions: NDArray) -> Float[NDArray, "n a"]:
        """As :meth:`PredictiveDistribution.expected`."""
        if len(self.local) > 1:
            raise InputError(
                f"decide takes a model of one target, and this one has {len(self.local)}; fit one model for each"
            )
        parts = []
        for _, places, masses in self._chunks():
            atoms, finite = places[..., 0], np.isfinite(places[..., 0])
            share, at = np.where(finite, masses[..., 0], 0.0), np.where(finite, atoms, 0.0)
            columns = []
            for action in actions:
                costs = to_numpy(cost(action, at))
                if costs.shape != at.shape or np.isnan(costs).any():
                    raise InputError(
                        f"cost(action, y) must give a number for each y, shape {at.shape}, got {costs.shape} with "
                        f"{int(np.isnan(costs).sum())} NaN"
                    )
                columns.append(_ratio((costs * share).sum(axis=1), share.sum(axis=1)))
            parts.append(np.stack(columns, axis=1))
        return np.concatenate(parts)

    def above(self, limits: Float[NDArray, "n"], *, equal_weights: bool) -> Float[NDArray, "n 2 t"]:
        """As :meth:`PredictiveDistribution.above`, stacked along one dimension."""
        targets = np.repeat(limits[:, None], len(self.local), axis=1)
        signed, probability = self.bound.signed(targets), 1.0 - self.cdf(targets)
        columns = []
        for one, column in zip(self.local, signed.T, strict=True):
            if equal_weights:
                scores = np.sort(one.calibration.scores[:, 0].cpu().numpy())
                columns.append((1.0 + np.searchsorted(scores, column, side="right")) / (1.0 + len(scores)))
            else:
                columns.append(one.cdf(column, below=1.0))
        p_value = np.stack(columns, axis=1)
        probability[~self.known], p_value[~self.known] = np.nan, 1.0
        return np.stack([probability, p_value], axis=1)

    def _below(self, targets: Float[NDArray, "n t"], *shares: Any) -> Float[NDArray, "n t"]:
        """The distribution function at y, with these shares of the row's own mass below it."""
        signed = self.bound.signed(targets)
        given = shares * len(self.local) if len(shares) == 1 else shares
        found = [
            one.cdf(column, share) for one, column, share in zip(self.local, signed.T, given, strict=True)
        ]
        result = np.stack(found, axis=1)
        if not self.known.all():
            own = np.stack([np.broadcast_to(share, len(self.known)) for share in given], axis=1)
            result[~self.known] = own[~self.known]
        return result

    def _chunks(self) -> Iterator[tuple[slice, Float[NDArray, "b j t"], Float[NDArray, "b j t"]]]:
        """Yield the positions and masses of a few rows at a time."""
        width = max(len(one.calibration.scores) for one in self.local) + 2
        for some in chunk_slices(len(self.known), max(1, MOST_ATOMS // width)):
            local = [LocalDistribution(one.calibration, one.rows[some]) for one in self.local]
            signed = np.stack([_of_width(one.places(), width, np.inf) for one in local], axis=-1)
            masses = np.stack([_of_width(one.masses(), width, 0.0) for one in local], axis=-1)
            unknown = ~self.known[some]
            masses[unknown] = 0.0
            masses[unknown, 0] = masses[unknown, -1] = 0.5
            places = self.bound[some].targets_at(signed)
            yield some, np.where(np.isinf(places), places, np.clip(places, *self.bounds)), masses


def _mean(places: Float[NDArray, "n j t"], masses: Float[NDArray, "n j t"]) -> Float[NDArray, "n t"]:
    finite = np.isfinite(places)
    share = np.where(finite, masses, 0.0)
    return _ratio((np.where(finite, places, 0.0) * share).sum(axis=1), share.sum(axis=1))


def _ratio(total: NDArray, mass: NDArray) -> NDArray:
    return np.where(mass > 0.0, total / np.where(mass > 0.0, mass, 1.0), np.nan)


def _of_width(part: Float[NDArray, "n _"], width: int, beyond: float) -> Float[NDArray, "n j"]:
    """Pad the array at its end to this width."""
    return np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=beyond)


def select(p_values: ArrayLike, false_discovery_rate: float = 0.1) -> Bool[NDArray, "n"]:
    """Which claims to make, by the Benjamini-Hochberg procedure.

    With marginal conformal p-values, from :meth:`LVDRegressor.exceeds` with ``guarantee="marginal"``, the
    expected share of wrong claims among those made is at most `false_discovery_rate` (Jin and Candès 2023).
    There is no such proof for local p-values.

    Examples
    --------
    >>> import lvd
    >>> lvd.select([0.001, 0.02, 0.2, 0.9], 0.1).tolist()
    [True, True, False, False]
    """
    given = check_vector(p_values, "p_values")
    check_fraction(false_discovery_rate, "false_discovery_rate")
    if not ((given >= 0.0) & (given <= 1.0)).all():
        raise InputError(f"p_values must lie in [0, 1], got {given.min():g} to {given.max():g}")
    ordered = np.sort(given)
    passed = np.flatnonzero(ordered <= false_discovery_rate * np.arange(1, len(given) + 1) / len(given))
    return given <= ordered[passed[-1]] if len(passed) else np.zeros(len(given), bool)
