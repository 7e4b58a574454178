"""What users hand in: trained models, estimators that write where they should not, and arrays of odd kinds."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from torch import nn

import lvd
from lvd.methods.conformal import ConformalMethod

SPLIT = lvd.SplitConformalRegressor
RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 3)) + 5.0
Y = X[:, 0] + 0.3 * RNG.normal(size=300)
TRAIN, CALIB, TEST = slice(150), slice(150, 250), slice(250, 300)
CONFORMAL = [method for method in lvd.methods.ALL_METHODS if issubclass(method, ConformalMethod)]
SHORT = lvd.MahalanobisKernel(1, max_iter=3, device="cpu")


class TestPrefit:
    """No row of `fit` calibrates a model that was trained before, perhaps on these very rows."""

    @pytest.mark.parametrize(
        "make", [lambda m: (m, True), lambda m: (m.predict, True), lambda m: (m.predict, False)]
    )
    def test_conformalize_is_required(self, make):
        model, prefit = make(Ridge().fit(X[TRAIN], Y[TRAIN]))
        reg = SPLIT(model, prefit=prefit).fit(X[TRAIN], Y[TRAIN])
        with pytest.raises(NotFittedError, match="has no calibration set yet: call conformalize"):
            reg.predict_interval(X[TEST])
        assert reg.conformalize(X[CALIB], Y[CALIB]).n_calib_ == 100
        assert np.isfinite(reg.predict_interval(X[TEST])[1]).all()

    def test_a_model_that_overfits_is_calibrated_by_other_rows_only(self):
        flexible = make_pipeline(StandardScaler(), PolynomialFeatures(7), Ridge(1e-6)).fit(X[TRAIN], Y[TRAIN])
        reg = SPLIT(flexible, prefit=True).fit(X[TRAIN], Y[TRAIN]).conformalize(X[CALIB], Y[CALIB])
        _, intervals = reg.predict_interval(X[TEST], 0.8)
        assert lvd.metrics.marginal_coverage_rate(Y[TEST], intervals[..., 0]) > 0.65

    @pytest.mark.parametrize("method", CONFORMAL)
    @pytest.mark.parametrize("calib_size", [0.25, 0.5, 1])
    def test_a_share_to_set_aside_is_refused(self, method, calib_size):
        reg = method(lambda rows: rows[:, :2], prefit=True, calib_size=calib_size)
        with pytest.raises(
            lvd.InputError, match=r"calib_size must be left out .*\(prefit\), got .*conformalize"
        ):
            reg.fit(X, Y)

    def test_none_says_the_same_and_clones_are_alike(self):
        for choice in ({}, {"calib_size": None}, {"calib_size": "auto"}):
            reg = clone(SPLIT(first_column, prefit=True, **choice))
            assert not hasattr(reg.fit(X, Y), "n_calib_")
        assert clone(SPLIT()).calib_size == SPLIT().calib_size == "auto"
        assert SPLIT(Ridge()).fit(X, Y).n_calib_ == 75
        assert not hasattr(SPLIT(Ridge(), calib_size=None).fit(X, Y), "n_calib_")

    def test_labels_that_would_go_unused_are_refused(self):
        reg = lvd.LVDRegressor(lambda rows: rows[:, 0], prefit=True)
        with pytest.raises(
            lvd.InputError, match=r"no calibration rows aside \(prefit\), so groups= would go unused"
        ):
            reg.fit(X, Y, groups=["a"] * 300)


class Overwriting(RegressorMixin, BaseEstimator):
    """Writes into everything that it is given."""

    def fit(self, X, y):
        self.mean_ = y.mean()
        X *= 0.0
        y *= 0.0
        return self

    def predict(self, X):
        found = X[:, 0].copy()
        X *= 0.0
        return found


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 1)

    def forward(self, x):
        return self.linear(x.mul_(2.0))


WRITERS = {
    "copy_X": LinearRegression(copy_X=False),
    "scaler": make_pipeline(StandardScaler(copy=False), Ridge()),
    "scaler of a network": make_pipeline(StandardScaler(copy=False), LinearRegression(copy_X=False)),
    "everything": Overwriting(),
}


class TestOverwriting:
    @pytest.mark.parametrize("name", WRITERS)
    @pytest.mark.parametrize("prefit", [False, True])
    def test_estimators_get_copies(self, name, prefit):
        given = np.array(X), np.array(Y)
        estimator = clone(WRITERS[name])
        if prefit:
            estimator.fit(X[TRAIN].copy(), Y[TRAIN].copy())
        reg = lvd.LVDRegressor(
            estimator,
            prefit=prefit,
            calib_size=None,
            preset="paper",
            kernel=SHORT,
            device="cpu",
            random_state=0,
        )
        reg.fit(given[0][TRAIN], given[1][TRAIN]).conformalize(given[0][CALIB], given[1][CALIB])
        for _ in range(2):
            y_pred, intervals = reg.predict_interval(given[0][TEST])
            assert np.abs(y_pred - Y[TEST]).mean() < 0.4
            assert np.isfinite(intervals).all()
        np.testing.assert_array_equal(given[0], X)
        np.testing.assert_array_equal(given[1], Y)

    def test_functions_get_copies(self):
        def predict(rows):
            rows *= 2.0
            return rows[:, 0]

        given = X.copy()
        reg = lvd.LVDRegressor((predict, predict_all), preset="paper", kernel=SHORT, device="cpu")
        reg.fit(given[TRAIN], Y[TRAIN]).conformalize(given[CALIB], Y[CALIB]).predict_interval(given)
        np.testing.assert_array_equal(given, X)

    def test_modules_get_copies(self):
        torch.manual_seed(0)
        module = InPlace()
        expected = module(torch.tensor(X[TEST], dtype=torch.float32)).detach().numpy()[:, 0]
        reg = SPLIT(module, prefit=True, device="cpu").fit(X[TRAIN], Y[TRAIN])
        for _ in range(2):
            np.testing.assert_allclose(reg.predict(X[TEST]), expected, rtol=1e-5)

    @pytest.mark.parametrize("estimator", ["random", "drifting"])
    def test_answers_that_change_are_noticed(self, estimator):
        rng, calls = np.random.default_rng(0), []

        def random(rows):
            return rows[:, 0] + rng.normal(size=len(rows))

        def drifting(rows):
            calls.append(len(rows))
            return rows[:, 0] * len(calls)

        with pytest.warns(
            lvd.CalibrationWarning, match="the same rows differently from call to call, by up to"
        ):
            SPLIT({"random": random, "drifting": drifting}[estimator]).fit(X, Y)


def first_column(rows):
    return rows[:, 0]


def predict_all(rows):
    rows += 1.0
    return rows


class Answering(RegressorMixin, BaseEstimator):
    def __init__(self, answer=None):
        self.answer = answer

    def fit(self, X, y):
        return self

    def predict(self, X):
        return self.answer(X)


class TestAnswers:
    @pytest.mark.parametrize(
        "answer",
        [lambda rows: np.ones(1), lambda rows: np.ones(len(rows) + 1), lambda rows: [1.0] * (len(rows) - 1)],
    )
    @pytest.mark.parametrize("method", [SPLIT, lvd.LVDRegressor, lvd.JackknifePlusRegressor])
    def test_one_prediction_for_each_row(self, method, answer):
        settings = {"cv": 5} if method is lvd.JackknifePlusRegressor else {}
        with pytest.raises(
            lvd.InputError, match=r"prediction must have one row for each row of X, got \d+ for \d+"
        ):
            method(Answering(answer), random_state=0, **settings).fit(X[:60], Y[:60])

    def test_one_embedding_for_each_row(self):
        reg = lvd.LVDRegressor((Ridge(), lambda rows: rows[:1]), random_state=0)
        with pytest.raises(
            lvd.InputError, match=r"embedding must have one row for each row of X, got 1 for 300"
        ):
            reg.fit(X, Y)


class TestScores:
    def test_sided_without_a_kernel(self):
        rows = np.random.default_rng(1).uniform(size=(600, 1))
        y = rows[:, 0] + np.random.default_rng(2).gamma(0.5, size=600)
        reg = lvd.SplitConformalRegressor(Ridge(), conformity_score="sided", random_state=0).fit(
            rows[:400], y[:400]
        )
        y_pred, intervals = reg.predict_interval(rows[400:], 0.9)
        assert 0.8 < lvd.metrics.marginal_coverage_rate(y[400:], intervals) < 0.97
        errors = reg.score_.train_errors_[:, 0]
        ratio = np.sqrt(np.mean(errors.clip(min=0.0) ** 2) / np.mean(errors.clip(max=0.0) ** 2))
        found = (intervals[:, 1, 0] - y_pred) / (y_pred - intervals[:, 0, 0])
        np.testing.assert_allclose(found, ratio, rtol=1e-3)

    @pytest.mark.parametrize("shape", ["box", "ellipsoid"])
    def test_joint_scores_have_names(self, shape):
        reg = lvd.SplitConformalRegressor(Ridge(), conformity_score=shape, random_state=0).fit(
            X, np.stack([Y, -Y], axis=1)
        )
        assert reg.predict_region(X[:2], 0.8).contains(np.stack([Y, -Y], axis=1)[:2]).shape == (2,)
        assert reg.score_.shape == shape
        with pytest.raises(
            lvd.InputError, match="a joint region holds several targets together, and y has one"
        ):
            clone(reg).fit(X, Y)

    @pytest.mark.usefixtures("unchecked_types")
    @pytest.mark.parametrize("given", ["oval", ["box"], None])
    def test_other_names_are_refused(self, given):
        with pytest.raises(lvd.InputError, match=r"must be one of 'absolute', .*'ellipsoid' or a score"):
            lvd.SplitConformalRegressor(Ridge(), conformity_score=given).fit(X, Y)


def quantised():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch is about to give them up
        return torch.quantize_per_tensor(torch.ones(3, 3), 0.1, 0, torch.qint8)


class TestMessages:
    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            ([[1.0, 2.0], [3.0]], "rows must all have the same shape"),
            (
                torch.eye(3).to_sparse(),
                r"sparse tensors are not supported, got sparse_coo; pass tensor.to_dense\(\)",
            ),
            (torch.empty(3, 3, device="meta"), "a tensor on the device 'meta' holds no numbers"),
            (
                quantised(),
                r"quantized tensors are not supported, got qint8; pass tensor.dequantize\(\)",
            ),
        ],
    )
    def test_rows_that_are_no_array_of_numbers(self, rows, message):
        reg = SPLIT(Ridge(), random_state=0).fit(X, Y)
        for call in (lambda: reg.predict(rows), lambda: SPLIT(Ridge()).fit(rows, [1.0, 2.0, 3.0])):
            with pytest.raises(lvd.InputError, match=message) as caught:
                call()
            assert "\n" not in str(caught.value)
        with pytest.raises(lvd.InputError, match=message):
            reg.fit(X[:3], rows)

    @pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float16])
    def test_short_floats_are_numbers(self, dtype):
        rows = torch.tensor([[4.0, 5.5, 6.0], [5.0, 3.5, 4.5]]).to(dtype)
        reg = SPLIT(Ridge(), random_state=0).fit(X, Y)
        given = rows.float().numpy().astype(float)
        np.testing.assert_allclose(np.asarray(reg.predict(rows)), reg.predict(given), rtol=1e-6)

    @pytest.mark.usefixtures("unchecked_types")
    @pytest.mark.parametrize("device", [None, 1.5, "abacus"])
    def test_a_device_that_is_none(self, device):
        with pytest.raises(lvd.InputError, match=r"device must be 'auto' or a torch device .*, got"):
            lvd.NetRegressor(device=device).fit(X, Y)

    @pytest.mark.parametrize("seed", [2**70, 2**32])
    def test_a_seed_that_is_too_large(self, seed):
        with pytest.raises(lvd.InputError, match=r"random_state must be .* integer below 2\*\*32, .*, got"):
            SPLIT(Ridge(), random_state=seed).fit(X, Y)
        assert SPLIT(Ridge(), random_state=2**32 - 1).fit(X, Y).n_calib_ == 75
