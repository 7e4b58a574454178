"""A floor under the kernel: its size, what it promises, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest

import lvd
from lvd.conformal import CalibrationWarning, smallest_floor
from lvd.conformal.oracle import local_weights, weighted_quantile

FAR = [[1e3], [-1e3]]


def plain_kernel(n_columns=1):
    return lvd.MahalanobisKernel.from_components(
        np.eye(n_columns), mean=np.zeros(n_columns), scale=np.ones(n_columns), distance="sum", device="cpu"
    )


def calibrated(rng, floor, m=200, level=0.9, **labels):
    conformal = lvd.LocalConformal(plain_kernel(), kernel_floor=floor, confidence_level=level)
    return conformal.conformalize(rng.normal(size=(m, 1)), rng.gamma(1.0, size=m), **labels)


class TestSmallestFloor:
    def test_by_hand(self):
        assert smallest_floor(0.9, 200) == pytest.approx(0.045)
        assert smallest_floor(0.5, 10) == pytest.approx(0.1)
        assert smallest_floor([0.5, 0.9], 200) == smallest_floor(0.9, 200)

    @pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95, 0.99])
    @pytest.mark.parametrize("m", [100, 101, 137, 1000])
    def test_is_where_infinity_ends(self, level, m):
        floor, scores = smallest_floor(level, m), np.arange(float(m))
        for share, finite in ((1.0, True), (1.0 - 1e-6, False)):
            weights = local_weights(np.array([1e3]), np.zeros((m, 1)), np.ones(m), share * floor)
            assert math.isfinite(weighted_quantile(scores, weights, 1.0, level)) == finite

    def test_refusals(self):
        with pytest.raises(lvd.InputError, match="n_calib must be a positive integer, got 0"):
            smallest_floor(0.9, 0)
        with pytest.raises(lvd.InputError, match=r"confidence_level must lie in \(0, 1\), got 90"):
            smallest_floor(90, 100)


class TestRadius:
    def test_is_that_of_the_raised_kernel(self, rng):
        conformal = calibrated(rng, 0.2)
        rows, scores = (
            part.numpy() for part in (conformal.calibration_.rows.points, conformal.calibration_.scores)
        )
        queries = rng.normal(size=(20, 1))
        weights = [local_weights(query, rows, np.ones(200), 0.2) for query in queries]
        expected = [[weighted_quantile(scores, w, 1.0, level) for level in (0.5, 0.9)] for w in weights]
        np.testing.assert_array_equal(conformal.radius(queries, [0.5, 0.9]), expected)

    def test_auto_makes_all_finite_and_no_lower_floor_does(self, rng):
        auto = calibrated(rng, "auto")
        assert np.isfinite(auto.radius(FAR, 0.9)).all()
        assert np.isinf(auto.radius(FAR, 0.91)).all()

    def test_auto_is_for_the_largest_level(self, rng):
        assert np.isfinite(calibrated(rng, "auto", level=[0.5, 0.95]).radius(FAR, 0.95)).all()

    def test_auto_is_for_each_group_its_own(self, rng):
        groups = np.repeat([0, 1], [150, 50])
        auto = calibrated(rng, "auto", groups=groups)
        floors = [auto.calibration_.parts[group].sorted.floor for group in (0, 1)]
        assert floors == [smallest_floor(0.9, 150), smallest_floor(0.9, 50)]
        assert np.isfinite(auto.radius(FAR, 0.9, groups=[0, 1])).all()

    def test_auto_follows_the_number_of_rows(self, rng):
        grown = calibrated(rng, "auto", m=100)
        grown.update(rng.normal(size=(100, 1)), rng.gamma(1.0, size=100))
        assert grown.calibration_.parts[None].sorted.floor == smallest_floor(0.9, 200)
        assert np.isfinite(grown.forget(50).radius(FAR, 0.9)).all()

    def test_too_few_rows_for_any_floor(self, rng):
        auto = calibrated(rng, "auto", m=5)
        assert auto.calibration_.parts[None].sorted.floor == 1.0
        assert np.isinf(auto.radius(FAR, 0.9)).all()
        assert np.isfinite(auto.radius(FAR, 0.8)).all()

    def test_the_calibrated_guarantee_takes_it(self, rng):
        assert np.isfinite(calibrated(rng, 0.5).radius([[0.0]], guarantee="calibrated")).all()

    def test_a_wider_kernel_is_not_needed_beside_it(self, rng):
        train = rng.normal(size=(300, 1)) * 20
        kernel = lvd.MahalanobisKernel.from_components(
            np.eye(1), mean=[0.0], scale=[1.0], distance="sum", embeddings=train, y=train[:, 0], device="cpu"
        )
        for floor, is_one in ((0.0, False), ("auto", True)):
            conformal = lvd.LocalConformal(kernel, bandwidth="auto", kernel_floor=floor)
            conformal.conformalize(train[:100], np.ones(100))
            assert (conformal.bandwidth_ == 1.0) == is_one

    def test_the_effective_sample_size_counts_it(self, rng):
        conformal = calibrated(rng, 0.3)
        rows = conformal.calibration_.rows.points.numpy()
        weights = local_weights(np.array([0.7]), rows, np.ones(200), 0.3)
        expected = weights.sum() ** 2 / np.square(weights).sum()
        assert conformal.effective_sample_size([[0.7]])[0] == pytest.approx(expected, rel=1e-5)
        assert conformal.effective_sample_size(FAR) == pytest.approx(200.0)


class TestRefusals:
    @pytest.mark.parametrize("floor", [1.0, -0.1, "half", True, math.nan])
    def test_no_floor(self, floor, rng):
        with pytest.raises(lvd.InputError, match=r'kernel_floor must be "auto" or lie in \[0, 1\), got'):
            calibrated(rng, floor)

    def test_randomized(self, rng):
        with pytest.raises(
            lvd.InputError, match="draws from the kernel as a density, and one with a floor is none"
        ):
            calibrated(rng, 0.1, m=900).radius(FAR, guarantee="randomized")

    def test_auto_with_weights(self, rng):
        with pytest.raises(
            lvd.InputError, match='kernel_floor="auto" cannot promise finite radii with weights='
        ):
            calibrated(rng, "auto", weights=np.ones(200))

    def test_a_floor_that_is_too_low_is_told(self, rng):
        with pytest.warns(
            CalibrationWarning, match=r"kernel_floor=0\.01 leaves infinite radii: .* it takes 0\.045 "
        ):
            conformal = calibrated(rng, 0.01)
        (evidence,) = conformal.explain([[50.0]])
        assert evidence.floor_needed == pytest.approx(0.045)
        assert evidence.sentence.endswith("and so would a kernel_floor of 0.045.")

    def test_nothing_is_told_where_no_floor_would_do(self, rng):
        (evidence,) = calibrated(rng, 0.01, m=5).explain([[50.0]])
        assert evidence.floor_needed is None


def test_explain_agrees_with_the_radius(rng):
    conformal, queries = calibrated(rng, 0.2), rng.normal(size=(20, 1)) * 3
    for query, evidence in zip(queries, conformal.explain(queries, 0.8), strict=True):
        assert evidence.radius == conformal.radius([query], 0.8)[0]
        weights = [neighbor.weight for neighbor in evidence.neighbors]
        assert weights == sorted(weights, reverse=True)
    (everyone,) = conformal.explain(queries[:1], n_neighbors=200)
    assert sum(n.weight for n in everyone.neighbors) + everyone.weight_at_infinity == pytest.approx(1.0)


def test_the_regressor_passes_it_on(rng):
    X = rng.normal(size=(300, 2))
    y = X[:, 0] + rng.normal(size=300)
    settings = {"calib_size": 0.5, "kernel": lvd.MahalanobisKernel(2, max_iter=5), "random_state": 0}
    net = lvd.NetRegressor(hidden_sizes=(8,), n_batches=20)
    for sides in ("same", "each", "joint"):
        reg = lvd.LVDRegressor(net, kernel_floor="auto", sides=sides, **settings).fit(X, np.stack([y, -y], 1))
        assert np.isfinite(reg.predict_interval(100.0 * X)[1]).all()
    with pytest.raises(lvd.InputError, match="kernel_floor must be"):
        lvd.LVDRegressor(net, kernel_floor=2, **settings).fit(X, y)
