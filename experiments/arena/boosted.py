"""Boosted conformal prediction (Xie, Barber and Candès 2024), from the paper: a score boosted for short intervals.

The score is |y - mu(x)| / sigma(x), the paper's "Local". It begins with the shared model and a model of its
held-out errors. Trees of one cut then change sigma and mu in turn, down the gradient of the length that intervals
have once they are calibrated on the training rows. Cross-validation there says when to stop.

The mean length is smallest where noisy rows are covered less often than others, so coverage is not even. The paper
also boosts for even coverage, which is not done here.

Two departures: sigma is boosted as a logarithm, so that it stays positive, and mu in units of the first sigma.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import csr_array
from scipy.stats import beta

from experiments.arena.crossed import boosted_errors
from experiments.arena.rivals import ToIntervals
from experiments.arena.split import ArenaSplit
from lvd._typing import Float, Int, NDArray
from lvd.engine import conformal_quantile
from lvd.intervals import from_radius
from lvd.models.candidates import Folds, held_out_folds

ROUNDS, PATIENCE, RATE = 500, 60, 0.02
"""The most rounds, how many without shorter intervals are the last, and the share of a step that is taken."""
CUTS = 31
"""So many cuts of an input are looked at, at its quantiles."""
LEAST_ROWS, LEAST_SHARE = 10, 0.02
"""Either side of a cut has at least so many rows, and at least this share of all."""


class Cut(NamedTuple):
    """A tree of one cut: what it adds where the feature is at most `at`, and elsewhere."""

    feature: int
    at: float
    values: tuple[float, float]

    def added(self, X: Float[NDArray, "n p"]) -> Float[NDArray, "n"]:
        """What it adds to each row."""
        return np.where(X[:, self.feature] <= self.at, *self.values)


Round: TypeAlias = tuple[Cut, Cut]
"""A cut for the logarithm of sigma, and one for mu."""


@dataclass(frozen=True, eq=False)
class LocalScore:
    """The centre and the scale of the score of each row, and the scale that it began with."""

    mu: Float[NDArray, "n"]
    sigma: Float[NDArray, "n"]
    unit: Float[NDArray, "n"]

    def of(self, y: Float[NDArray, "n"]) -> Float[NDArray, "n"]:
        """The scores."""
        return np.abs(y - self.mu) / self.sigma

    def at(self, rows: Int[NDArray, "k"]) -> LocalScore:
        """That of some of the rows."""
        return LocalScore(self.mu[rows], self.sigma[rows], self.unit[rows])

    def scaled(self, more: Float[NDArray, "n"]) -> LocalScore:
        """With so much more in the logarithms of the scales."""
        return LocalScore(self.mu, self.sigma * np.exp(more), self.unit)

    def shifted(self, more: Float[NDArray, "n"]) -> LocalScore:
        """With centres so many units higher."""
        return LocalScore(self.mu + more * self.unit, self.sigma, self.unit)

    def after(self, cuts: Round, X: Float[NDArray, "n p"]) -> LocalScore:
        """That after a round."""
        of_sigma, of_mu = cuts
        return self.scaled(of_sigma.added(X)).shifted(of_mu.added(X))


def boosted_local(split: ArenaSplit, level: float, scale: Callable[[NDArray], NDArray]) -> ToIntervals:
    """Split conformal prediction on the boosted score; `scale` is a model of the shared model's held-out errors."""
    X, y, predict = split.X_train, split.y_train, split.predict
    start = split.stages.once("boosted start", lambda: held_out_start(split))
    folds = held_out_folds(len(y), split.seed + 1)  # others than those that the start is held out by
    rounds = list(islice(boosting(X, y, start, level), best_rounds(X, y, start, level, folds)))

    def boosted(X: Float[NDArray, "n p"]) -> LocalScore:
        score = LocalScore(predict(X), scale(X), scale(X))
        for cuts in rounds:
            score = score.after(cuts, X)
        return score

    (quantile,) = conformal_quantile(boosted(split.X_calib).of(split.y_calib), np.array([level]))

    def intervals(X: Float[NDArray, "n p"]) -> Float[NDArray, "n 2"]:
        score = boosted(X)
        return from_radius(score.mu, quantile * score.sigma)

    return intervals


def held_out_start(split: ArenaSplit) -> LocalScore:
    """Predictions and expected errors of the training rows, by models that have not seen them."""
    rows, errors = np.column_stack([split.X_train, split.held_out]), split.held_out_errors
    expected = np.empty(len(errors))
    for inside, outside in held_out_folds(len(errors), split.seed):
        expected[outside] = boosted_errors(rows[inside], errors[inside]).predict(rows[outside])
    sigma = np.maximum(expected, 0.1 * float(np.median(errors)))
    return LocalScore(split.held_out, sigma, sigma)


