"""Coverage as a function of x: in the worst slab (Cauchois et al. 2021), and as predicted by a classifier."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from lvd._parallel import few_threads
from lvd._typing import ArrayLike, Bool, Float, Int, NDArray, RandomState
from lvd._validation import (
    InputError,
    check_fraction,
    check_matrix,
    check_positive,
    check_same_length,
    seed_from,
)
from lvd.intervals import check_hits, check_level


@dataclass(frozen=True, eq=False)
class WorstSlab:
    """The slab {x : a <= direction . x <= b}: found on one part of the rows, judged on the other.

    `coverage` is that of the `count` held-out rows inside (NaN if there are none); `search_coverage` is the
    minimum that the search found, which is biased downwards.
    """

    coverage: float
    search_coverage: float
    direction: Float[NDArray, "p"]
    a: float
    b: float
    count: int


def worst_slab_coverage(
    X: ArrayLike,
    y: ArrayLike,
    intervals: ArrayLike,
    *,
    delta: float = 0.1,
    n_directions: int = 1000,
    search_fraction: float = 0.25,
    random_state: RandomState = None,
) -> WorstSlab:
    """Coverage on the worst slab that holds at least a share `delta` of the rows.

    A random part of the rows (`search_fraction`) is searched along `n_directions` random unit directions, in
    each direction exactly (`lowest_run`); the slab found is judged on the other rows. Directions are drawn in
    the coordinates of `X`: standardise its columns first where their units differ. For several targets together
    `y` has shape (n, t) and `intervals` is a region of ``predict_region``; it may also be one boolean for each row.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(2000, 1))
    >>> y = rng.normal(size=2000) * np.where(X[:, 0] < 0.2, 3, 1)
    >>> slab = worst_slab_coverage(X, y, np.tile([-2, 2], (2000, 1)), n_directions=2, random_state=0)
    >>> print(f"coverage {slab.coverage:.2f} between {slab.a:.2f} and {slab.b:.2f}")
    coverage 0.47 between 0.04 and 0.14
    """
    matrix = check_matrix(X)
    hits = check_hits(y, intervals)
    check_same_length(X=matrix, y=hits)
    check_fraction(delta, "delta")
    check_fraction(search_fraction, "search_fraction")
    check_positive(n_directions, "n_directions", integer=True)
    n_search = round(search_fraction * len(matrix))
    if not 0 < n_search < len(matrix):
        raise InputError(
            f"search_fraction={search_fraction:g} of {len(matrix)} rows leaves {n_search} to search and "
            f"{len(matrix) - n_search} to judge on; give more rows"
        )
    rng = np.random.default_rng(seed_from(random_state))
    rows = rng.permutation(len(matrix))
    searched, held_out = rows[:n_search], rows[n_search:]
    directions = rng.normal(size=(n_directions, matrix.shape[1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    search_coverage, direction, a, b = _search(matrix[searched], hits[searched], delta, directions)
    projected = _project(matrix[held_out], direction)
    inside = hits[held_out][(a <= projected) & (projected <= b)]
    coverage = float(inside.mean()) if inside.size else math.nan
    return WorstSlab(coverage, search_coverage, direction, a, b, inside.size)


def lowest_run(
    counts: Int[NDArray, "c"], hits: Int[NDArray, "c"], min_count: int, below: tuple[int, int]
) -> tuple[int, int] | None:
    """The run [start, stop) of cells with the lowest sum(hits) / sum(counts), sum(counts) >= `min_count`.

    None when no ratio is under that of the pair `below`. Dinkelbach's method: with p / q the best ratio so
    far, the run that minimises q sum(hits) - p sum(counts) is found in O(c) from cumulative sums and running
    maxima; either its ratio is lower and becomes p / q, or there is no lower one. A few rounds suffice. All
    numbers are integers, so the answer is exact.
    """
    total = np.concatenate([[0], np.cumsum(counts)])
    total_hits = np.concatenate([[0], np.cumsum(hits)])
    # The last edge at which a run ending at each edge may start.
    latest = np.searchsorted(total, total - min_count, side="right") - 1
    stops = np.flatnonzero(latest >= 0)
    latest = latest[stops]
    best, (p, q) = None, below
    while stops.size:
        balance = q * total_hits - p * total
        excess = balance[stops] - np.maximum.accumulate(balance)[latest]
        lowest = int(np.argmin(excess))
        if excess[lowest] >= 0:
            break
        stop = int(stops[lowest])
        start = int(np.argmax(balance[: latest[lowest] + 1]))
        best = (start, stop)
        p, q = int(total_hits[stop] - total_hits[start]), int(total[stop] - total[start])
    return best


def _search(
    X: Float[NDArray, "n p"], hits: Bool[NDArray, "n"], delta: float, directions: Float[NDArray, "k p"]
) -> tuple[float, Float[NDArray, "p"], float, float]:
    """Coverage, direction and ends of the slab with the lowest coverage over all `directions`."""
    # Equal rows are one cell: a slab holds either all of them or none.
    points, cell = np.unique(X, axis=0, return_inverse=True)
    cell = cell.ravel()  # numpy 2.0 gives a column
    counts = np.bincount(cell)
    cell_hits = np.bincount(cell, weights=hits).astype(np.int64)
    min_count = math.ceil(delta * len(X) - 1e-9)
    p, q = len(X) + 1, len(X)  # above any coverage, so that the first direction finds a slab
    for direction in directions:
        projected = _project(points, direction)
        order = np.argsort(projected)
        run = lowest_run(counts[order], cell_hits[order], min_count, (p, q))
        if run is not None:
            inside = order[slice(*run)]
            p, q = int(cell_hits[inside].sum()), int(counts[inside].sum())
            found = direction, float(projected[inside[0]]), float(projected[inside[-1]])
    return p / q, *found


def _project(X: Float[NDArray, "n p"], direction: Float[NDArray, "p"]) -> Float[NDArray, "n"]:
    """X @ direction, with equal results for equal rows (which BLAS does not guarantee)."""
    return np.asarray(np.einsum("ij,j->i", X, direction))


@dataclass(frozen=True)
class TargetCoverageRisk:
    """The L1 excess risk, `total`, and its parts from rows predicted to be under- and over-covered: total = under
    + over.

    If coverage equals the level at every x, all three are 0 up to noise, which may be negative.
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
    """Out-of-fold coverage predictions of a classifier."""
    from sklearn.base import clone
    from sklearn.model_selection import KFold

    expected = np.empty(len(X))
    for inside, outside in KFold(n_folds, shuffle=True, random_state=seed).split(X):
        if hits[inside].all() or not hits[inside].any():  # only one class
            expected[outside] = hits[inside[0]]
        else:
            with few_threads(X):
                fitted = clone(classifier).fit(X[inside], hits[inside])
                expected[outside] = fitted.predict_proba(X[outside])[:, 1]
    return expected


def _boosting(seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(
        max_iter=60, learning_rate=0.05, max_leaf_nodes=8, min_samples_leaf=40, random_state=seed
    )
