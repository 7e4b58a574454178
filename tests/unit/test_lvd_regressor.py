"""LVDRegressor: the stages together, as a scikit-learn estimator, and its answers to bad input."""

from __future__ import annotations

import copy
import itertools
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import lvd
from lvd.scores import EvaluatedRows

VARIANTS = list(itertools.product([False, True], [True, False], ["absolute", "normalized"]))


def quick(**changes):
    settings = {
        "estimator": lvd.NetRegressor(n_batches=30, hidden_sizes=(12,), device="cpu"),
        "kernel": lvd.MahalanobisKernel(3, max_iter=15, device="cpu"),
        "conformity_score": "absolute",
        "device": "cpu",
        "random_state": 0,
    }
    return lvd.LVDRegressor(**settings | changes)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(240, 3))
    return X, X[:, 0] + np.abs(X[:, 1]) * rng.normal(size=240)


@pytest.fixture(scope="module")
def fitted(data):
    X, y = data
    return quick(calib_size=None).fit(X[:120], y[:120]).conformalize(X[120:], y[120:])


class TestStages:
    @pytest.mark.parametrize(("regression", "smoothness", "score"), VARIANTS)
    def test_the_eight_variants(self, data, regression, smoothness, score):
        """The predictor is the network or the regression by its kernel; see section 4.1 of the paper."""
        X, y = (part[:100] for part in data)
        kernel = lvd.MahalanobisKernel(3, smoothness=smoothness, max_iter=15, device="cpu")
        network = quick().estimator
        estimator = lvd.KernelRegressor(network, kernel=kernel) if regression else network
        reg = quick(estimator=estimator, kernel=kernel, conformity_score=score)
        y_pred, intervals = reg.fit(X, y).predict_interval(X, [0.5, 0.9])
        assert (y_pred.shape, intervals.shape) == ((100,), (100, 2, 2))
        assert (intervals[:, 0] <= y_pred[:, None]).all()
        assert (y_pred[:, None] <= intervals[:, 1]).all()
        assert (intervals[:, 0, 1] <= intervals[:, 0, 0]).all()
        np.testing.assert_array_equal(reg.predict(X), y_pred)
        assert [kernel.smoothness for kernel in reg.kernels_] == [smoothness]

    def test_the_stages_by_hand(self, data):
        X, y = data
        fitted = quick(preset="paper", calib_size=None).fit(X[:120], y[:120]).conformalize(X[120:], y[120:])
        y_calib = fitted.predict(X[120:])
        conformal = lvd.LocalConformal(fitted.kernels_[0]).conformalize(
            fitted.embed(X[120:]), np.abs(y[120:] - y_calib)
        )
        radius = conformal.radius(fitted.embed(X[:9]), [0.3, 0.8])
        y_pred, intervals = fitted.predict_interval(X[:9], [0.3, 0.8])
        np.testing.assert_array_equal(intervals[:, 1], y_pred[:, None] + radius)
        np.testing.assert_array_equal(intervals[:, 0], y_pred[:, None] - radius)

    def test_normalized_scores_by_hand(self, data):
        X, y = data
        reg = (
            quick(conformity_score=lvd.scores.NormalizedResidual(errors="in_sample"), calib_size=None)
            .fit(X[:120], y[:120])
            .conformalize(X[120:], y[120:])
        )
        absolute = quick(calib_size=None).fit(X[:120], y[:120])
        unit = 1e-5 + np.abs(
            lvd.NetRegressor(n_batches=30, hidden_sizes=(12,), device="cpu", random_state=0)
            .fit(X[:120], np.abs(y[:120] - absolute.predict(X[:120])))
            .predict(X)
        )
        conformal = lvd.LocalConformal(absolute.kernels_[0]).conformalize(
            absolute.embed(X[120:]), np.abs(y[120:] - absolute.predict(X[120:])) / unit[120:]
        )
        y_pred, intervals = reg.predict_interval(X[:9], 0.7)
        radius = conformal.radius(absolute.embed(X[:9]), 0.7) * unit[:9]
        np.testing.assert_allclose(intervals[:, 1, 0], y_pred + radius, rtol=1e-12)

    def test_the_set_aside_share_calibrates(self, data):
        X, y = data
        assert quick().fit(X, y).n_calib_ == 60
        assert quick(calib_size=0.5).fit(X, y).n_calib_ == 120

    def test_without_a_share_conformalize_is_required(self, data):
        X, y = data
        reg = quick(calib_size=None).fit(X[:120], y[:120])
        assert reg.predict(X).shape == (240,)
        with pytest.raises(NotFittedError, match=re.escape("call conformalize(X_calib, y_calib)")):
            reg.predict_interval(X)
        reg.conformalize(X[120:], y[120:])
        assert reg.predict_interval(X)[1].shape == (240, 2, 1)

    def test_conformalize_replaces_the_former_calibration(self, data):
        X, y = data
        twice = quick(calib_size=None).fit(X[:120], y[:120])
        twice.conformalize(X[120:180], 5.0 * y[120:180]).conformalize(X[180:], y[180:])
        once = quick(calib_size=None).fit(X[:120], y[:120]).conformalize(X[180:], y[180:])
        np.testing.assert_array_equal(twice.predict_interval(X)[1], once.predict_interval(X)[1])
        assert twice.n_calib_ == 60

    def test_a_new_fit_forgets_the_calibration(self, data):
        X, y = data
        reg = quick().fit(X, y).set_params(calib_size=None).fit(X, y)
        with pytest.raises(NotFittedError, match="no calibration set yet"):
            reg.predict_interval(X)

    def test_several_targets(self, data):
        X, y = data
        both = np.stack([y, -2.0 * y], axis=1)
        reg = quick(conformity_score="normalized").fit(X, both)
        y_pred, intervals = reg.predict_interval(X[:7], [0.5, 0.8, 0.9])
        assert (y_pred.shape, intervals.shape, len(reg.kernels_)) == ((7, 2), (7, 2, 3, 2), 2)
        assert reg.predict(X[:7]).shape == (7, 2)

    def test_a_target_column_gives_columns(self, data):
        X, y = data
        y_pred, intervals = quick().fit(X, y[:, None]).predict_interval(X[:4])
        assert (y_pred.shape, intervals.shape) == ((4, 1), (4, 2, 1, 1))

    def test_known_bounds_clip(self, data):
        X, y = data
        free = quick().fit(X, y).predict_interval(X, 0.9)[1]
        held = quick(y_range=(-0.5, 0.75)).fit(X, y).predict_interval(X, 0.9)[1]
        np.testing.assert_array_equal(held, np.clip(free, -0.5, 0.75))
        below = quick(y_range=(None, 0.75)).fit(X, y).predict_interval(X, 0.9)[1]
        np.testing.assert_array_equal(below, np.minimum(free, 0.75))

    def test_the_second_model_may_be_another(self, data):
        X, y = data
        reg = quick(conformity_score=lvd.scores.NormalizedResidual(RandomForestRegressor(5))).fit(X, y)
        assert isinstance(reg.score_.error_model_.model.fitted_, RandomForestRegressor)
        assert np.isfinite(reg.predict_interval(X, 0.5)[1]).any()

    @pytest.mark.parametrize("estimator", ["pair", "module", "network"])
    def test_the_error_of_a_trained_model_is_learned_on_its_embeddings(self, data, estimator):
        X, y = data
        module = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1))
        given = {
            "pair": {"estimator": (lambda rows: rows[:, 0], lambda rows: rows)},
            "module": {"estimator": module, "prefit": True},
            "network": {"estimator": lvd.NetRegressor(module, prefit=True, device="cpu")},
        }[estimator]
        reg = quick(conformity_score="normalized", **given).fit(X, y)
        assert reg.score_.error_model_.on_embeddings
        spread = np.abs(y - reg.predict(X)).mean()
        predicted = reg.score_.error_model_.predict(EvaluatedRows(X, reg.model_.evaluate(X)))
        assert predicted.mean() == pytest.approx(spread, rel=0.3)

    def test_the_second_module_knows_the_named_layer(self, data):
        X, y = data
        module = nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 4, 3), nn.Flatten(), nn.Sigmoid(), Sum())
        reg = quick(estimator=(module, "4"), conformity_score="normalized").fit(X, y)
        assert reg.embed(X).shape == (240, 4)