def best_rounds(
    X: Float[NDArray, "n p"], y: Float[NDArray, "n"], start: LocalScore, level: float, folds: Folds
) -> int:
    """The number of rounds after which rows held out have the shortest intervals, in the mean over folds."""

    def lengths(inside: NDArray, outside: NDArray) -> Iterator[float]:
        score, weights = start.at(outside), quantile_weights(len(outside), level)
        yield log_length(y[outside], score, weights)
        for cuts in boosting(X[inside], y[inside], start.at(inside), level):
            score = score.after(cuts, X[outside])
            yield log_length(y[outside], score, weights)

    means: list[float] = []
    for of_folds in islice(zip(*(lengths(*fold) for fold in folds), strict=True), ROUNDS + 1):
        means.append(float(np.mean(of_folds)))
        if len(means) > np.argmin(means) + PATIENCE:
            break
    return int(np.argmin(means))


def boosting(
    X: Float[NDArray, "n p"], y: Float[NDArray, "n"], score: LocalScore, level: float
) -> Iterator[Round]:
    """Round after round, without end."""
    binned, weights = BinnedRows.of(X), quantile_weights(len(y), level)
    while True:
        of_sigma = binned.best_cut(length_gradients(y, score, weights)[0])
        score = score.scaled(of_sigma.added(X))
        of_mu = binned.best_cut(length_gradients(y, score, weights)[1])
        score = score.shifted(of_mu.added(X))
        yield of_sigma, of_mu


def quantile_weights(n: int, level: float) -> Float[NDArray, "n"]:
    """What each of n sorted scores counts in their quantile by Harrell and Davis, which is smooth in them."""
    return np.diff(beta.cdf(np.linspace(0.0, 1.0, n + 1), (n + 1) * level, (n + 1) * (1.0 - level)))


def log_length(y: Float[NDArray, "n"], score: LocalScore, weights: Float[NDArray, "n"]) -> float:
    """The logarithm of the mean length, 2 mean(sigma) q, where q is the smooth quantile of these rows' scores."""
    return float(np.log(2.0 * score.sigma.mean() * (np.sort(score.of(y)) @ weights)))


def length_gradients(
    y: Float[NDArray, "n"], score: LocalScore, weights: Float[NDArray, "n"]
) -> tuple[Float[NDArray, "n"], Float[NDArray, "n"]]:
    """n times the gradient of :func:`log_length`, in log sigma and in mu in units."""
    scores = score.of(y)
    shares = np.empty(len(y))
    shares[np.argsort(scores, kind="stable")] = weights * len(y)
    shares /= np.sort(scores) @ weights
    of_sigma = score.sigma / score.sigma.mean() - shares * scores
    return of_sigma, shares * np.sign(score.mu - y) * score.unit / score.sigma


@dataclass(frozen=True, eq=False)
class BinnedRows:
    """Rows by the bins that they are in, one for each feature; a bin ends with its cut."""

    cuts: Float[NDArray, "p c"]
    bins: csr_array
    counts: Float[NDArray, "p c"]

    @classmethod
    def of(cls, X: Float[NDArray, "n p"]) -> BinnedRows:
        """Bins with about equally many rows."""
        cuts = np.quantile(X, np.arange(1, CUTS + 1) / (CUTS + 1), axis=0).T
        codes = np.column_stack([np.searchsorted(*pair) for pair in zip(cuts, X.T, strict=True)])
        places = codes + (CUTS + 1) * np.arange(X.shape[1])
        begins = np.arange(0, places.size + 1, X.shape[1])
        bins = csr_array(
            (np.ones(places.size), places.ravel(), begins), shape=(len(X), (CUTS + 1) * X.shape[1])
        ).T.tocsr()
        return cls(cuts, bins, _up_to_cuts(bins.sum(axis=1)))

    def best_cut(self, gradient: Float[NDArray, "n"]) -> Cut:
        """The cut whose step down the gradient is best in squared error; where none is allowed, one of 0."""
        n, total = self.bins.shape[1], gradient.sum()
        below = _up_to_cuts(self.bins @ gradient)
        others = n - self.counts
        fewest = np.minimum(self.counts, others)
        allowed = fewest >= max(LEAST_ROWS, LEAST_SHARE * n)
        if not allowed.any():
            return Cut(0, 0.0, (0.0, 0.0))
        means = below / np.maximum(self.counts, 1), (total - below) / np.maximum(others, 1)
        gains = means[0] * below + means[1] * (total - below)
        feature, place = np.unravel_index(np.where(allowed, gains, -np.inf).argmax(), gains.shape)
        low, high = (-RATE * float(mean[feature, place]) for mean in means)
        return Cut(int(feature), float(self.cuts[feature, place]), (low, high))


def _up_to_cuts(in_bins: Float[NDArray, "_"]) -> Float[NDArray, "p c"]:
    """Sums over all bins up to each cut."""
    return in_bins.reshape(-1, CUTS + 1).cumsum(axis=1)[:, :-1]
