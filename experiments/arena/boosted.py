"""Boosted conformal prediction (Xie, Barber and Candès 2024), from the paper: a score boosted for short intervals.

The score is |y - mu(x)| / sigma(x), the paper's "Local". It starts from the shared model and a model of its
out-of-fold errors. Decision stumps then change sigma and mu in turn, along the gradient of the interval length
after calibration on the training rows. Cross-validation on these rows decides when to stop.

The mean length is smallest where noisy rows are covered less often than others, so coverage is not even. The paper
also boosts for even coverage, which is not done here.

Two departures from the paper: sigma is boosted on the log scale, so that it stays positive, and mu in units of
the first sigma.
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
"""The most rounds, the number of rounds without shorter intervals before stopping, and the learning rate."""
CUTS = 31
"""How many cuts of each input are tried, at its quantiles."""
LEAST_ROWS, LEAST_SHARE = 10, 0.02
"""The fewest rows on either side of a cut, in number and as a share of all."""


class Cut(NamedTuple):
    """A decision stump: its value where the feature is at most `at`, and elsewhere."""

    feature: int
    at: float
    values: tuple[float, float]

    def added(self, X: Float[NDArray, "n p"]) -> Float[NDArray, "n"]:
        """Its value for each row."""
        return np.where(X[:, self.feature] <= self.at, *self.values)


Round: TypeAlias = tuple[Cut, Cut]
"""A cut for log sigma, and one for mu."""


@dataclass(frozen=True, eq=False)
class LocalScore:
    """The centre and scale of each row's score, and the initial scale."""

    mu: Float[NDArray, "n"]
    sigma: Float[NDArray, "n"]
    unit: Float[NDArray, "n"]

    def of(self, y: Float[NDArray, "n"]) -> Float[NDArray, "n"]:
        """The scores of these targets."""
        return np.abs(y - self.mu) / self.sigma

    def at(self, rows: Int[NDArray, "k"]) -> LocalScore:
        """The score of some of the rows."""
        return LocalScore(self.mu[rows], self.sigma[rows], self.unit[rows])

    def scaled(self, more: Float[NDArray, "n"]) -> LocalScore:
        """The score with `more` added to the log scales."""
        return LocalScore(self.mu, self.sigma * np.exp(more), self.unit)

    def shifted(self, more: Float[NDArray, "n"]) -> LocalScore:
        """The score with the centres shifted by `more` units."""
        return LocalScore(self.mu + more * self.unit, self.sigma, self.unit)

    def after(self, cuts: Round, X: Float[NDArray, "n p"]) -> LocalScore:
        """The score after one round."""
        of_sigma, of_mu = cuts
        return self.scaled(of_sigma.added(X)).shifted(of_mu.added(X))


def boosted_local(split: ArenaSplit, level: float, scale: Callable[[NDArray], NDArray]) -> ToIntervals:
    """Split conformal prediction on the boosted score; `scale` models the shared model's out-of-fold errors."""
    X, y, predict = split.X_train, split.y_train, split.predict
    start = split.stages.once("boosted start", lambda: held_out_start(split))
    folds = held_out_folds(len(y), split.seed + 1)  # different from the folds of the held-out start
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
    """Out-of-fold predictions and expected errors of the training rows."""
    rows, errors = np.column_stack([split.X_train, split.held_out]), split.held_out_errors
    expected = np.empty(len(errors))
    for inside, outside in held_out_folds(len(errors), split.seed):
        expected[outside] = boosted_errors(rows[inside], errors[inside]).predict(rows[outside])
    sigma = np.maximum(expected, 0.1 * float(np.median(errors)))
    return LocalScore(split.held_out, sigma, sigma)


def best_rounds(
    X: Float[NDArray, "n p"], y: Float[NDArray, "n"], start: LocalScore, level: float, folds: Folds
) -> int:
    """The number of rounds with the shortest held-out intervals, averaged over folds."""

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
    """Yield one boosting round after the other, without end."""
    binned, weights = BinnedRows.of(X), quantile_weights(len(y), level)
    while True:
        of_sigma = binned.best_cut(length_gradients(y, score, weights)[0])
        score = score.scaled(of_sigma.added(X))
        of_mu = binned.best_cut(length_gradients(y, score, weights)[1])
        score = score.shifted(of_mu.added(X))
        yield of_sigma, of_mu


def quantile_weights(n: int, level: float) -> Float[NDArray, "n"]:
    """The weights of n sorted scores in the Harrell-Davis quantile, which is smooth in the scores."""
    return np.diff(beta.cdf(np.linspace(0.0, 1.0, n + 1), (n + 1) * level, (n + 1) * (1.0 - level)))


def log_length(y: Float[NDArray, "n"], score: LocalScore, weights: Float[NDArray, "n"]) -> float:
    """The log mean length, 2 mean(sigma) q, where q is the smooth quantile of these rows' scores."""
    return float(np.log(2.0 * score.sigma.mean() * (np.sort(score.of(y)) @ weights)))


def length_gradients(
    y: Float[NDArray, "n"], score: LocalScore, weights: Float[NDArray, "n"]
) -> tuple[Float[NDArray, "n"], Float[NDArray, "n"]]:
    """n times the gradient of :func:`log_length` with respect to log sigma, and to mu in units."""
    scores = score.of(y)
    shares = np.empty(len(y))
    shares[np.argsort(scores, kind="stable")] = weights * len(y)
    shares /= np.sort(scores) @ weights
    of_sigma = score.sigma / score.sigma.mean() - shares * scores
    return of_sigma, shares * np.sign(score.mu - y) * score.unit / score.sigma


@dataclass(frozen=True, eq=False)
class BinnedRows:
    """The bin of each row, per feature; a bin ends at its cut."""

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
        """The cut whose step along the gradient has the least squared error; a cut of 0 if none is allowed."""
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
    """Cumulative sums over bins up to each cut."""
    return in_bins.reshape(-1, CUTS + 1).cumsum(axis=1)[:, :-1]