class TestEvidence:
    @pytest.mark.parametrize("guarantee", ["local", "randomized", "calibrated"])
    @pytest.mark.parametrize("score", ["absolute", "signed"])
    def test_is_that_of_the_intervals_from_one_pass(self, data, monkeypatch, guarantee, score):
        X, y = data
        halves = np.where(X[:, 0] > 0, "right", "left")
        reg = quick(conformity_score=score, y_range=(-1.0, None)).fit(
            X, np.stack([y, -y], axis=1), groups=halves
        )
        choices = {"groups": halves[:30], "guarantee": guarantee}
        y_pred, intervals = reg.predict_interval(X[:30], [0.5, 0.8], **choices)
        embeddings, calls, evaluate = reg.embed(X[:30]), [], reg.model_.evaluate
        monkeypatch.setattr(reg.model_, "evaluate", lambda X: (calls.append(len(X)), evaluate(X))[1])
        predicted = reg.predict_with_evidence(X[:30], [0.5, 0.8], **choices)
        assert calls == [30]
        np.testing.assert_array_equal(predicted.y_pred, y_pred)
        np.testing.assert_array_equal(predicted.intervals, intervals)
        np.testing.assert_array_equal(predicted.embeddings, embeddings)
        for target, calibrator in enumerate(reg.calibrators_):
            sizes = calibrator.effective_sample_size(embeddings, groups=halves[:30])
            np.testing.assert_array_equal(predicted.n_effective[:, target], sizes)

    def test_of_one_target(self, data, fitted):
        X = torch.tensor(data[0][:5], dtype=torch.float32)
        predicted = fitted.predict_with_evidence(X)
        assert [tuple(part.shape) for part in predicted[:5]] == [(5,), (5, 2, 1), (5,), (5, 12), (5,)]
        assert all(part.dtype == torch.float32 for part in predicted[:4])
        assert predicted.known.dtype == bool
        assert predicted.regions == ()

    def test_needs_a_calibration_set(self, data):
        X, y = data
        with pytest.raises(NotFittedError, match="no calibration set yet"):
            quick(calib_size=None).fit(X, y).predict_with_evidence(X)


