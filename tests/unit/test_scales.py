"""The scales of :class:`lvd.scores.ScaledResidual`: what they learn, and when a constant is better."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

import lvd
from lvd.models.trees import TreeEnsemble
from lvd.scores import scaled
from lvd.scores.scaled import (
    BoostedScale,
    KernelScale,
    NetworkScale,
    best_weights,
    fold_numbers,
    misfit,
    weighed_by_other_folds,
    worth_scaling,
)


@pytest.fixture(scope="module")
def noisy():
    """Errors that are ten times as large where the first feature is positive."""
    rng = np.random.default_rng(0)
    features = rng.uniform(-1, 1, size=(500, 3))
    size = np.where(features[:, 0] > 0, 1.0, 0.1)
    return features, size * np.abs(rng.normal(size=500)), size


@pytest.mark.parametrize("scale", [KernelScale, BoostedScale, NetworkScale])
class TestEveryScale:
    def test_follows_the_size_of_errors(self, scale, noisy, full_training):
        features, errors, size = noisy
        points = 4.0 * features
        crossed = scale().fit(points, errors, 0)
        assert np.median(crossed[size == 1.0]) > 4 * np.median(crossed[size == 0.1])
        # The true sizes gain 0.54, noise nothing; boosted trees 0.25 with scikit-learn 1.9, 0.14 with 1.6 to 1.8.
        assert misfit(crossed, errors) < misfit(np.ones_like(errors), errors) - 0.1

    def test_is_the_same_in_every_run(self, scale, noisy):
        features, errors, _ = noisy
        first, second = scale(), scale()
        np.testing.assert_array_equal(first.fit(features, errors, 3), second.fit(features, errors, 3))
        np.testing.assert_array_equal(first.predict(features), second.predict(features))

    def test_its_unit_is_that_of_the_errors(self, scale, noisy):
        features, errors, _ = noisy
        small, large = scale(), scale()
        small.fit(features, errors, 0)
        large.fit(features, 1024.0 * errors, 0)
        np.testing.assert_allclose(large.predict(features), 1024.0 * small.predict(features), rtol=1e-4)


@pytest.mark.parametrize("scale", [BoostedScale, NetworkScale])
def test_no_row_is_judged_by_a_model_that_has_seen_it(scale, noisy):
    """Where sizes are noise, a model that had seen its rows would tell them apart; these do not."""
    features, errors, _ = noisy
    shuffled = np.random.default_rng(1).permutation(errors)
    crossed = scale().fit(features, shuffled, 0)
    assert misfit(crossed, shuffled) > misfit(np.ones_like(shuffled), shuffled) - 0.01


def test_far_from_all_rows_the_kernel_scale_is_the_mean_error():
    points, errors = np.zeros((60, 2)), np.linspace(1.0, 3.0, 60)
    scale = KernelScale()
    scale.fit(points, errors, 0)
    np.testing.assert_allclose(scale.predict(np.full((1, 2), 1e6)), errors.mean())


def test_folds_are_equally_large():
    assert np.bincount(fold_numbers(103, 0)).tolist() == [21, 21, 21, 20, 20]


class TestWhetherToScale:
    def test_not_by_noise(self, noisy):
        errors = np.random.default_rng(2).permutation(noisy[1])
        noise = np.exp(0.3 * np.random.default_rng(3).normal(size=len(errors)))
        assert not worth_scaling({"boosted": noise, "kernel": errors + 0.01}, errors)

    def test_by_what_tells_errors_apart(self, noisy):
        _, errors, size = noisy
        assert worth_scaling({"boosted": size, "kernel": np.ones_like(size)}, errors)

    def test_by_a_kernel_alone_where_there_is_no_other(self, noisy):
        _, errors, size = noisy
        assert worth_scaling({"kernel": size}, errors)

    def test_with_few_rows_or_perfect_predictions_it_is_a_constant(self):
        X = np.random.default_rng(0).normal(size=(60, 2))
        network = lvd.NetRegressor(n_batches=100, random_state=0)
        reg = lvd.LVDRegressor(network, conformity_score="scaled", random_state=0).fit(X, X[:, 0])
        assert reg.score_.scales_ == [{}]


class TestWeights:
    def test_a_scale_that_tells_nothing_has_none(self, rng):
        scale = np.exp(rng.normal(size=2000))
        errors, noise = scale * rng.exponential(size=2000), np.exp(rng.normal(size=2000))
        assert best_weights({"kernel": noise, "boosted": scale, "network": noise}, errors) == {"boosted": 1.0}

    def test_the_kernel_has_a_third_at_most_beside_others(self, rng):
        scale = np.exp(rng.normal(size=2000))
        errors, noise = scale * rng.exponential(size=2000), np.exp(rng.normal(size=2000))
        weights = best_weights({"kernel": scale, "boosted": noise, "network": np.ones(2000)}, errors)
        assert weights == pytest.approx({"kernel": 1 / 3, "network": 2 / 3})
        assert best_weights({"kernel": scale}, errors) == {"kernel": 1.0}

    def test_equally_good_ones_share(self, rng):
        parts = np.exp(rng.normal(size=(2, 5000)))
        errors = np.sqrt(parts.prod(axis=0)) * rng.exponential(size=5000)
        assert best_weights({"boosted": parts[0], "network": parts[1]}, errors) == {
            "boosted": 0.5,
            "network": 0.5,
        }


def test_unknown_scales_are_refused():
    score = lvd.scores.ScaledResidual(scales=("kernel", "forest"))
    with pytest.raises(
        lvd.InputError, match="scales must be one of 'own', 'kernel', 'boosted', 'network', got 'forest'"
    ):
        lvd.LVDRegressor(conformity_score=score).fit(np.zeros((30, 1)), np.zeros(30))


def test_boosted_trees_as_arrays_predict_as_scikit_learn_does():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 4))
    X[rng.random(X.shape) < 0.1] = np.nan
    model = HistGradientBoostingRegressor(max_iter=30, random_state=0).fit(X, np.nansum(X, axis=1))
    fresh = np.concatenate([X, rng.normal(size=(50, 4)) * 10])
    np.testing.assert_array_equal(TreeEnsemble.of(model).predict(fresh), model.predict(fresh))


class TestOfRowsThatCalibrate:
    """With folds that are given, what measures a row has not seen its fold."""

    @staticmethod
    def excess():
        """How much larger scaled errors of new rows are than those of the rows that the networks learned from."""
        ratios = []
        for seed in range(10):
            rng = np.random.default_rng(seed)
            X, errors = rng.uniform(-1, 1, size=(1060, 6)), np.abs(rng.normal(size=1060))
            scale = NetworkScale()
            own = scale.fit(X[:60], errors[:60], seed, fold_numbers(60, seed))
            ratios.append((errors[60:] / scale.predict(X[60:])).mean() / (errors[:60] / own).mean())
        return np.array(ratios)

    def test_networks_do_not_stop_where_their_own_fold_looks_best(self, monkeypatch, full_training):
        blind = self.excess()
        assert blind.mean() < 1.08  # ten draws of 60 rows: within three standard errors of 1
        real = scaled.train_fold_networks
        monkeypatch.setattr(
            scaled, "train_fold_networks", lambda *given, **known: real(*given, **known | {"blind": False})
        )
        assert (self.excess() / blind).mean() > 1.02

    def test_weights_do_not_see_the_fold_they_weigh(self):
        rng = np.random.default_rng(0)
        folds, size, other = np.arange(300) % 5, *np.exp(rng.normal(size=(2, 300)))
        errors = size * rng.exponential(size=300)
        fold = folds == 3
        told = np.where(fold, 100.0 * other, errors)  # that fold alone speaks for the networks
        crossed = {"boosted": size, "network": other}
        own, weights = weighed_by_other_folds(crossed, errors, folds)
        planted, moved = weighed_by_other_folds(crossed, told, folds)
        np.testing.assert_array_equal(planted[fold], own[fold])
        assert moved["network"] > weights.get("network", 0.0)
