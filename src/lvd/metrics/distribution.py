"""How good a whole predictive distribution is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from lvd._typing import ArrayLike, Float, Levels, NDArray
from lvd._validation import (
    InputError,
    check_levels,
    check_positive,
    check_same_length,
    check_vector,
    to_numpy,
)

Finding: TypeAlias = Literal[
    "look right", "are too low", "are too high", "are too narrow", "are too wide", "are off"
]

BY_CHANCE, Z_BY_CHANCE = 0.05, 1.96
"""Below this p-value, probability integral transforms are not called uniform."""


@dataclass(frozen=True)
class PitHistogram:
    """A histogram of probability integral transforms in equal bins of (0, 1), and whether they look uniform.

    `shares` are the bins' shares of rows, `low` and `high` the 95% band of a bin's share if the distributions are
    right. If the chi-squared test's `p_value` is below 0.05, `finding` names the largest departure: distributions
    are too narrow if y is too often in their tails, and too low if it is too often above their middle.
    """

    n_rows: int
    shares: tuple[float, ...]
    low: float
    high: float
    p_value: float
    finding: Finding


def pit_histogram(pit: ArrayLike, *, n_bins: int = 10, n_calib: int | None = None) -> PitHistogram:
    """The histogram of probability integral transforms, as ``predict_distribution(X).pit(y)`` gives them.

    The test assumes independent rows. Given the number of calibration rows, `n_calib`, it allows for their
    sampling error; without it, it tests this particular calibration, which is never exact.

    >>> import numpy as np
    >>> pit_histogram([0.05, 0.15, 0.25, 0.95], n_bins=2).shares
    (0.75, 0.25)
    >>> pit_histogram(np.repeat([0.01, 0.5, 0.99], 50)).finding
    'are too narrow'
    """
    values = check_vector(pit, "pit")
    check_positive(n_bins, "n_bins", integer=True)
    if not ((values >= 0.0) & (values <= 1.0)).all():
        raise InputError("pit must lie in [0, 1]; give what predict_distribution(X).pit(y) returns")
    from scipy.stats import chi2  # slow to load

    n = len(values)
    independent = n if n_calib is None else 1.0 / (1.0 / n + 1.0 / n_calib)
    shares, expected = np.histogram(values, n_bins, (0.0, 1.0))[0] / n, 1.0 / n_bins
    statistic = independent * np.square(shares - expected).sum() / expected
    p_value = float(chi2.sf(statistic, n_bins - 1)) if n_bins > 1 else 1.0
    # In standard errors under uniformity: the mean, and the mean distance from the middle.
    place = (values.mean() - 0.5) * math.sqrt(12.0 * independent)
    spread = (np.abs(values - 0.5).mean() - 0.25) * math.sqrt(48.0 * independent)
    finding: Finding = "look right"
    if p_value < BY_CHANCE:
        if max(abs(place), abs(spread)) < Z_BY_CHANCE:
            finding = "are off"
        elif abs(place) > abs(spread):
            finding = "are too low" if place > 0.0 else "are too high"
        else:
            finding = "are too narrow" if spread > 0.0 else "are too wide"
    band = Z_BY_CHANCE * math.sqrt(expected * (1.0 - expected) / independent)
    return PitHistogram(
        n, tuple(shares.tolist()), max(0.0, expected - band), min(1.0, expected + band), p_value, finding
    )


def pinball_loss(y: ArrayLike, quantiles: ArrayLike, q: Levels) -> float:
    """The mean over rows and levels of ``max(q e, (q - 1) e)`` with ``e = y - quantile``.

    `quantiles` has shape (n,) for one `q` in (0, 1), and (n, Q) for a list. A quantile at infinity has an infinite
    loss.

    >>> pinball_loss([0, 1], [0.5, 0.5], 0.9)
    0.25
    >>> pinball_loss([0, 1], [[0, 1], [0, 1]], [0.25, 0.75])
    0.125
    """
    targets, levels = check_vector(y), check_levels(q, "q")
    given = to_numpy(quantiles).astype(np.float64)
    given = given[:, None] if given.ndim == 1 else given
    if given.shape != (len(targets), len(levels)) or np.isnan(given).any():
        raise InputError(
            f"quantiles must be numbers of shape {(len(targets), len(levels))}, a row for each y and a column for "
            f"each q, got {given.shape}"
        )
    error = targets[:, None] - given
    return float(np.maximum(levels * error, (levels - 1.0) * error).mean())


def crps(
    y: ArrayLike, samples: ArrayLike, weights: ArrayLike | None = None, *, given_finite: bool = False
) -> Float[NDArray, "n"]:
    """Continuous ranked probability score of each row: the integral over z of (F(z) - 1{y <= z})^2.

    F is the distribution with mass `weights` (any scale; default: equal) on `samples`, both of shape (n, m),
    or (m,) when all rows share them. Samples may be infinite, as the one for the test row itself
    in a local conformal distribution. A row with mass at infinity has the score +inf: that is the integral.
    With `given_finite=True` the score is that of F given that it is finite, to be reported beside the mass
    left out; NaN where F has no finite part.

    >>> crps([0, 0], [[-1, 1], [0, float("inf")]]).tolist()
    [0.5, inf]
    >>> crps([0, 0], [[-1, 1], [2, float("inf")]], given_finite=True).tolist()
    [0.5, 2.0]
    """
    targets = check_vector(y)
    points = _check_rows(samples, "samples", len(targets))
    mass = np.ones_like(points) if weights is None else _check_rows(weights, "weights", len(targets))
    if mass.shape != points.shape:
        raise InputError(f"weights must have one column per sample, got {mass.shape} for {points.shape}")
    if not np.isfinite(mass).all() or (mass < 0).any() or (mass.sum(axis=1) <= 0).any():
        raise InputError("weights must be finite, at least 0, and positive somewhere in each row; check them")
    finite = np.isfinite(points)
    finite_mass = np.where(finite, mass, 0.0)
    has_finite = finite_mass.sum(axis=1) > 0
    scores = np.full(len(targets), np.nan)
    # An infinite sample without mass may be anywhere: at y it changes nothing.
    scores[has_finite] = _finite_crps(
        targets[has_finite], np.where(finite, points, targets[:, None])[has_finite], finite_mass[has_finite]
    )
    if not given_finite:
        scores[np.where(finite, 0.0, mass).sum(axis=1) > 0] = np.inf
    return scores


def _finite_crps(
    y: Float[NDArray, "n"], samples: Float[NDArray, "n m"], weights: Float[NDArray, "n m"]
) -> Float[NDArray, "n"]:
    """The integral, piece by piece: F is constant between samples, and each piece is cut at y."""
    order = np.argsort(samples, axis=1)
    z = np.take_along_axis(samples, order, axis=1)
    F = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)
    F = (F / F[:, -1:])[:, :-1]
    left, right = z[:, :-1], z[:, 1:]
    cut = np.clip(y[:, None], left, right)
    inner = ((cut - left) * F**2 + (right - cut) * (1.0 - F) ** 2).sum(axis=1)
    outer = np.maximum(z[:, 0] - y, 0.0) + np.maximum(y - z[:, -1], 0.0)
    return np.asarray(inner + outer)


def _check_rows(values: ArrayLike, name: str, n: int) -> Float[NDArray, "n m"]:
    """`values` as (n, m) numbers without NaN; a vector is the same for every row."""
    array = to_numpy(values)
    if array.dtype.kind not in "fiu" or array.ndim not in (1, 2) or array.size == 0:
        raise InputError(f"{name} must be numbers of shape (n, m) or (m,), got {array.dtype} {array.shape}")
    array = array.astype(np.float64)
    if np.isnan(array).any():
        raise InputError(f"{name} holds NaN; remove these samples or give them weight 0 and a number")
    if array.ndim == 1:
        return np.tile(array, (n, 1))
    check_same_length(**{"y": np.empty(n), name: array})
    return array