class Sum(nn.Module):
    def forward(self, x):
        return x.sum(1)


class TestPrefit:
    def test_a_module_is_left_untouched(self, data):
        X, y = data
        module = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1)).train()
        before = copy.deepcopy(module.state_dict())
        reg = quick(estimator=module, prefit=True, calib_size=None).fit(X[:120], y[:120])
        reg.conformalize(X[120:], y[120:]).predict_interval(X)
        assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
        assert module.training
        assert reg.embed(X).shape == (240, 6)

    def test_a_bare_linear_layer_embeds_its_inputs(self, data):
        X, y = data
        reg = quick(estimator=nn.Linear(3, 1), prefit=True).fit(X, y)
        np.testing.assert_allclose(reg.embed(X), X, rtol=1e-6)

    def test_a_layer_may_be_named(self, data):
        X, y = data
        module = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 1))
        reg = quick(estimator=(module, "2"), prefit=True).fit(X, y)
        assert reg.embed(X).shape == (240, 6)

    def test_a_network_is_not_trained_again(self, data):
        X, y = data
        network = lvd.NetRegressor(n_batches=30, device="cpu", random_state=5).fit(X[:80], y[:80])
        expected = network.predict(X)
        reg = quick(estimator=network, prefit=True).fit(X[80:], -y[80:])
        np.testing.assert_array_equal(reg.predict(X), expected)


