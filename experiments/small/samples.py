"""Three generators of small tables, each with a column that defines five groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from lvd._typing import Float, Int, NDArray

GROUPS = 5


@dataclass(frozen=True)
class Sample:
    """Rows, their targets, and their groups, the fifths of one column."""

    X: Float[NDArray, "n p"]
    y: Float[NDArray, "n"]
    group: Int[NDArray, "n"]


def noise_levels(rng: np.random.Generator, n_rows: int) -> Sample:
    """Eight columns; the first selects one of two noise levels, a factor of four apart."""
    X = rng.uniform(-1.0, 1.0, size=(n_rows, 8))
    noise = np.where(X[:, 0] > 0.2, 2.0, 0.5) * rng.normal(size=n_rows)
    y = X[:, 0] + 2.0 * X[:, 1] + np.sin(3.0 * X[:, 2]) + noise
    return Sample(X, y, np.digitize(X[:, 0], np.linspace(-1.0, 1.0, GROUPS + 1)[1:-1]))


def skewed_errors(rng: np.random.Generator, n_rows: int) -> Sample:
    """Five columns; errors are exponential, with a scale that grows with the first column."""
    X = rng.normal(size=(n_rows, 5))
    noise = (0.3 + np.exp(0.6 * X[:, 0]) / 1.5) * (rng.exponential(size=n_rows) - 1.0)
    edges = [NormalDist().inv_cdf(number / GROUPS) for number in range(1, GROUPS)]
    return Sample(X, X[:, 0] + X[:, 1] * X[:, 2] + noise, np.digitize(X[:, 0], edges))


def friedman(rng: np.random.Generator, n_rows: int) -> Sample:
    """Friedman's ten columns with homoscedastic normal errors, which leave nothing to learn about them."""
    X = rng.uniform(size=(n_rows, 10))
    y = (
        10.0 * np.sin(np.pi * X[:, 0] * X[:, 1])
        + 20.0 * (X[:, 2] - 0.5) ** 2
        + 10.0 * X[:, 3]
        + 5.0 * X[:, 4]
    )
    edges = np.linspace(0.0, 1.0, GROUPS + 1)[1:-1]
    return Sample(X, y + rng.normal(size=n_rows), np.digitize(X[:, 0], edges))


SAMPLES: dict[str, Callable[[np.random.Generator, int], Sample]] = {
    "noise-levels": noise_levels,
    "skewed-errors": skewed_errors,
    "friedman": friedman,
}
