"""Conformalized quantile regression: the loss, the networks, the two forms, the levels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.linear_model import LinearRegression
from torch import nn

import lvd
from lvd.models.losses import PinballLoss

LEVELS = [0.8, 0.5]
NET = lvd.NetRegressor(hidden_sizes=(8,), n_batches=20)
# Calibration rows at 0, whose quantiles are [-1, 2]: y misses them by -1 (inside), 0, 1, ..., 7 above.
X_CALIB = np.arange(9.0)[:, None]
Y_CALIB = np.arange(1.0, 10.0)
ELSEWHERE = np.array([[100.0], [200.0]])


def crossed(X):
    """Always the quantiles -1 and 2, given the wrong way round."""
    return np.tile([2.0, -1.0], (len(X), 1))


def given(**changes):
    regressor = lvd.ConformalizedQuantileRegressor(
        (crossed, lambda X: X), **({"confidence_level": 0.8, "prefit": True, "calib_size": None} | changes)
    )
    return regressor.fit(ELSEWHERE, np.zeros(2))


def test_pinball_loss_by_hand():
    output, target = torch.zeros(2, 2), torch.tensor([[1.0, 1.0], [-2.0, -2.0]])
    # Orders 0.1 and 0.9: 0.1 + 0.9 above, 0.9 * 2 + 0.1 * 2 below.
    assert float(PinballLoss(0.8)(output, target)) == pytest.approx((1.0 + 2.0) / 4)


def test_pinball_loss_is_least_at_the_quantiles(rng):
    y = torch.as_tensor(rng.exponential(size=(1001, 1))).expand(-1, 2)
    orders = torch.tensor([0.1, 0.9], dtype=torch.float64)
    best = torch.quantile(y[:, 0], orders)
    least = PinballLoss(0.8)(best.expand_as(y), y)
    for step in (torch.tensor([0.05, 0.0]), torch.tensor([0.0, 0.05])):
        assert PinballLoss(0.8)((best + step).expand_as(y), y) > least
        assert PinballLoss(0.8)((best - step).expand_as(y), y) > least


def test_one_network_learns_both_quantiles_of_every_target(rng):
    X = rng.uniform(-1, 1, size=(3000, 1))
    noise = rng.normal(size=3000)
    y = np.stack([noise, 10.0 + 5.0 * noise], axis=1)
    regressor = lvd.ConformalizedQuantileRegressor(
        lvd.NetRegressor(hidden_sizes=(8,), n_batches=400), confidence_level=0.8, random_state=0
    ).fit(X, y)
    expected = norm.ppf([0.1, 0.9])
    ends = regressor.model_.evaluate(X).quantiles[:, :, 0].mean(0)
    np.testing.assert_allclose(ends[:, 0], expected, atol=0.25)
    np.testing.assert_allclose(ends[:, 1], 10.0 + 5.0 * expected, atol=1.25)


def test_crossed_quantiles_are_sorted_and_both_ends_move_alike():
    # Scores max(-1 - y, y - 2) of y = 1..9 are -1..7; the rank is ceil(10 * 0.8) = 8.
    y_pred, intervals = given().conformalize(X_CALIB, Y_CALIB).predict_interval([[0.0]])
    assert y_pred == [0.5]
    np.testing.assert_array_equal(intervals[0, :, 0], [-1.0 - 6.0, 2.0 + 6.0])


def test_the_asymmetric_form_moves_each_end_by_its_own():
    # At 0.9 for each end the rank is 9: the largest of -1 - y is -2, the largest of y - 2 is 7.
    _, intervals = given(symmetric=False).conformalize(X_CALIB, Y_CALIB).predict_interval([[0.0]])
    np.testing.assert_array_equal(intervals[0, :, 0], [-1.0 + 2.0, 2.0 + 7.0])


def test_the_asymmetric_form_needs_twice_the_rows():
    with pytest.warns(lvd.CalibrationWarning, match="at least 9 calibration rows, and there are 8"):
        given(symmetric=False).conformalize(X_CALIB[:8], Y_CALIB[:8])


def test_the_percentile_of_the_paper():
    regressor = given(quantile="percentile").conformalize(X_CALIB, Y_CALIB)
    radius = np.percentile(np.arange(-1.0, 8.0), 80.0)
    np.testing.assert_array_equal(regressor.predict_interval([[0.0]])[1][0, :, 0], [-1 - radius, 2 + radius])


def test_a_list_of_levels_trains_a_network_each(rng):
    X = rng.normal(size=(60, 2))
    regressor = lvd.ConformalizedQuantileRegressor(NET, confidence_level=LEVELS, random_state=0)
    regressor.fit(X, X[:, 0])
    assert len(regressor.model_.models) == 2
    y_pred, intervals = regressor.predict_interval(X)
    assert intervals.shape == (60, 2, 2)
    middle = regressor.model_.models[0].evaluate(X).y_pred.mean(1)
    np.testing.assert_allclose(y_pred, middle, rtol=1e-12)
    alone = lvd.ConformalizedQuantileRegressor(NET, confidence_level=0.5, random_state=0).fit(X, X[:, 0])
    np.testing.assert_array_equal(alone.predict_interval(X)[1], intervals[:, :, [1]])


def test_a_level_without_a_network_is_refused():
    regressor = given().conformalize(X_CALIB, Y_CALIB)
    with pytest.raises(
        lvd.InputError, match=r"no network for confidence_level=0.9: the trained levels are 0.8; give all"
    ):
        regressor.predict_interval([[0.0]], [0.8, 0.9])


def test_a_module_of_two_outputs(rng):
    X = rng.normal(size=(60, 2))
    module = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lvd.models.regressor.LEAST_BATCHES", 10)
        patch.setattr("lvd.models.validated.MOST_ROUNDS", 2)
        patch.setattr("lvd.models.regressor.LEAST_EPOCHS", 1)
        regressor = lvd.ConformalizedQuantileRegressor(module, random_state=0).fit(X, X[:, 0])
    assert regressor.predict_interval(X)[1].shape == (60, 2, 1)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"estimator": LinearRegression()}, "trained with the pinball loss, got LinearRegression; train a"),
        ({"estimator": NET, "prefit": True, "confidence_level": LEVELS}, "quantiles of one level, got .*0.5"),
        ({"quantile": "median"}, "quantile must be one of"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(lvd.InputError, match=message):
        lvd.ConformalizedQuantileRegressor(**parameters).fit(X_CALIB, Y_CALIB)