class TestArrays:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_torch_in_torch_out(self, data, dtype):
        X, y = (torch.tensor(array, dtype=dtype) for array in data)
        reg = quick().fit(X, y)
        y_pred, intervals = reg.predict_interval(X[:5], [0.5, 0.9])
        for result in (y_pred, intervals, reg.predict(X[:5]), reg.embed(X[:5])):
            assert isinstance(result, torch.Tensor)
            assert (result.dtype, result.device) == (dtype, X.device)
        _, expected = reg.predict_interval(X[:5].numpy(), [0.5, 0.9])
        np.testing.assert_allclose(intervals.numpy(), expected, rtol=1e-5)

    def test_float32_arrays(self, data):
        X, y = (array.astype(np.float32) for array in data)
        assert quick().fit(X, y).predict_interval(X)[1].shape == (240, 2, 1)

    def test_frames(self, data):
        X, y = data
        frame = pd.DataFrame(X, columns=["a", "b", "c"])
        reg = quick().fit(frame, pd.Series(y))
        np.testing.assert_array_equal(
            reg.predict_interval(frame)[1], quick().fit(X, y).predict_interval(X)[1]
        )
        assert reg.feature_names_in_.tolist() == ["a", "b", "c"]
        with pytest.raises(ValueError, match="feature names should match"):
            reg.predict(frame[["b", "a", "c"]])
        with pytest.warns(UserWarning, match="X does not have valid feature names"):
            reg.predict(X)

    def test_column_names_survive_saving(self, data, tmp_path):
        X, y = data
        frame = pd.DataFrame(X, columns=["a", "b", "c"])
        reg = quick().fit(frame, y)
        reg.save(tmp_path / "model")
        loaded = lvd.load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.predict_interval(frame)[1], reg.predict_interval(frame)[1])
        with pytest.raises(ValueError, match="feature names should match"):
            loaded.predict(frame[["b", "a", "c"]])

    def test_lists(self, data):
        X, y = data
        assert quick().fit(X.tolist(), y.tolist()).predict_interval(X.tolist())[0].shape == (240,)

    def test_images(self, rng):
        images = rng.normal(size=(60, 1, 5, 5))
        module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 4), nn.Linear(4, 1))
        reg = quick(estimator=module, calib_size=None).fit(images[:30], images[:30].mean((1, 2, 3)))
        reg.conformalize(images[30:], images[30:].mean((1, 2, 3)))
        assert reg.predict_interval(images)[1].shape == (60, 2, 1)
        with pytest.warns(lvd.CalibrationWarning, match="10 of 40 calibration rows"):
            reg.conformalize(images[20:], images[20:].mean((1, 2, 3)))

    def test_the_same_seed_gives_the_same_bits(self, data):
        X, y = data
        first, second, other = (
            quick(random_state=seed, conformity_score="normalized").fit(X, y).predict_interval(X)[1]
            for seed in (3, 3, 4)
        )
        np.testing.assert_array_equal(first, second)
        assert (first != other).any()

    def test_a_row_does_not_feel_its_neighbours(self, data, fitted):
        X, _ = data
        together = fitted.predict_interval(X)[1]
        apart = np.concatenate([fitted.predict_interval(row[None])[1] for row in X[:10]])
        np.testing.assert_allclose(apart, together[:10], rtol=1e-5)


class TestScikitLearn:
    def test_clone_and_parameters(self):
        def embed(rows):
            return rows

        score = lvd.scores.NormalizedResidual(Ridge())
        reg = quick(estimator=(Ridge(), embed), conformity_score=score, y_range=(0.0, None))
        copied = clone(reg)
        assert copied.get_params()["estimator"][1] is embed
        assert reg.get_params(deep=False).keys() == copied.get_params(deep=False).keys()
        assert copied.get_params()["kernel__max_iter"] == 15
        copied.set_params(estimator=None, kernel__max_iter=7, conformity_score__error_estimator=None)
        assert (copied.estimator, copied.kernel.max_iter) == (None, 7)
        assert (copied.conformity_score.error_estimator, type(score.error_estimator)) == (None, Ridge)
        assert "conformity_score=NormalizedResidual(error_estimator=Ridge())" in repr(reg)

    def test_a_function_embeds(self, data):
        X, y = data
        reg = quick(estimator=(Ridge(), lambda rows: rows[:, :2])).fit(X, y)
        np.testing.assert_array_equal(reg.embed(X), X[:, :2])
        assert reg.score(X, y) == pytest.approx(1.0 - np.mean((y - reg.predict(X)) ** 2) / np.var(y))

    def test_pickle(self, data, fitted):
        X, _ = data
        copied = pickle.loads(pickle.dumps(fitted))
        np.testing.assert_array_equal(copied.predict_interval(X)[1], fitted.predict_interval(X)[1])

    def test_pipeline(self, data):
        X, y = data
        pipeline = make_pipeline(StandardScaler(), quick()).fit(X, y)
        assert pipeline.predict(X).shape == (240,)
        assert pipeline.score(X, y) > 0.0

    def test_grid_search(self, data):
        X, y = data
        grid = {"conformity_score": ["absolute", "signed"], "kernel__n_components": [2]}
        search = GridSearchCV(quick(), grid, cv=2, error_score="raise").fit(X, y)
        assert search.best_estimator_.kernel.n_components == 2
        assert search.best_estimator_.predict_interval(X)[1].shape == (240, 2, 1)

    def test_cross_validation(self, data):
        scores = cross_val_score(quick(), *data, cv=3, error_score="raise")
        assert scores.shape == (3,)
        assert np.isfinite(scores).all()


