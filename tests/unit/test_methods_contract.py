"""One contract, tested on every registered method."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from pkgutil import iter_modules

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks
from torch import nn

import lvd
from lvd import methods
from lvd.calibration.guarantees import GUARANTEES
from lvd.methods import ALL_METHODS, IntervalRegressor
from lvd.methods.base import PROMISES
from lvd.methods.conformal import ConformalMethod

LEVELS = [0.5, 0.8]
NET = lvd.NetRegressor(hidden_sizes=(8,), n_batches=20)
QUICK = {
    lvd.LVDRegressor: {"estimator": NET, "kernel": lvd.MahalanobisKernel(2, max_iter=5)},
    lvd.SplitConformalRegressor: {"estimator": NET},
    lvd.MADSplitRegressor: {"estimator": NET},
    lvd.ConformalizedQuantileRegressor: {"estimator": NET, "confidence_level": LEVELS},
    lvd.JackknifePlusRegressor: {"estimator": NET, "cv": 3},
    lvd.DiscriminativeJackknifeRegressor: {"estimator": NET},
    lvd.DeepEnsembleRegressor: {"hidden_sizes": (8,), "epochs": 5, "n_members": 2},
    lvd.MCDropoutRegressor: {"hidden_sizes": (8,), "epochs": 5, "n_passes": 20},
    lvd.PBPRegressor: {"hidden_sizes": (8,), "epochs": 2},
}
"""Settings that make a method quick; CQR must be told all the levels it is to train for."""

PREDICTION_MAY_LIE_OUTSIDE = {
    lvd.ConformalizedQuantileRegressor: "it is the middle of the quantiles of the first level",
    lvd.JackknifePlusRegressor: "it comes from the model of all rows, the interval from those that leave out",
    lvd.DiscriminativeJackknifeRegressor: "the same",
}


def quick(method, **changes):
    return method(**({"confidence_level": LEVELS[-1], "random_state": 0} | QUICK[method] | changes))


@pytest.fixture(scope="module", params=ALL_METHODS, ids=lambda method: method.__name__)
def method(request):
    return request.param


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(60, 2)).astype(np.float32).astype(np.float64)
    return X, X[:, 0] + 0.3 * rng.normal(size=60)


@pytest.fixture(scope="module")
def fitted(method, rows):
    """Fitted once; a test that changes a method builds its own."""
    return quick(method).fit(*rows)


@pytest.fixture
def short_training(monkeypatch):
    """Default settings, for a few batches only."""
    monkeypatch.setattr("lvd.models.regressor.LEAST_BATCHES", 10)
    monkeypatch.setattr("lvd.models.regressor.LEAST_EPOCHS", 1)
    monkeypatch.setattr("lvd.methods.mc_dropout.LEAST_EPOCHS", 1)
    monkeypatch.setattr("lvd.methods.mc_dropout.LEAST_BATCHES", 10)


def test_every_method_in_the_folder_is_registered():
    modules = [import_module(f"lvd.methods.{module.name}") for module in iter_modules(methods.__path__)]
    found = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, IntervalRegressor) and not value.__abstractmethods__
    }
    assert found == set(ALL_METHODS) == set(QUICK)


class TestContract:
    def test_says_what_it_promises(self, method):
        assert {method.guarantee, *GUARANTEES} <= set(PROMISES)
        assert isinstance(method.post_hoc, bool)
        assert isinstance(method.nested, bool)

    def test_is_a_public_name_with_an_example(self, method):
        assert getattr(lvd, method.__name__) is method
        assert method.__name__ in lvd.__all__
        assert ">>> reg = lvd." + method.__name__ in method.__doc__
        assert all(name in method.__doc__ for name in method().get_params())

    @pytest.mark.usefixtures("short_training")
    def test_works_with_no_arguments(self, method, rows, monkeypatch):
        X, y = rows
        monkeypatch.setattr("lvd.methods.lvd.MahalanobisKernel", partial(lvd.MahalanobisKernel, max_iter=20))
        n_rows = 12 if method is lvd.JackknifePlusRegressor else 40  # one model for each row
        y_pred, intervals = method().fit(X[:n_rows], y[:n_rows]).predict_interval(X)
        assert y_pred.shape == (60,)
        assert intervals.shape == (60, 2, 1)

    def test_the_constructor_only_stores(self, method):
        estimator_checks.check_parameters_default_constructible(method.__name__, method())
        estimator_checks.check_no_attributes_set_in_init(method.__name__, method())

    def test_clone_keeps_parameters_and_forgets_the_fit(self, fitted):
        copy = clone(fitted)
        assert str(copy.get_params()) == str(fitted.get_params())
        assert not hasattr(copy, "model_")

    def test_in_a_pipeline(self, method, fitted, rows):
        X, y = rows
        pipeline = make_pipeline(StandardScaler(), quick(method)).fit(100.0 * X, y)
        assert pipeline.predict(100.0 * X).shape == (60,)
        assert pipeline.score(100.0 * X, y) <= 1.0

    def test_in_a_grid_search(self, method, rows):
        search = GridSearchCV(quick(method), {"y_range": [(None, 5.0)]}, cv=2, error_score="raise").fit(*rows)
        assert np.isfinite(search.best_score_)

    @pytest.mark.parametrize("number", [np.float32, np.float64, list])
    def test_takes_floats_of_any_kind(self, fitted, rows, number):
        X, _ = rows
        given = X.tolist() if number is list else X.astype(number)
        for expected, result in zip(
            fitted.predict_interval(X, LEVELS), fitted.predict_interval(given, LEVELS), strict=True
        ):
            assert isinstance(result, np.ndarray)
            assert result.dtype == np.float64
            np.testing.assert_array_equal(result, expected)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_torch_in_torch_out(self, method, fitted, rows, dtype):
        X, _ = rows
        tensors = [torch.tensor(part, dtype=dtype) for part in rows]
        y_pred, intervals = fitted.predict_interval(tensors[0], LEVELS)
        assert y_pred.dtype == intervals.dtype == fitted.predict(tensors[0]).dtype == dtype
        np.testing.assert_array_equal(y_pred, torch.tensor(fitted.predict(X), dtype=dtype))
        np.testing.assert_array_equal(
            quick(method).fit(*tensors).predict(X), quick(method).fit(X, tensors[1].numpy()).predict(X)
        )

    def test_takes_frames(self, method, rows):
        pandas = pytest.importorskip("pandas")
        X, y = rows
        frame = pandas.DataFrame(X, columns=["a", "b"])
        regressor = quick(method).fit(frame, pandas.Series(y))
        np.testing.assert_allclose(regressor.predict(frame), quick(method).fit(X, y).predict(X), rtol=1e-6)

    def test_the_same_seed_gives_the_same_bits_and_no_other_generator_moves(self, method, fitted, rows):
        X, y = rows
        before = np.random.get_state()[1].copy(), torch.random.get_rng_state()  # noqa: NPY002
        copies = X.copy(), y.copy()
        again = quick(method).fit(X, y)
        for first, second in zip(
            fitted.predict_interval(X, LEVELS), again.predict_interval(X, LEVELS), strict=True
        ):
            np.testing.assert_array_equal(first, second)
        np.testing.assert_array_equal(before[0], np.random.get_state()[1])  # noqa: NPY002
        assert torch.equal(before[1], torch.random.get_rng_state())
        np.testing.assert_array_equal(copies[0], X)
        np.testing.assert_array_equal(copies[1], y)

    def test_its_own_guarantee_may_be_asked_for(self, fitted, rows):
        X, _ = rows
        asked, default = fitted.predict_interval(X, guarantee=fitted.guarantee), fitted.predict_interval(X)
        np.testing.assert_array_equal(asked[1], default[1])

    def test_shapes_and_order_of_several_levels(self, fitted, rows):
        X, _ = rows
        y_pred, intervals = fitted.predict_interval(X, LEVELS[::-1])
        assert y_pred.shape == (60,)
        assert intervals.shape == (60, 2, 2)
        assert not np.isnan(intervals).any()
        assert (intervals[:, 0] <= intervals[:, 1]).all()
        np.testing.assert_array_equal(y_pred, fitted.predict(X))
        for column, level in enumerate(LEVELS[::-1]):
            np.testing.assert_array_equal(intervals[:, :, [column]], fitted.predict_interval(X, level)[1])

    def test_the_constructors_level_is_the_default(self, fitted, rows):
        X, _ = rows
        np.testing.assert_array_equal(
            fitted.predict_interval(X)[1], fitted.predict_interval(X, fitted.confidence_level)[1]
        )

    def test_intervals_of_growing_levels_are_nested(self, method, fitted, rows):
        if not method.nested:
            pytest.skip(f"{method.__name__} does not promise it, and says so")
        X, _ = rows
        _, intervals = fitted.predict_interval(X, [0.05, 0.1, 0.3, 0.5, 0.8, 0.9, 0.99])
        assert (intervals[:, 0, 1:] <= intervals[:, 0, :-1]).all()
        assert (intervals[:, 1, 1:] >= intervals[:, 1, :-1]).all()

    def test_the_prediction_lies_inside(self, method, fitted, rows):
        if method in PREDICTION_MAY_LIE_OUTSIDE:
            pytest.skip(PREDICTION_MAY_LIE_OUTSIDE[method])
        y_pred, intervals = fitted.predict_interval(rows[0], LEVELS)
        assert (intervals[:, 0] <= y_pred[:, None]).all()
        assert (y_pred[:, None] <= intervals[:, 1]).all()

    def test_a_row_has_its_interval_whatever_rows_come_with_it(self, fitted, rows):
        X, _ = rows
        alone = fitted.predict_interval(X[7:8], LEVELS)[1]
        np.testing.assert_allclose(alone[0], fitted.predict_interval(X, LEVELS)[1][7], rtol=1e-4, atol=1e-4)

    def test_translation_and_scale_of_y_move_the_interval_along(self, method, fitted, rows):
        X, y = rows
        moved = quick(method).fit(X, 2.0 * y + 8.0)
        for original, result in zip(
            fitted.predict_interval(X, LEVELS), moved.predict_interval(X, LEVELS), strict=True
        ):
            np.testing.assert_allclose(result, 2.0 * original + 8.0, rtol=1e-3, atol=1e-2)

    def test_known_bounds_of_y_clip(self, method, rows):
        X, y = rows
        _, intervals = quick(method, y_range=(-0.2, 0.3)).fit(X, y).predict_interval(X, LEVELS)
        assert intervals.min() >= -0.2
        assert intervals.max() <= 0.3

    def test_several_targets(self, method, rows):
        X, y = rows
        y_pred, intervals = quick(method).fit(X, np.stack([y, -y, X[:, 1]], 1)).predict_interval(X, LEVELS)
        assert y_pred.shape == (60, 3)
        assert intervals.shape == (60, 2, 2, 3)
        assert (intervals[:, 0] <= intervals[:, 1]).all()

    def test_can_be_fitted_again_on_other_columns(self, method, rows):
        X, y = rows
        regressor = quick(method).fit(X, y).fit(X[:, :1], y)
        assert regressor.n_features_in_ == 1
        assert regressor.predict(X[:, :1]).shape == (60,)

    @pytest.mark.parametrize("use", ["predict", "predict_interval"])
    def test_unfitted_use(self, method, rows, use):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(quick(method), use)(rows[0])

    @pytest.mark.parametrize(
        ("spoil", "message"),
        [
            (lambda X, y: (np.where(X[3, 1] == X, np.nan, X), y), r"X contains 1 NaN .* row 3, column 1"),
            (lambda X, y: (X, np.where(y[5] == y, np.inf, y)), "y contains 1 NaN or infinity .* row 5"),
            (lambda X, y: (X[:-1], y), "inconsistent numbers of rows: X has 59, y has 60"),
            (lambda X, y: (X[:, 0], y), "X must be a 2-d array .* got 1-d"),
            (lambda X, y: (X[:0], y[:0]), "X is empty"),
            (lambda X, y: (X[:1], y[:1]), r"1 sample\(s\)"),
        ],
    )
    def test_bad_rows_in_fit(self, method, rows, spoil, message):
        with pytest.raises(lvd.InputError, match=message):
            quick(method).fit(*spoil(*rows))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            (
                {"confidence_level": 90.0},
                r"confidence_level must lie in \(0, 1\), got 90; did you mean 0.9\?",
            ),
            ({"y_range": (1.0, 0.0)}, r"lowest < highest, got \(1.0, 0.0\)"),
            ({"y_range": 3.0}, r"y_range must be None or a pair \(lowest, highest\), got 3.0"),
            ({"y_range": (0.0, np.inf)}, r"finite numbers, or None for no bound, got \(0.0, inf\)"),
            ({"random_state": -1}, "random_state must be None, a non-negative integer"),
        ],
    )
    def test_bad_parameters(self, method, rows, changes, message):
        with pytest.raises(lvd.InputError, match=message):
            quick(method).set_params(**changes).fit(*rows)

    @pytest.mark.parametrize(
        ("X", "level", "message"),
        [
            (np.ones((3, 5)), 0.8, "X has 5 features, but .* 2 .*; give the same columns"),
            (np.full((3, 2), np.nan), 0.8, "X contains 6 NaN or infinity values"),
            (np.ones((3, 2)), 80.0, r"confidence_level must lie in \(0, 1\), got 80; did you mean 0.8\?"),
            (np.ones((3, 2)), [0.8, 1.0], r"confidence_level must lie in \(0, 1\), got 1"),
            (np.ones((3, 2)), [], "non-empty list"),
        ],
    )
    def test_bad_queries(self, fitted, X, level, message):
        with pytest.raises(lvd.InputError, match=message):
            fitted.predict_interval(X, level)

    @pytest.mark.parametrize(
        "choice",
        [{"guarantee": "randomized"}, {"smoothed": True}, {"groups": [1] * 60}, {"weights": [1.0] * 60}],
    )
    def test_choices_for_local_weights_are_refused_where_there_are_none(self, method, fitted, rows, choice):
        if method.guarantee == "local":
            pytest.skip("has local weights")
        with pytest.raises(
            lvd.InputError, match=rf"{method.__name__} has no local weights and takes no \w+="
        ):
            fitted.predict_interval(rows[0], LEVELS[-1], **choice)

    @pytest.mark.usefixtures("short_training")
    def test_a_given_model_is_left_untouched(self, method, rows):
        if not method.post_hoc:
            pytest.skip("trains its own models")
        X, y = rows
        module = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
        before = {name: value.clone() for name, value in module.state_dict().items()}
        quick(method, estimator=module, prefit=True).fit(X, y)
        assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
        net = clone(NET).fit(X, y)
        expected = net.predict(X)
        regressor = quick(method, estimator=net, prefit=True).fit(X, -y)
        np.testing.assert_array_equal(net.predict(X), expected)
        np.testing.assert_array_equal(regressor.predict(X), expected)

    def test_calibration_is_a_step_of_its_own(self, method, rows):
        if not issubclass(method, ConformalMethod):
            pytest.skip("has no calibration step")
        X, y = rows
        regressor = quick(method, calib_size=None).fit(X[:30], y[:30])
        with pytest.raises(NotFittedError, match=r"no calibration set yet: call conformalize"):
            regressor.predict_interval(X)
        first = regressor.conformalize(X[30:45], y[30:45]).predict_interval(X, LEVELS)[1]
        with pytest.warns(lvd.CalibrationWarning, match="5 of 15 calibration rows equal a training row"):
            regressor.conformalize(X[25:40], y[25:40])
        with pytest.warns(lvd.CalibrationWarning, match="at least 4 calibration rows, and there are 3"):
            regressor.conformalize(X[30:33], y[30:33])
        assert np.isinf(regressor.predict_interval(X, LEVELS[-1])[1]).all()
        again = regressor.conformalize(X[30:45], y[30:45]).predict_interval(X, LEVELS)[1]
        np.testing.assert_array_equal(first, again)
