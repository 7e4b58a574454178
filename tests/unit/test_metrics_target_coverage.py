from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from lvd import InputError
from lvd.metrics import excess_risk_of_target_coverage


def noisy_corner(rng, n=2000):
    """Targets whose noise is three times as large where the first input is small."""
    X = rng.uniform(size=(n, 3))
    return X, rng.normal(size=n) * np.where(X[:, 0] < 0.25, 3.0, 1.0)


def one_width(n, half=2.0):
    return np.tile([-half, half], (n, 1))


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_equal_to_covmetrics(rng, level):
    covmetrics = pytest.importorskip("covmetrics.ERT")
    X, y = noisy_corner(rng)
    settings = {"max_depth": 4, "min_samples_leaf": 30, "random_state": 0}
    theirs = covmetrics.ERT(DecisionTreeClassifier, **settings).evaluate_multiple_losses(
        X, (np.abs(y) <= 2).astype(float), 1 - level, n_splits=5, random_state=7
    )
    ours = excess_risk_of_target_coverage(
        X, y, one_width(2000), level, classifier=DecisionTreeClassifier(**settings), random_state=7
    )
    assert ours.total == pytest.approx(theirs["ERT_L1_miscoverage"], abs=1e-12)
    assert ours.under == pytest.approx(theirs["ERT_L1_miscoverage_under"], abs=1e-12)
    assert ours.over == pytest.approx(theirs["ERT_L1_miscoverage_over"], abs=1e-12)
    assert ours.total > 0.05


def test_near_the_truth_where_coverage_is_known(rng):
    X, y = noisy_corner(rng, 20_000)
    risk = excess_risk_of_target_coverage(X, y, one_width(20_000), 0.9)
    under, over = 0.25 * (0.9 - 0.4950), 0.75 * (0.9545 - 0.9)  # P(|N| < 2/3) and P(|N| < 2)
    assert risk.under == pytest.approx(under, abs=0.01)
    assert risk.over == pytest.approx(over, abs=0.01)
    assert risk.total == pytest.approx(risk.under + risk.over)


def test_nothing_to_find_is_about_zero(rng):
    X = rng.uniform(size=(5000, 3))
    y = rng.normal(size=5000)
    risk = excess_risk_of_target_coverage(X, y, one_width(5000, 1.6449), 0.9)
    assert abs(risk.total) < 0.02


def test_infinite_intervals_cover(rng):
    X, y = noisy_corner(rng)
    everywhere = np.tile([-np.inf, np.inf], (2000, 1))
    risk = excess_risk_of_target_coverage(X, y, everywhere, 0.9)
    assert (risk.total, risk.under, risk.over) == pytest.approx((0.1, 0.0, 0.1))
    corner = np.where(X[:, :1] < 0.25, everywhere, one_width(2000, 1.6449))
    wide = np.where(X[:, :1] < 0.25, one_width(2000, 1e9), one_width(2000, 1.6449))
    assert excess_risk_of_target_coverage(X, y, corner, 0.9) == excess_risk_of_target_coverage(
        X, y, wide, 0.9
    )


def test_nothing_covered_is_all_under(rng):
    X, y = noisy_corner(rng)
    risk = excess_risk_of_target_coverage(X, y + 100, one_width(2000), 0.9)
    assert (risk.total, risk.under, risk.over) == pytest.approx((0.9, 0.9, 0.0))


@pytest.mark.parametrize("n_folds", [1, 11])
def test_folds_must_fit_the_rows(n_folds):
    with pytest.raises(
        InputError, match=f"n_folds must lie between 2 and the number of rows, 10, got {n_folds}"
    ):
        excess_risk_of_target_coverage(np.zeros((10, 1)), np.zeros(10), one_width(10), 0.9, n_folds=n_folds)


def test_a_forest_can_judge(rng):
    X, y = noisy_corner(rng, 500)
    forest = RandomForestClassifier(20, min_samples_leaf=20, random_state=0)
    assert excess_risk_of_target_coverage(X, y, one_width(500), 0.9, classifier=forest).total > 0.05
