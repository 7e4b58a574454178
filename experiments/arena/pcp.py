"""Posterior conformal prediction (Zhang and Candès 2024), with a mixture fixed by the training rows.

The authors refit the mixture for every test row; here hyperparameters and mixture come from the training rows
and their out-of-fold errors, so that all calibration rows calibrate and the marginal guarantee is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax, softmax
from scipy.stats import rankdata
from sklearn.model_selection import KFold

from lvd._typing import Float, NDArray

THRESHOLDS = np.linspace(0.1, 0.9, 9)
PENALTIES = 10.0 ** np.arange(8, -8, -1)
AUC_FOLDS, MOST_PARTS, ALTERNATIONS, MIRROR_STEPS = 20, 10, 20, 20
LEAST_GAIN, LEAST_LAST_GAIN = 0.05, 0.025
MOST_EFFECTIVE_ROWS, LEAST_SELF_WEIGHT = 100.0, 1 / 30
PROBE_ROWS = 1000
FLOOR = 1e-8


@dataclass(frozen=True, eq=False)
class PosteriorMixture:
    """The probabilities of K types of error distribution at a row, and how many draws of the type to compare."""

    mean: Float[NDArray, "p"]
    scale: Float[NDArray, "p"]
    ratios: Float[NDArray, "p1 t"]
    """Coefficients of the density ratio for each threshold of the error."""
    centre: Float[NDArray, "t"]
    spread: Float[NDArray, "t"]
    parts: Float[NDArray, "k t"]
    n_draws: int

    def shares(self, X: Float[NDArray, "n p"]) -> Float[NDArray, "n k"]:
        """The posterior over types: points on the simplex."""
        below = _share_below(_with_one((X - self.mean) / self.scale) @ self.ratios)
        steps = ALTERNATIONS * MIRROR_STEPS
        return np.exp(_mirror((below - self.centre) / self.spread, self.parts, steps=steps))


def fit_mixture(
    X: Float[NDArray, "n p"], errors: Float[NDArray, "n"], n_calib: int, seed: int
) -> PosteriorMixture:
    """Fit the mixture to the absolute errors of the training rows.

    The number of draws is chosen on as many rows as will calibrate, at most 1,000: with the authors' 1,000 rows
    it would be too large for a small calibration set, and many intervals would be infinite.
    """
    rng = np.random.default_rng(seed)
    mean, scale = X.mean(axis=0), np.maximum(X.std(axis=0), 1e-12)
    Z = _with_one((X - mean) / scale)
    fits = [_density_ratio(Z, errors <= threshold, seed) for threshold in np.quantile(errors, THRESHOLDS)]
    ratios = np.column_stack([coefficients for coefficients, _ in fits])
    held_out = np.column_stack([below for _, below in fits])
    centre, spread = held_out.mean(axis=0), np.maximum(held_out.std(axis=0), 1e-12)
    E = (held_out - centre) / spread
    parts = _choose_parts(E, rng)
    shares = np.exp(_mirror(E[: min(PROBE_ROWS, n_calib)], parts, steps=ALTERNATIONS * MIRROR_STEPS))
    return PosteriorMixture(mean, scale, ratios, centre, spread, parts, _choose_draws(shares))


def posterior_radius(
    mixture: PosteriorMixture,
    X_calib: Float[NDArray, "m p"],
    scores: Float[NDArray, "m"],
    X: Float[NDArray, "n p"],
    *,
    level: float,
    seed: int,
) -> Float[NDArray, "n"]:
    """The weighted quantile of the scores for each row, whose own weight is at +inf."""
    rng, shares = np.random.default_rng(seed), mixture.shares(X)
    draws = rng.multinomial(mixture.n_draws, shares / shares.sum(axis=1, keepdims=True))
    order = np.argsort(scores, kind="stable")
    log_calib = np.log(np.maximum(mixture.shares(X_calib)[order], FLOOR))
    own = (draws * np.log(np.maximum(shares, FLOOR))).sum(axis=1)
    weights = softmax(np.column_stack([draws @ log_calib.T, own]), axis=1)
    reached = np.cumsum(weights[:, :-1], axis=1) >= level
    first = np.where(reached.any(axis=1), reached.argmax(axis=1), len(scores))
    return np.append(scores[order], np.inf)[first]


def _with_one(Z: Float[NDArray, "n p"]) -> Float[NDArray, "n p1"]:
    return np.column_stack([np.ones(len(Z)), Z])


def _share_below(ratio: Float[NDArray, "n *k"]) -> Float[NDArray, "n *k"]:
    """Map the density ratio to [0, 1): the probability of a small error."""
    positive = np.maximum(ratio, 0.0)
    return positive / (1.0 + positive)


def _density_ratio(
    Z: Float[NDArray, "n p1"], below: NDArray, seed: int
) -> tuple[Float[NDArray, "p1"], Float[NDArray, "n"]]:
    """Coefficients and held-out predictions of the least-squares density ratio, at the penalty of the best AUC."""
    held_out = np.empty((len(Z), len(PENALTIES)))
    n_folds = min(AUC_FOLDS, len(Z))
    for inside, outside in KFold(n_folds, shuffle=True, random_state=seed).split(Z):
        held_out[outside] = Z[outside] @ _ridge(Z[inside], below[inside])
    ranks, n_below = rankdata(held_out, axis=0), below.sum()
    auc = (ranks[below].sum(axis=0) - n_below * (n_below + 1) / 2) / (n_below * (~below).sum())
    best = int(np.argmax(auc))
    return _ridge(Z, below)[:, best], _share_below(held_out[:, best])


def _ridge(Z: Float[NDArray, "n p1"], below: NDArray) -> Float[NDArray, "p1 l"]:
    """(Z_a' Z_a / n_a + penalty I)^-1 mean(Z_b), with a the rows above the threshold, for all penalties at once."""
    above = Z[~below]
    values, vectors = np.linalg.eigh(above.T @ above / max(len(above), 1))
    target = vectors.T @ Z[below].mean(axis=0)
    return vectors @ (target[:, None] / (np.maximum(values, 0.0)[:, None] + PENALTIES))


def _mirror(
    E: Float[NDArray, "n t"],
    parts: Float[NDArray, "k t"],
    *,
    steps: int,
    start: Float[NDArray, "n k"] | None = None,
) -> Float[NDArray, "n k"]:
    """Log weights on the simplex that bring ``W @ parts`` close to E, by mirror descent."""
    if start is None:
        start = log_softmax(-0.5 * np.square(E[:, None] - parts).sum(axis=2), axis=1)
    log_weights = start
    for step in range(steps):
        gradient = (np.exp(log_weights) @ parts - E) @ parts.T
        log_weights = log_softmax(log_weights - 0.1 * gradient / np.sqrt(0.1 * step + 1.0), axis=1)
    return log_weights


def _factorize(
    E: Float[NDArray, "n t"], k: int, rng: np.random.Generator
) -> tuple[Float[NDArray, "k t"], float]:
    """Parts V that minimise |E - W V|^2 with the rows of W on the simplex, and the share of E they explain."""
    parts = _spread_out(E, k, rng)
    log_weights = _mirror(E, parts, steps=0)
    explained = -np.inf
    for _ in range(ALTERNATIONS):
        log_weights = _mirror(E, parts, steps=MIRROR_STEPS, start=log_weights)
        weights = np.exp(log_weights)
        parts = np.linalg.pinv(weights.T @ weights) @ weights.T @ E
        before, explained = explained, 1.0 - np.square(E - weights @ parts).sum() / np.square(E).sum()
        if abs(explained - before) < 1e-3:
            break
    return parts, float(explained)


def _spread_out(E: Float[NDArray, "n t"], k: int, rng: np.random.Generator) -> Float[NDArray, "k t"]:
    """k-means++ seeds, the best of twenty tries."""
    best, lowest = E[:k], np.inf
    for _ in range(20):
        chosen = [int(rng.integers(len(E)))]
        distance = np.square(E - E[chosen[0]]).sum(axis=1)
        while len(chosen) < k:
            total = distance.sum()
            chosen.append(int(rng.choice(len(E), p=distance / total if total > 0 else None)))
            distance = np.minimum(distance, np.square(E - E[chosen[-1]]).sum(axis=1))
        if distance.sum() < lowest:
            best, lowest = E[chosen], distance.sum()
    return best


def _choose_parts(E: Float[NDArray, "n t"], rng: np.random.Generator) -> Float[NDArray, "k t"]:
    """The number of parts, increased as long as it explains more of E."""
    parts, explained = _factorize(E, 2, rng)
    for k in range(3, MOST_PARTS + 1):
        more, now = _factorize(E, k, rng)
        gain = abs(now - explained)
        if gain <= LEAST_GAIN:
            return parts if gain <= LEAST_LAST_GAIN else more
        parts, explained = more, now
    return parts


def _choose_draws(shares: Float[NDArray, "n k"]) -> int:
    """The fewest draws that make few enough rows similar, and each row's own weight high enough, by bisection."""
    log_shares = np.log(np.maximum(shares, FLOOR))

    def enough(n_draws: float) -> bool:
        weights = softmax(n_draws * shares @ log_shares.T, axis=1)
        effective = (1.0 / np.square(weights).sum(axis=1)).mean()
        return bool(effective <= MOST_EFFECTIVE_ROWS and np.diag(weights).mean() >= LEAST_SELF_WEIGHT)

    low, high = 4.0, 501.0
    while high - low > 0.5:
        middle = (low + high) / 2.0
        low, high = (low, middle) if enough(middle) else (middle, high)
    return max(int(high), 5)
