"""Theorem 2: with more calibration rows and a kernel that narrows slowly, coverage holds at every single x."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from lvd import LocalConformal, MahalanobisKernel

LEVEL = 0.9
CENTRES = np.linspace(0.0, 1.0, 21)


def spread(x):
    """The error at x is normal with this standard deviation; its density given x is smooth in x."""
    return 0.2 + x


def gaps(n_rows: int, bandwidth: float, *, seed: int):
    """Coverage given x minus the level, and the radius beside the oracle's, at every centre; known exactly."""
    rng = np.random.default_rng([seed, n_rows])
    x = rng.uniform(size=(n_rows, 1))
    scores = np.abs(rng.normal(size=n_rows)) * spread(x[:, 0])
    kernel = MahalanobisKernel.from_components([[1.0 / bandwidth]], mean=[0.0], scale=[1.0], device="cpu")
    radius = LocalConformal(kernel).conformalize(x, scores).radius(CENTRES[:, None], LEVEL)
    coverage = 2.0 * norm.cdf(radius / spread(CENTRES)) - 1.0
    return coverage - LEVEL, radius / (norm.ppf(0.5 + LEVEL / 2.0) * spread(CENTRES)) - 1.0


def worst(n_rows: int, bandwidth: float) -> tuple[float, float]:
    """The largest shortfall of coverage and the largest relative error of the radius, means over ten draws."""
    found = [gaps(n_rows, bandwidth, seed=seed) for seed in range(10)]
    return (
        float(np.mean([np.max(-coverage).clip(0.0) for coverage, _ in found])),
        float(np.mean([np.abs(radius).max() for _, radius in found])),
    )


def test_conditional_coverage_approaches_the_level_as_the_kernel_narrows():
    shortfalls, errors = zip(*(worst(m, m ** (-1 / 3)) for m in (300, 3_000, 30_000, 300_000)), strict=True)
    assert all(np.diff(shortfalls) < 0.0)
    assert all(np.diff(errors) < 0.0)
    assert shortfalls[-1] < 0.012
    assert errors[-1] < 0.06


def test_with_a_kernel_of_fixed_width_it_does_not():
    """More rows alone do not help: the radius stays that of a neighbourhood, too small where errors grow."""
    shortfall, error = worst(300_000, 0.5)
    assert shortfall > 0.05
    assert error > 0.3


def test_a_kernel_that_narrows_too_fast_gives_infinite_intervals():
    """Bandwidth 1 / m: the rows nearby never become more, so nothing can be promised at any m."""
    for n_rows in (300, 30_000):
        coverage, _ = gaps(n_rows, 1.0 / n_rows, seed=0)
        assert np.mean(coverage == pytest.approx(1.0 - LEVEL)) > 0.8
