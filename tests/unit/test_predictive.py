"""Predictive distributions: quantiles, distribution function, PIT values, CRPS."""

from __future__ import annotations

import math

import numpy as np
import pytest

import lvd
from lvd.engine.oracle import gaussian_weights


def predict(X):
    return X[:, 0]


def embed(X):
    return X


def plain_kernel():
    return lvd.MahalanobisKernel.from_components(
        np.eye(1), mean=np.zeros(1), scale=np.ones(1), distance="sum", device="cpu"
    )


@pytest.fixture
def conformal(rng):
    return lvd.LocalConformal(plain_kernel()).conformalize(rng.normal(size=(60, 1)), rng.normal(size=60))


class TestLocalDistribution:
    def test_cdf_by_hand(self):
        conformal = lvd.LocalConformal(plain_kernel()).conformalize([[0.0], [1.0]], [2.0, 5.0])
        local = conformal.distribution([[0.0]] * 5)
        near, far = 1.0, math.exp(-1.0)
        total = near + far + 1.0
        expected = [0.5, 0.5 + near, 0.5 + near, 0.5 + near + far, 0.5 + near + far]
        np.testing.assert_allclose(
            local.cdf([1.9, 2.0, 4.9, 5.0, 9.0]), np.array(expected) / total, rtol=1e-12
        )
        ends = (
            conformal.distribution([[0.0]]).cdf([0.0], 1.0),
            conformal.distribution([[0.0]]).cdf([0.0], 0.0),
        )
        assert [float(end[0]) for end in ends] == pytest.approx([1.0 / total, 0.0])

    def test_quantiles_and_cdf_are_each_others_inverse(self, conformal):
        queries, q = [[0.3]] * 9, np.linspace(0.1, 0.9, 9)
        scores = np.diag(conformal.distribution(queries).quantile(q)).copy()
        local = conformal.distribution(queries)
        assert (local.cdf(scores) >= q).all()
        assert (local.cdf(scores - 1e-9) < q).all()

    def test_masses_are_the_steps_of_the_cdf(self, conformal):
        local = conformal.distribution([[0.3]])
        places, masses = local.places()[0], local.masses()[0]
        assert masses.sum() == pytest.approx(1.0)
        assert places[0] == -math.inf
        assert places[-1] == math.inf
        np.testing.assert_array_equal(places[1:-1], conformal.calibration_.scores[:, 0].numpy())
        for score in (-1.0, 0.0, 2.0):
            assert local.cdf([score])[0] == pytest.approx(masses[places <= score].sum())

    def test_masses_with_groups_and_ratios(self, rng):
        X, scores, ratios = rng.normal(size=(60, 1)), rng.normal(size=60), rng.gamma(2.0, size=60)
        groups = np.arange(60) % 2
        conformal = lvd.LocalConformal(plain_kernel()).conformalize(X, scores, groups=groups, weights=ratios)
        masses = conformal.distribution([[0.2]], groups=[1], weights=[30.0]).masses()[0]
        weights = np.where(groups == 1, ratios * gaussian_weights(np.array([0.2]), X), 0.0)
        total = 30.0 + weights.sum()
        np.testing.assert_allclose(masses, np.concatenate([[15.0], weights, [15.0]]) / total, rtol=1e-12)

    def test_nothing_is_known_of_an_unseen_group(self, rng):
        conformal = lvd.LocalConformal(plain_kernel()).conformalize(
            [[0.0]] * 3, [1.0, 2.0, 3.0], groups=list("aab")
        )
        local = conformal.distribution([[0.0]], groups=["c"])
        assert local.quantile([0.2, 0.5, 0.8]).tolist() == [[-math.inf, -math.inf, math.inf]]
        assert local.cdf([2.0]).tolist() == [0.5]
        assert local.masses().tolist() == [[0.5, 0.0, 0.0, 0.0, 0.5]]

    def test_refusals(self, conformal):
        with pytest.raises(lvd.InputError, match=r"q must lie in \(0, 1\), got 50; did you mean 0.5\?"):
            conformal.distribution([[0.0]]).quantile(50)
        with pytest.raises(lvd.InputError, match="rows has 1, scores has 2"):
            conformal.distribution([[0.0]]).cdf([0.0, 1.0])


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(600, 1))
    return X, X[:, 0] + (0.2 + np.abs(X[:, 0])) * rng.normal(size=600)


