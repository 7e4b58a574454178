"""Numbers at the edges of their range, and rows that must not feel their neighbours."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from torch import nn

import lvd
from lvd._validation import like
from lvd.engine.oracle import gaussian_weights
from lvd.kernels.mahalanobis import column_moments
from lvd.models.scaling import mean_and_scale

SMALL_NET = lvd.NetRegressor(hidden_sizes=(30, 30), n_batches=60, random_state=0)
REGRESSORS = [
    SMALL_NET,
    lvd.NetRegressor(nn.Sequential(nn.Linear(40, 200), nn.Tanh(), nn.Linear(200, 1)), n_batches=60),
    lvd.LVDRegressor(
        SMALL_NET, kernel=lvd.MahalanobisKernel(max_iter=20), confidence_level=0.5, random_state=0
    ),
    lvd.SplitConformalRegressor(SMALL_NET, random_state=0),
    lvd.MADSplitRegressor(SMALL_NET, random_state=0),
    lvd.ConformalizedQuantileRegressor(SMALL_NET, random_state=0),
    lvd.JackknifePlusRegressor(SMALL_NET, cv=3, random_state=0),
    lvd.MCDropoutRegressor(hidden_sizes=(30,), epochs=3, random_state=0),
    lvd.DeepEnsembleRegressor(hidden_sizes=(30,), epochs=3, random_state=0),
    lvd.PBPRegressor(hidden_sizes=(10,), epochs=2, random_state=0),
    lvd.DiscriminativeJackknifeRegressor(
        lvd.NetRegressor(hidden_sizes=(5,), n_batches=60), damping=1e-2, random_state=0
    ),
]


class TestARowDoesNotFeelItsNeighbours:
    @pytest.mark.parametrize("regressor", REGRESSORS, ids=lambda r: type(r).__name__)
    def test_in_any_batch(self, regressor):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(150, 40))
        regressor.fit(X, X[:, 0] + rng.normal(size=150))

        def ask(rows):
            found = [regressor.predict(rows)[:, None]]
            if hasattr(regressor, "embed"):
                found.append(regressor.embed(rows))
            if hasattr(regressor, "predict_interval"):
                found.append(
                    np.nan_to_num(regressor.predict_interval(rows)[1][..., 0], posinf=9.0, neginf=-9.0)
                )
            return np.concatenate(found, axis=1)

        whole = ask(X)[:40]
        for size in (1, 3, 37):
            parts = np.concatenate([ask(X[i : min(i + size, 40)]) for i in range(0, 40, size)])
            np.testing.assert_allclose(parts, whole, rtol=1e-10, atol=1e-12)

    def test_a_prefit_module_is_left_in_its_own_precision(self):
        module = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)).eval()
        X = np.random.default_rng(0).normal(size=(20, 4))
        net = lvd.NetRegressor(module, prefit=True, device="cpu").fit(X, X[:, 0])
        with torch.no_grad():
            expected = module(torch.as_tensor(X, dtype=torch.float32)).double().numpy()[:, 0]
        np.testing.assert_allclose(net.predict(X), expected, rtol=1e-5, atol=1e-6)
        assert net.predict(X[:1])[0] == pytest.approx(net.predict(X)[0], rel=1e-12)
        assert {p.dtype for p in module.parameters()} == {torch.float32}
        with torch.no_grad():
            module[3].bias += 1.0
        np.testing.assert_allclose(net.predict(X), expected + 1.0, rtol=1e-5, atol=1e-6)

    def test_a_module_that_knows_float32_alone_still_predicts(self):
        class Stubborn(nn.Module):
            def __init__(self):
                super().__init__()
                self.out = nn.Linear(3, 1)

            def forward(self, inputs):
                return self.out(inputs.float())

        X = np.random.default_rng(0).normal(size=(20, 3))
        net = lvd.NetRegressor(Stubborn(), n_batches=5, random_state=0).fit(X, X[:, 0])
        assert net.predict(X).shape == (20,)


FAR = [1e8, 1e10, 1e11, 1e13, 1e15, 1e150, 1e200]


def far_problem(far, *, weighted):
    """A local conformal predictor, its points, weights and values; two calibration rows lie far out."""
    rng = np.random.default_rng(3)
    kernel = lvd.MahalanobisKernel.from_components(
        np.eye(2), mean=np.zeros(2), scale=np.ones(2), distance="sum"
    )
    points, values = rng.normal(size=(80, 2)), rng.normal(size=80)
    points[5] = [far, 1.0]
    points[6] = [far, 0.5]
    weights = rng.uniform(0.5, 2.0, size=80) if weighted else None
    conformal = lvd.LocalConformal(kernel)
    conformal.conformalize(points, rng.exponential(size=80), weights=weights)
    queries = np.concatenate([rng.normal(size=(20, 2)), points[5:7]])
    return conformal, queries, points, np.ones(80) if weights is None else weights, values


class TestRowsFarOut:
    @pytest.mark.parametrize("far", FAR)
    @pytest.mark.parametrize("weighted", [False, True])
    def test_sizes_and_means_are_the_oracles(self, far, weighted):
        conformal, queries, points, weights, values = far_problem(far, weighted=weighted)
        given = np.ones(len(queries)) if weighted else None
        local = np.stack([weights * gaussian_weights(query, points) for query in queries])
        size = local.sum(1) ** 2 / np.square(local).sum(1)
        mean = local @ values / local.sum(1)
        summary = conformal.summary(queries, values=values, weights=given)
        np.testing.assert_allclose(summary.n_effective, size, rtol=2e-5)
        np.testing.assert_allclose(conformal.effective_sample_size(queries), size, rtol=2e-5)
        np.testing.assert_allclose(summary.mean, mean, rtol=2e-5, atol=2e-5)

    @pytest.mark.parametrize("far", FAR[:5])
    def test_kernel_regression_too(self, far):
        points = far_problem(far, weighted=False)[2]
        y = np.random.default_rng(0).normal(size=80)
        kernel = lvd.MahalanobisKernel.from_components(
            np.eye(2), mean=np.zeros(2), scale=np.ones(2), distance="sum", embeddings=points, y=y
        )
        local = np.stack([gaussian_weights(query, points) for query in points])
        expected = (local @ y + y.mean()) / (local.sum(1) + 1.0)
        np.testing.assert_allclose(kernel.predict(points), expected, rtol=2e-5, atol=2e-5)


class TestScales:
    @pytest.mark.parametrize("unit", [1e-300, 1e-40, 1e-13, 1.0, 1e6, 1e154, 1e200])
    def test_mean_and_scale_in_any_unit(self, unit):
        column = np.random.default_rng(0).normal(3.0, 2.0, size=(50, 1))
        mean, scale = mean_and_scale(column * unit)
        np.testing.assert_allclose([mean / unit, scale / unit], [column.mean(0), column.std(0)], rtol=1e-12)

    @pytest.mark.parametrize("value", [0.0, 0.1, -1e-40, 1e200])
    def test_a_constant_column_is_one(self, value):
        mean, scale = mean_and_scale(np.full((100_000, 1), value))
        assert mean == value
        assert scale >= 1.0

    def test_ordinary_columns_keep_their_bits(self):
        array = np.random.default_rng(0).normal(5.0, 3.0, size=(500, 4))
        mean, scale = mean_and_scale(array)
        assert (mean == array.mean(0)).all()
        assert (scale == array.std(0)).all()

    def test_intervals_follow_the_unit_of_targets_and_inputs(self):
        rng = np.random.default_rng(0)
        X = rng.uniform(-1, 1, size=(300, 2))
        y = X[:, 0] + 0.1 * rng.normal(size=300)
        net = lvd.NetRegressor(hidden_sizes=(20,), n_batches=100, device="cpu")
        kernel = lvd.MahalanobisKernel(3, max_iter=20, device="cpu")
        reg = lvd.LVDRegressor(net, kernel=kernel, confidence_level=0.5, random_state=0)

        def widths(y, X):
            ends = reg.fit(X, y).predict_interval(X)[1][:, :, 0]
            return np.median(ends[:, 1] - ends[:, 0])

        plain = widths(y, X)
        for unit in (1e-30, 1e-13, 1e30):
            assert widths(y * unit, X) / unit == pytest.approx(plain, rel=0.2)
            assert widths(y, X * unit) == pytest.approx(plain, rel=0.2)

    def test_boosted_trees_of_a_target_near_1_have_embeddings(self):
        X = np.random.default_rng(0).uniform(size=(400, 3))
        y = 0.95 + 0.05 * X[:, 0] * X[:, 1]
        reg = lvd.LVDRegressor(
            HistGradientBoostingRegressor(max_iter=60), confidence_level=0.5, random_state=0
        )
        reg.fit(X, y)
        assert reg.kernels_[0].kept_.mean() > 0.8

    def test_columns_of_other_units_are_all_kept(self):
        rng = np.random.default_rng(0)
        embeddings = rng.normal(size=(100, 4)) * [1e9, 1.0, 1e-9, 0.0] + [0.0, 1e9, 0.0, 0.1]
        kernel = lvd.MahalanobisKernel(2, max_iter=5, random_state=0)
        assert kernel.fit(embeddings, embeddings[:, 0]).kept_.tolist() == [True, True, True, False]

    @pytest.mark.parametrize("unit", [1e-300, 1e-40, 1.0, 1e200])
    def test_tensors_have_the_moments_of_arrays(self, unit):
        rows = np.random.default_rng(0).normal(3.0, 2.0, size=(50, 3)) * unit * [1.0, 5.0, 0.0]
        for by_torch, by_numpy in zip(
            column_moments(torch.as_tensor(rows), 2.0**-52), column_moments(rows, 2.0**-52), strict=True
        ):
            np.testing.assert_allclose(by_torch, by_numpy, rtol=1e-12)

    def test_float32_rounding_is_no_dimension(self):
        rng = np.random.default_rng(0)
        embeddings = rng.normal(size=(100, 2)).astype(np.float32)
        embeddings[:, 1] = np.where(
            rng.random(100) < 0.5, 5.0, np.nextafter(np.float32(5.0), np.float32(6.0))
        )
        for given in (embeddings, torch.as_tensor(embeddings)):
            kernel = lvd.MahalanobisKernel(2, max_iter=5, random_state=0).fit(given, embeddings[:, 0])
            assert kernel.kept_.tolist() == [True, False]

    @pytest.mark.parametrize("unit", [1e-12, 1e25])
    def test_the_metric_is_learned_in_any_unit_of_y(self, unit):
        embeddings = np.random.default_rng(0).normal(size=(200, 5))
        y = embeddings[:, 0]
        fits = [
            lvd.MahalanobisKernel(2, max_iter=200, random_state=0).fit(embeddings, y * u) for u in (1, unit)
        ]
        np.testing.assert_allclose(fits[1].components_, fits[0].components_, rtol=0.05, atol=0.05)
        assert min(fits[1].loss_curve_) / unit**2 == pytest.approx(min(fits[0].loss_curve_), rel=0.05)


class TestDraws:
    @pytest.fixture
    def rows(self):
        rng = np.random.default_rng(0)
        kernel = lvd.MahalanobisKernel(2, max_iter=30, random_state=0)
        embeddings, scores = rng.normal(size=(300, 3)) * 3.0, rng.exponential(size=300)
        return kernel.fit(embeddings, embeddings[:, 0]), embeddings, scores

    def test_equal_rows_share_their_draw_unless_they_have_keys(self, rows):
        kernel, embeddings, scores = rows
        conformal = lvd.LocalConformal(kernel, bandwidth=3.0).conformalize(embeddings, scores)
        same = np.repeat(embeddings[:1], 50, axis=0)
        assert len(np.unique(conformal.radius(same, guarantee="randomized"))) == 1
        keyed = conformal.radius(same, guarantee="randomized", row_keys=np.arange(50))
        assert len(np.unique(keyed)) > 5


class TestRoundingOutwards:
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_a_radius_is_never_rounded_down(self, dtype):
        rng = np.random.default_rng(0)
        kernel = lvd.MahalanobisKernel.from_components([[0.0]], mean=[0.0], scale=[1.0], device="cpu")
        scores = rng.normal(size=99) * 1e-9
        conformal = lvd.LocalConformal(kernel).conformalize(np.zeros((99, 1)), scores)
        levels = np.linspace(0.05, 0.95, 40)
        given = torch.zeros(1, 1, dtype=dtype)
        exact = conformal.radius(np.zeros((1, 1)), levels)
        for found in (conformal.radius(given, levels), conformal.summary(given, levels).radius):
            assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
            assert (found.double().numpy() >= exact).all()
            np.testing.assert_allclose(found, exact, rtol=3e-7)
        ends, exact_ends = conformal.interval(given, levels), conformal.interval(np.zeros((1, 1)), levels)
        assert (ends[:, 0].double().numpy() <= exact_ends[:, 0]).all()
        assert (ends[:, 1].double().numpy() >= exact_ends[:, 1]).all()

    @pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
    def test_nor_are_the_ends_of_an_interval_rounded_inwards(self, dtype):
        rng = np.random.default_rng(0)
        X = torch.as_tensor(rng.normal(size=(200, 2)), dtype=dtype)
        reg = lvd.LVDRegressor(SMALL_NET, random_state=0).fit(X, 1e5 + rng.normal(size=200))
        for ask in (reg.predict_interval, lambda X: reg.predict_with_evidence(X)[:2]):
            (_, exact), (_, found) = ask(X.double().numpy()), ask(X)
            assert found.dtype == torch.float32
            assert (found[:, 0].double().numpy() <= exact[:, 0]).all()
            assert (found[:, 1].double().numpy() >= exact[:, 1]).all()

    def test_infinity_stays(self):
        given = np.array([np.inf, -np.inf, 1e300, -1e300])
        rounded = like(given, torch.zeros(1), upwards=True)
        assert rounded.tolist() == [np.inf, -np.inf, np.inf, -torch.finfo(torch.float32).max]


class TestMessages:
    @pytest.fixture
    def rows(self):
        X = np.random.default_rng(0).normal(size=(80, 2))
        return X, X[:, 0]

    @pytest.mark.parametrize(
        "regressor",
        [lvd.SplitConformalRegressor(), lvd.MADSplitRegressor(), lvd.ConformalizedQuantileRegressor()],
    )
    @pytest.mark.parametrize(
        "given", [{"groups": np.zeros(80)}, {"max_weight": 2.0}], ids=["groups", "max_weight"]
    )
    def test_labels_that_are_not_taken_are_refused_before_training(self, regressor, rows, given):
        name, told = min(given), type(regressor).__name__
        message = f"{told} gives all .* takes no {name}=; leave it out, or use LVDRegressor"
        with pytest.raises(lvd.InputError, match=message):
            regressor.fit(*rows, **given)
        with pytest.raises(NotFittedError):
            regressor.predict(rows[0])

    def test_a_largest_weight_is_for_calibration_rows(self, rows):
        with pytest.raises(lvd.InputError, match=r"calib_size=None.*max_weight= would go unused"):
            lvd.LVDRegressor(calib_size=None).fit(*rows, max_weight=2.0)

    def test_an_empty_set_is_not_to_be_sorted(self):
        with pytest.raises(lvd.InputError, match=r"both ends at the prediction.* width 0") as raised:
            lvd.metrics.marginal_coverage_rate([0.0], [[1.0, -1.0]])
        assert "sort" not in str(raised.value)
