"""One town of homes has 6.5 times the noise: the default sees it, a kernel of y does not."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

import lvd


@pytest.fixture(scope="module")
def homes():
    rng = np.random.default_rng(0)
    n = 6000
    X, town = rng.normal(size=(n, 5)), rng.random(n) < 0.2
    noise = np.where(town, 6.5, 1.0) * 0.3 * rng.normal(size=n)
    return np.column_stack([X, town]), 2 * X[:, 0] + np.sin(2 * X[:, 1]) + noise, town


def coverage(reg, homes):
    """In the noisy town, and elsewhere, of 4,000 homes that no step has seen."""
    X, y, town = homes
    reg.fit(X[:2000], y[:2000])
    lower, upper = reg.predict_interval(X[2000:], 0.9)[1][:, :, 0].T
    covered = (lower <= y[2000:]) & (y[2000:] <= upper)
    return covered[town[2000:]].mean(), covered[~town[2000:]].mean()


@pytest.mark.parametrize("estimator", [None, HistGradientBoostingRegressor(random_state=0)])
def test_the_default_covers_in_the_town_and_is_not_too_wide_elsewhere(homes, estimator, full_training):
    there, elsewhere = coverage(lvd.LVDRegressor(estimator, random_state=0), homes)
    assert there >= 0.84
    assert elsewhere <= 0.96


def test_a_kernel_of_y_fails(homes):
    there, _ = coverage(lvd.LVDRegressor(preset="paper", random_state=0), homes)
    assert there < 0.75