def regressor(rows, n_targets=1, **changes):
    X, y = rows
    kernel = lvd.MahalanobisKernel.from_components(3.0 * np.eye(1), mean=[0.0], scale=[1.0], device="cpu")
    reg = lvd.LVDRegressor(
        (lambda X: X[:, [0] * n_targets], embed),
        kernel=lvd.MahalanobisKernel(1, max_iter=1, device="cpu"),  # a known one takes its place
        preset="paper",
        prefit=True,
        calib_size=None,
        device="cpu",
        random_state=0,
        **changes,
    )
    y = y if n_targets == 1 else np.stack([y] * n_targets, axis=1)
    reg.fit(X[:100], y[:100])
    reg.kernels_ = [kernel._remember(X[:100], y[:100].reshape(100, -1)[:, 0]) for _ in range(n_targets)]
    return reg.conformalize(X[100:], y[100:])


class TestRegressor:
    @pytest.mark.parametrize(
        "changes", [{}, {"conformity_score": "signed"}, {"conformity_score": "normalized"}]
    )
    def test_cdf_of_the_quantiles(self, rows, changes):
        reg, X = regressor(rows, **changes), rows[0][:50]
        for q in (0.2, 0.5, 0.8):
            quantiles = reg.predict_quantiles(X, q)
            assert quantiles.shape == (50,)
            reached = reg.predict_distribution(X).cdf(quantiles + 1e-9)
            assert (reached >= q).all()
            assert (reached < q + 0.1).all()
        assert reg.predict_quantiles(X, [0.2, 0.8]).shape == (50, 2)

    def test_the_distribution_is_that_of_signed_errors_for_either_score(self, rows):
        X, y = rows[0][:30], rows[1][:30]
        same, each = regressor(rows), regressor(rows, conformity_score="signed")
        np.testing.assert_array_equal(
            same.predict_distribution(X).cdf(y), each.predict_distribution(X).cdf(y)
        )
        np.testing.assert_array_equal(same.predict_quantiles(X, 0.3), each.predict_quantiles(X, 0.3))

    def test_several_targets(self, rows):
        X, y = rows[0][:30], np.stack([rows[1]] * 2, axis=1)[:30]
        reg, single = regressor(rows, 2), regressor(rows)
        assert reg.predict_quantiles(X, [0.1, 0.5, 0.9]).shape == (30, 3, 2)
        assert reg.predict_quantiles(X, 0.5).shape == (30, 2)
        alone = single.predict_distribution(X).cdf(y[:, 0])
        np.testing.assert_array_equal(reg.predict_distribution(X).cdf(y), np.stack([alone] * 2, axis=1))
        assert reg.predict_distribution(X).pit(y).shape == (30, 2)
        places, masses = reg.predict_distribution(X).atoms()
        assert places.shape == masses.shape == (30, 502, 2)

    def test_crps_prefers_the_right_distribution(self, rows):
        X, y = rows
        places, masses = regressor(rows).predict_distribution(X[:100]).atoms()
        right = lvd.metrics.crps(y[:100], places, masses, given_finite=True)
        shifted = lvd.metrics.crps(y[:100], places + 1.0, masses, given_finite=True)
        assert right.mean() < 0.6 * shifted.mean()
        assert np.isinf(lvd.metrics.crps(y[:100], places, masses)).all()

    def test_pit_draws_belong_to_the_row_and_the_seed(self, rows):
        reg, (X, y) = regressor(rows), rows
        whole = reg.predict_distribution(X).pit(y, random_state=3)
        some = reg.predict_distribution(X[50:60]).pit(y[50:60], random_state=3)
        np.testing.assert_array_equal(some, whole[50:60])
        assert (reg.predict_distribution(X).pit(y, random_state=4) != whole).any()
        assert np.abs(whole - reg.predict_distribution(X).cdf(y)).max() < 0.1

    def test_the_pit_of_an_unknown_row_is_its_draw(self, rows):
        reg, far = regressor(rows), np.linspace(1e3, 2e3, 200)[:, None]
        pit = reg.predict_distribution(far).pit(np.zeros(200))
        assert pit.min() < 0.1
        assert pit.max() > 0.9
        np.testing.assert_array_equal(reg.predict_distribution(far).cdf(np.zeros(200)), 0.5)

    def test_torch_in_torch_out(self, rows):
        import torch

        X = torch.tensor(rows[0][:5])
        reg = regressor(rows)
        for result in (reg.predict_quantiles(X, 0.5), reg.predict_distribution(X).cdf(X[:, 0])):
            assert isinstance(result, torch.Tensor)

    def test_update_and_forget(self, rows):
        X, y = rows
        grown = regressor((X[:400], y[:400])).update(X[400:], y[400:])
        wanted = regressor(rows).predict_distribution(X[:50]).cdf(y[:50])
        np.testing.assert_array_equal(grown.predict_distribution(X[:50]).cdf(y[:50]), wanted)
        np.testing.assert_array_equal(
            grown.forget(200).predict_distribution(X[:50]).cdf(y[:50]),
            regressor((np.vstack([X[:100], X[400:]]), np.append(y[:100], y[400:])))
            .predict_distribution(X[:50])
            .cdf(y[:50]),
        )