WEIGHTS_REFUSED = dict.fromkeys(
    (
        *(
            "check_sample_weights_pandas_series",
            "check_sample_weights_not_an_array",
            "check_sample_weights_list",
        ),
        *("check_sample_weights_shape", "check_sample_weights_not_overwritten"),
        "check_all_zero_sample_weights_error",
        "check_sample_weight_equivalence_on_dense_data",
        "check_sample_weight_equivalence_on_sparse_data",
    ),
    "sample_weight is passed on to estimators that take it; this one's network does not",
)


@parametrize_with_checks(
    [
        lvd.LVDRegressor(
            lvd.NetRegressor(n_batches=20, device="cpu"),
            kernel=lvd.MahalanobisKernel(3, max_iter=5, device="cpu"),
            device="cpu",
            random_state=0,
        ),
        lvd.NetRegressor(n_batches=20, device="cpu", random_state=0),
    ],
    expected_failed_checks=lambda estimator: (
        {"check_dtype_object": "bad input raises InputError, a ValueError; the check wants a TypeError"}
        | (WEIGHTS_REFUSED if isinstance(estimator, lvd.LVDRegressor) else {})
    ),
)
@pytest.mark.filterwarnings("ignore::lvd.CalibrationWarning")
@pytest.mark.usefixtures("unchecked_types")
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


class TestWarnings:
    def test_calibration_rows_of_the_training_set(self, data):
        X, y = data
        reg = quick(calib_size=None).fit(X[:120], y[:120])
        message = r"20 of 140 calibration rows equal a training row\. If they are the same .* look alike"
        with pytest.warns(lvd.SharedRowsWarning, match=message):
            reg.conformalize(X[100:], y[100:])

    @pytest.mark.parametrize(("level", "needed"), [(0.5, 1), (0.9, 9), (0.95, 19), (0.99, 99)])
    def test_too_few_calibration_rows(self, data, level, needed):
        X, y = data
        reg = quick(calib_size=None, confidence_level=level).fit(X[:120], y[:120])
        reg.conformalize(X[120 : 120 + needed], y[120 : 120 + needed])
        if needed == 1:
            return
        message = (
            f"every interval at confidence_level={level:g} is infinite: a finite one needs at least {needed} "
        )
        with pytest.warns(
            lvd.CalibrationWarning, match=f"{message}calibration rows, and there are {needed - 1}"
        ):
            reg.conformalize(X[120 : 119 + needed], y[120 : 119 + needed])
        assert np.isinf(reg.predict_interval(X)[1]).all()

    def test_in_fit_too(self, data):
        X, y = data
        with pytest.warns(lvd.CalibrationWarning, match="at least 9 calibration rows, and there are 5"):
            quick().fit(X[:20], y[:20])


def spoiled(array, *index, value=np.nan):
    array = array.copy()
    array[index] = value
    return array


