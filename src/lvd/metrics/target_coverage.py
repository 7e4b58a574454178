"""Excess risk of the target coverage: how far coverage at each x is from the level, as a classifier finds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lvd._typing import ArrayLike, Bool, Float, NDArray, RandomState
from lvd._validation import InputError, check_matrix, check_positive, check_same_length, seed_from
from lvd.metrics._check import check_hits, check_level


@dataclass(frozen=True)
class TargetCoverageRisk:
    """The L1 excess risk, `total`, and its parts from rows judged under- and over-covered: total = under + over.

    Where coverage is the level at every x, all three are 0 up to noise, and may be negative.
    """

    total: float
    under: float
    over: float


def excess_risk_of_target_coverage(
    X: ArrayLike,
    y: ArrayLike,
    intervals: ArrayLike,
    confidence_level: float,
    *,
    classifier: Any = None,
    n_folds: int = 5,
    random_state: RandomState = 0,
) -> TargetCoverageRisk:
    """L1-ERT: the mean of sign(p(x) - level) (covered - level), p(x) the coverage that a classifier expects at x.

    Its expectation is at most E|P(covered | x) - level|, and equals it for a p on the right side of the level
    everywhere. p is cross-validated, so a classifier that finds nothing gives about 0, not a false alarm. By
    default it is scikit-learn's boosting with 8 leaves; `classifier` is any classifier with `predict_proba`, cloned
    for each fold. An infinite interval covers, and so counts as over-coverage where the classifier can predict it.
    A few hundred rows are too few to find much: compare methods on the same rows. For several targets together
    `y` has shape (n, t) and `intervals` is a region of ``predict_region``; it may also be one boolean for each row.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(4000, 1))
    >>> y = rng.normal(size=4000) * np.where(X[:, 0] < 0.2, 3, 1)
    >>> risk = excess_risk_of_target_coverage(X, y, np.tile([-2, 2], (4000, 1)), 0.9)
    >>> print(f"{risk.total:.2f} = {risk.under:.2f} under + {risk.over:.2f} over")
    0.13 = 0.08 under + 0.04 over
    """
    matrix, level = check_matrix(X), check_level(confidence_level)
    hits = check_hits(y, intervals)
    check_same_length(X=matrix, y=hits)
    check_positive(n_folds, "n_folds", integer=True)
    if not 2 <= n_folds <= len(matrix):
        raise InputError(
            f"n_folds must lie between 2 and the number of rows, {len(matrix)}, got {n_folds}; the default is 5"
        )
    seed = seed_from(random_state)
    judge = _boosting(seed) if classifier is None else classifier  # an unfitted forest has no truth value
    expected = _expected_coverage(matrix, hits, judge, n_folds, seed)
    excess = np.sign(expected - level) * (hits - level)
    return TargetCoverageRisk(
        float(excess.mean()),
        float(np.where(expected < level, excess, 0.0).mean()),
        float(np.where(expected > level, excess, 0.0).mean()),
    )


def _expected_coverage(
    X: Float[NDArray, "n p"], hits: Bool[NDArray, "n"], classifier: Any, n_folds: int, seed: int
) -> Float[NDArray, "n"]:
    """The coverage expected at each row by a classifier that was trained without its fold."""
    from sklearn.base import clone
    from sklearn.model_selection import KFold

    expected = np.empty(len(X))
    for inside, outside in KFold(n_folds, shuffle=True, random_state=seed).split(X):
        if hits[inside].all() or not hits[inside].any():  # nothing to tell apart
            expected[outside] = hits[inside[0]]
        else:
            fitted = clone(classifier).fit(X[inside], hits[inside])
            expected[outside] = fitted.predict_proba(X[outside])[:, 1]
    return expected


def _boosting(seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(
        max_iter=60, learning_rate=0.05, max_leaf_nodes=8, min_samples_leaf=40, random_state=seed
    )
