"""How good a whole predictive distribution is."""

from __future__ import annotations

import numpy as np

from lvd._typing import ArrayLike, Float, NDArray
from lvd._validation import InputError, check_same_length, check_vector, to_numpy


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
    # An infinite sample without its mass may be anywhere: at y it changes nothing.
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