class TestBadInput:
    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_not_finite(self, data, fitted, value):
        X, y = data
        bad_X, bad_y = spoiled(X, [3, 5], [2, 0], value=value), spoiled(y, 7, value=value)
        in_X = r"X contains 2 NaN or infinity values \(first at row 3, 5, column 2, 0\); remove or impute"
        in_y = r"y contains 1 NaN or infinity values \(first at row 7\); remove or impute"
        for call, message in [
            (lambda: quick().fit(bad_X, y), in_X),
            (lambda: quick().fit(X, bad_y), in_y),
            (lambda: fitted.conformalize(bad_X, y), in_X),
            (lambda: fitted.conformalize(X, bad_y), in_y),
            (lambda: fitted.predict(bad_X), in_X),
            (lambda: fitted.predict_interval(bad_X), in_X),
            (lambda: fitted.embed(bad_X), in_X),
        ]:
            with pytest.raises(lvd.InputError, match=message):
                call()

    def test_columns_are_called_by_name(self, data):
        X, y = data
        frame = pd.DataFrame(spoiled(X, 4, 1), columns=["age", "height", "weight"])
        with pytest.raises(lvd.InputError, match="first at row 4, column height"):
            quick().fit(frame, y)

    def test_embeddings_that_are_not_finite(self, data):
        X, y = data
        pair = (lambda rows: rows[:, 0], lambda rows: spoiled(rows, 1, 2))
        with pytest.raises(lvd.InputError, match=r"embed contains 1 NaN .*first at row 1, column 2"):
            quick(estimator=pair).fit(X, y)

    def test_embeddings_of_a_module_that_are_not_finite(self, data):
        class Blind(nn.Module):
            """Predicts zeros; what enters its last layer is infinite."""

            def __init__(self):
                super().__init__()
                self.head = nn.Linear(3, 1)

            def forward(self, x):
                return torch.nan_to_num(self.head(x / 0.0), 0.0, 0.0, 0.0)

        X, y = data
        with pytest.raises(lvd.InputError, match="embeddings contains 720 NaN or infinity values"):
            quick(estimator=Blind(), prefit=True, calib_size=None).fit(X, y)

    def test_empty(self, data, fitted):
        X, y = data
        for call in (
            lambda: quick().fit(X[:0], y[:0]),
            lambda: fitted.conformalize(X[:0], y[:0]),
            lambda: fitted.predict_interval(X[:0]),
        ):
            with pytest.raises(lvd.InputError, match=r"X is empty: 0 sample\(s\)"):
                call()
        with pytest.raises(lvd.InputError, match=r"X is empty: 0 feature\(s\)"):
            quick().fit(X[:, :0], y)
        with pytest.raises(lvd.InputError, match="y is empty"):
            quick().fit(X, y[:0])

    def test_lengths_differ(self, data, fitted):
        X, y = data
        for call in (quick().fit, fitted.conformalize):
            with pytest.raises(lvd.InputError, match="inconsistent numbers of rows: X has 240, y has 239"):
                call(X, y[1:])

    def test_another_number_of_columns(self, data, fitted):
        X, y = data
        message = (
            "X has 2 features, but lvd is expecting 3 features as input, as in fit; give the same columns"
        )
        for call in (
            fitted.predict,
            fitted.predict_interval,
            fitted.embed,
            lambda rows: fitted.conformalize(rows, y),
        ):
            with pytest.raises(lvd.InputError, match=message):
                call(X[:, :2])

    def test_another_number_of_targets(self, data, fitted):
        X, y = data
        with pytest.raises(lvd.InputError, match=r"y has 2 target column\(s\), but had 1 in fit"):
            fitted.conformalize(X, np.stack([y, y], axis=1))

    def test_one_dimension_where_two_are_needed(self, data, fitted):
        X, y = data
        for call in (lambda rows: quick().fit(rows, y), fitted.predict_interval, fitted.embed):
            with pytest.raises(
                lvd.InputError, match=r"X must be a 2-d array .* got 1-d .* \.reshape\(-1, 1\)"
            ):
                call(X[:, 0])

    @pytest.mark.parametrize(
        ("level", "message"),
        [
            (90, r"confidence_level must lie in \(0, 1\), got 90; did you mean 0.9\?"),
            (99.5, r"got 99.5; did you mean 0.995\?"),
            (1.0, r"must lie in \(0, 1\), got 1$"),
            (0.0, r"must lie in \(0, 1\), got 0$"),
            (-0.1, r"must lie in \(0, 1\), got -0.1$"),
            (float("nan"), r"must lie in \(0, 1\), got nan$"),
            ([0.5, 95.0], r"got 95; did you mean 0.95\?"),
            ([], "a number or a non-empty list"),
            ([[0.5]], "a number or a non-empty list"),
            ("high", "must be a number or a list of numbers in"),
        ],
    )
    @pytest.mark.usefixtures("unchecked_types")
    def test_levels(self, data, fitted, level, message):
        X, y = data
        with pytest.raises(lvd.InputError, match=message):
            fitted.predict_interval(X, level)
        with pytest.raises(lvd.InputError, match=message):
            quick().set_params(confidence_level=level).fit(X, y)

    @pytest.mark.parametrize("n_rows", [1, 2])
    def test_fewer_than_two_training_rows(self, data, n_rows):
        X, y = data
        with pytest.raises(lvd.InputError, match=rf"at least 2 training rows .*, got {n_rows} sample\(s\)"):
            quick().fit(X[:n_rows], y[:n_rows])
        with pytest.raises(lvd.InputError, match=r"at least 2 training rows, got 1 sample\(s\)"):
            quick(calib_size=None).fit(X[:1], y[:1])

    def test_constant_embeddings(self, data):
        _, y = data
        with pytest.raises(
            lvd.InputError, match=r"all 12 embedding dimensions are constant .* choose another layer"
        ):
            quick().fit(np.ones((240, 3)), y)

    def test_a_module_with_two_outputs(self, data):
        X, y = data
        with pytest.raises(
            lvd.InputError, match=r"output of shape \(2, 2\) .* must return 1 value\(s\) per row"
        ):
            quick(estimator=nn.Linear(3, 2)).fit(X, y)

        class Pair(nn.Linear):
            def forward(self, x):
                return super().forward(x), x

        with pytest.raises(lvd.InputError, match="the module must return one tensor, got tuple; wrap it"):
            quick(estimator=Pair(3, 1)).fit(X, y)

    def test_no_layer_to_embed(self, data):
        X, y = data
        module = nn.Sequential(nn.Flatten(), Sum())
        with pytest.raises(lvd.InputError, match="name the layer of the embedding, one of: 0, 1"):
            quick(estimator=module).fit(X, y)
        with pytest.raises(lvd.InputError, match="'2' is not in the module; choose one of: 0, 1"):
            quick(estimator=(module, "2")).fit(X, y)

    def test_use_before_fit(self, data):
        X, y = data
        for call in (
            quick().predict,
            quick().predict_interval,
            quick().embed,
            lambda rows: quick().conformalize(rows, y),
        ):
            with pytest.raises(NotFittedError, match="This LVDRegressor instance is not fitted yet"):
                call(X)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                {"conformity_score": "squared"},
                "one of 'absolute', .* or a score of lvd.scores, got 'squared'",
            ),
            ({"bandwidth": 0.0}, "bandwidth must be .*got 0.0"),
            ({"kernel": "rbf"}, "kernel must be a kernel of lvd.kernels or None, got str"),
            ({"calib_size": 1.0}, r"calib_size must be None or lie in \(0, 1\), got 1.0"),
            ({"calib_size": 50}, r"calib_size must be None or lie in \(0, 1\), got 50"),
            ({"y_range": (1.0, 0.0)}, r"lowest < highest, got \(1.0, 0.0\)"),
            ({"random_state": -1}, "random_state must be None, a non-negative integer"),
            ({"estimator": "ridge"}, "estimator must be one of 'net', 'trees', 'paper', got 'ridge'"),
            ({"estimator": None, "prefit": True}, "prefit=True needs a trained estimator"),
            ({"kernel": lvd.MahalanobisKernel(0)}, "n_components must be a positive integer, got 0"),
            ({"estimator": None, "device": "abacus"}, "device must be 'auto' or a torch device"),
        ],
    )
    @pytest.mark.usefixtures("unchecked_types")
    def test_parameters(self, data, change, message):
        with pytest.raises(lvd.InputError, match=message):
            quick().set_params(**change).fit(*data)

    def test_text_sparse_and_complex_inputs(self, data):
        from scipy.sparse import csr_matrix

        X, y = data
        with pytest.raises(lvd.InputError, match="X must hold numbers only"):
            quick().fit(np.full((240, 2), "red"), y)
        with pytest.raises(lvd.InputError, match=r"sparse matrices are not supported: .* X\.toarray\(\)"):
            quick().fit(csr_matrix(X), y)
        with pytest.raises(lvd.InputError, match="Complex data not supported"):
            quick().fit(X + 1j, y)

    def test_no_targets(self, data):
        with pytest.raises(lvd.InputError, match="requires y to be passed, but the target y is None"):
            quick().fit(data[0], None)
