"""The built-in network, boosted trees, and the choice between them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.preprocessing import StandardScaler

import lvd
from lvd.models.candidates import Candidates, held_out_folds
from lvd.models.torch_modules import forward, new_stack
from lvd.models.validated import (
    count_members,
    default_sizes,
    join,
    ridge,
    start_at_ridge,
)
from lvd.wrap import as_model

pytestmark = pytest.mark.usefixtures("full_training")


@pytest.fixture(scope="module")
def linear():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    return X, X @ [1.0, -2.0, 0.5] + 3.0 + 0.1 * rng.normal(size=120)


@pytest.fixture(scope="module")
def steps():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(400, 3))
    return X, np.sign(X[:, 0]) * np.sign(X[:, 1]) * np.sign(X[:, 2]) + 0.05 * rng.normal(size=400)


def quick_choice(**changes):
    """Only the folds and the choice: no kernel to speak of."""
    kernel = lvd.MahalanobisKernel(2, max_iter=3, device="cpu")
    settings = {"conformity_score": "absolute", "kernel": kernel, "device": "cpu", "random_state": 0}
    return lvd.LVDRegressor(**settings | changes)


class TestRidge:
    def test_weights_and_offset_of_a_linear_target(self):
        X = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
        y = X @ torch.tensor([[1.0], [-2.0], [0.0]]) + 4.0
        np.testing.assert_allclose(ridge(X, y).numpy(), [[1.0, -2.0, 0.0, 4.0]], atol=1e-4)

    def test_strength_is_that_of_scikit_learn(self):
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(40, 10)), rng.normal(size=40)
        X = X - X.mean(0)
        found = ridge(torch.tensor(X), torch.tensor(y[:, None])).numpy()[0]
        other = RidgeCV(np.logspace(-3, 5, 33)).fit(X, y)
        np.testing.assert_allclose(found[:-1], other.coef_, rtol=1e-6, atol=1e-9)
        assert found[-1] == pytest.approx(other.intercept_)

    @pytest.mark.parametrize("hidden", [(), (8,), (16, 12)])
    def test_a_network_can_start_at_it(self, hidden):
        generator = torch.Generator().manual_seed(0)
        weights = torch.tensor([[1.0, -2.0, 0.5], [0.0, 1.0, -1.0]])
        parameters = new_stack(2, [2, *hidden, 2], generator)
        for member in range(2):
            start_at_ridge(parameters, member, weights)
            for name in list(parameters)[-2:]:  # only what carries the linear prediction
                if hidden:
                    parameters[name][member, ..., 4:] *= 0.0 if name.endswith("weight") else 1.0
        X = torch.randn(7, 2, generator=generator)
        expected = X @ weights[:, :2].T + weights[:, 2]
        torch.testing.assert_close(forward(parameters, X.expand(2, -1, -1))[1], expected)

    @pytest.mark.parametrize("hidden", [(), (8,), (16, 12)])
    def test_members_side_by_side_predict_their_mean(self, hidden):
        parameters = new_stack(4, [3, *hidden, 2], torch.Generator().manual_seed(0))
        X = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
        joined = join(parameters)
        torch.testing.assert_close(joined(X), forward(parameters, X.expand(4, -1, -1)).mean(0))


@pytest.mark.parametrize(
    ("sizes", "members", "of_few_rows"),
    [
        ((256, 64), 4, 4),
        ((192,), 4, 8),
        ((100,), 4, 4),
        ((50,), 2, 2),
        ((12,), 1, 1),
        ((256, 30), 2, 2),
        ((), 1, 1),
    ],
)
def test_as_many_members_as_the_widths_allow(sizes, members, of_few_rows):
    assert count_members(sizes, 500) == members
    assert count_members(sizes, 499) == of_few_rows


def test_there_is_room_for_a_regression_of_each_target():
    assert default_sizes(1000, 1) == (256, 64)
    assert default_sizes(1000, 12) == (256, 128)
    assert default_sizes(499, 1) == (192,)


class TestNetwork:
    def test_few_noisy_rows_are_predicted_as_well_as_by_ridge(self):
        X, y = load_diabetes(return_X_y=True)
        train, test = np.arange(265), np.arange(265, 442)
        net = lvd.NetRegressor(device="cpu", random_state=0).fit(X[train], y[train])
        scaler = StandardScaler().fit(X[train])
        linear = RidgeCV(np.logspace(-3, 4, 29)).fit(scaler.transform(X[train]), y[train])
        errors = [y[test] - net.predict(X[test]), y[test] - linear.predict(scaler.transform(X[test]))]
        own, other = (float(np.sqrt(np.mean(error**2))) for error in errors)
        before = lvd.NetRegressor(early_stopping=False, device="cpu", random_state=0).fit(X[train], y[train])
        assert own < 1.05 * other
        assert own < 0.9 * float(np.sqrt(np.mean((y[test] - before.predict(X[test])) ** 2)))

    def test_bends_are_learned(self, monkeypatch):
        monkeypatch.setattr("lvd.models.validated.STAGES", ((1.0, 4),))
        rng = np.random.default_rng(1)
        X = rng.uniform(-1, 1, size=(600, 2))
        net = lvd.NetRegressor(device="cpu", random_state=0).fit(X[:300], X[:300, 0] ** 2)
        assert net.score(X[300:], X[300:, 0] ** 2) > 0.95

    def test_the_same_seed_gives_the_same_bits(self, linear, monkeypatch):
        monkeypatch.setattr("lvd.models.validated.STAGES", ((1.0, 2),))
        first, second, other = (
            lvd.NetRegressor(device="cpu", random_state=seed).fit(*linear).predict(linear[0])
            for seed in (0, 0, 1)
        )
        np.testing.assert_array_equal(first, second)
        assert (first != other).any()

    def test_several_targets_and_a_loss(self, linear, monkeypatch):
        monkeypatch.setattr("lvd.models.validated.STAGES", ((1.0, 2),))
        X, y = linear
        net = lvd.NetRegressor(
            loss=torch.nn.functional.l1_loss, hidden_sizes=(64,), device="cpu", random_state=0
        ).fit(X, np.stack([y, -y], axis=1))
        assert net.embed(X).shape == (120, 64)
        assert net.score(X, np.stack([y, -y], axis=1)) > 0.98

    def test_inputs_far_away_are_pulled_in(self, linear, monkeypatch):
        monkeypatch.setattr("lvd.models.validated.STAGES", ())
        net = lvd.NetRegressor(device="cpu", random_state=0).fit(*linear)
        z = np.array([-1005.0, -6.0, -5.0, 0.3, 5.0, 15.0])
        rows = net.x_mean_ + z[:, None] * net.x_scale_
        expected = [-105.0, -5.1, -5.0, 0.3, 5.0, 6.0]
        np.testing.assert_allclose(net.standardised(rows)[:, 0], expected, rtol=1e-9)

    def test_fewer_than_twenty_rows_are_not_held_out(self, linear, monkeypatch):
        monkeypatch.setattr("lvd.models.regressor.LEAST_BATCHES", 50)
        X, y = linear
        net = lvd.NetRegressor(device="cpu", random_state=0).fit(X[:10], y[:10])
        fixed = lvd.NetRegressor(n_batches=50, device="cpu", random_state=0).fit(X[:10], y[:10])
        np.testing.assert_array_equal(net.predict(X), fixed.predict(X))

    @pytest.mark.parametrize("given", [{"n_batches": 5}, {"epochs": 2}, {"module": torch.nn.Linear(3, 1)}])
    def test_a_length_cannot_be_given_too(self, linear, given):
        with pytest.raises(lvd.InputError, match=f"early_stopping=True is .* without {next(iter(given))}="):
            lvd.NetRegressor(early_stopping=True, **given).fit(*linear)

    def test_divergence_is_told(self, linear):
        X, y = linear
        net = lvd.NetRegressor(scale_inputs=False, scale_target=False, device="cpu", random_state=0)
        with pytest.raises(lvd.InputError, match="training diverged"):
            net.fit(1e30 * X, 1e30 * y)


class TestTrees:
    def test_predicts_as_scikit_learn_does(self, steps):
        X, y = steps
        ours = lvd.TreesRegressor(random_state=0).fit(X, y)
        theirs = HistGradientBoostingRegressor(random_state=0).fit(X, y)
        np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-12)
        np.testing.assert_array_equal(ours.embed(X), np.column_stack([X, ours.predict(X)]))

    def test_several_targets(self, steps):
        X, y = steps
        both = lvd.TreesRegressor(max_iter=5, random_state=0).fit(X, np.stack([y, 2.0 * X[:, 0]], axis=1))
        alone = lvd.TreesRegressor(max_iter=5, random_state=0).fit(X, y)
        np.testing.assert_array_equal(both.predict(X)[:, 0], alone.predict(X))

    def test_saved_and_loaded_to_the_bit(self, steps, tmp_path):
        X, y = steps
        reg = quick_choice(estimator="trees").fit(X, y)
        reg.save(tmp_path / "model")
        loaded = lvd.load(tmp_path / "model")
        assert isinstance(loaded.model_, lvd.TreesRegressor)
        for ours, theirs in zip(reg.predict_interval(X), loaded.predict_interval(X), strict=True):
            np.testing.assert_array_equal(ours, theirs)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"max_iter": 0}, "max_iter must be a positive integer, got 0"),
            ({"learning_rate": -1.0}, "learning_rate must be a positive number, got -1.0"),
        ],
    )
    def test_refused_parameters(self, steps, change, message):
        with pytest.raises(lvd.InputError, match=message):
            lvd.TreesRegressor(**change).fit(*steps)


def built_in(seed=0):
    return Candidates({name: as_model(name, device="cpu", random_state=seed) for name in ("net", "trees")})


class TestChoice:
    @pytest.fixture(autouse=True)
    def short_training(self, monkeypatch):
        monkeypatch.setattr("lvd.models.validated.STAGES", ((1.0, 2),))
        monkeypatch.setattr("lvd.models.validated.MOST_ROUNDS", 4)

    @pytest.mark.parametrize(("data", "better"), [("linear", "net"), ("steps", "trees")])
    def test_the_better_one(self, data, better, request):
        X, y = request.getfixturevalue(data)
        choice = built_in().choose(X, y[:, None], 0)
        assert min(choice.errors, key=choice.errors.__getitem__) == better
        assert type(choice.model).__name__ == {"net": "NetRegressor", "trees": "TreesRegressor"}[better]
        assert np.isfinite(choice.held_out).all()

    def test_many_rows_are_judged_by_some_of_them(self, linear, monkeypatch):
        monkeypatch.setattr("lvd.models.candidates.JUDGED_ROWS", 40)
        X, y = linear
        choice = built_in().choose(X, y[:, None], 0)
        judged = np.concatenate([outside for _, outside in held_out_folds(120, 0)[:2]])
        assert np.isfinite(choice.held_out[judged]).all()
        assert np.isnan(choice.held_out).sum() == 120 - len(judged)

    def test_very_few_rows_are_given_to_the_network(self, linear):
        X, y = linear
        choice = built_in().choose(X[:10], y[:10, None], 0)
        assert (type(choice.model).__name__, choice.errors) == ("NetRegressor", {})

    def test_lvd_takes_it_and_no_fold_is_trained_twice(self, steps, monkeypatch):
        X, y = steps
        fits, fit = [], lvd.TreesRegressor.fit
        monkeypatch.setattr(lvd.TreesRegressor, "fit", lambda *a: (fits.append(len(a[1])), fit(*a))[1])
        reg = quick_choice(calib_size=None).fit(X, y)
        assert reg.choice_.keys() == {"net", "trees"}
        assert isinstance(reg.model_, lvd.TreesRegressor)
        assert sorted(fits) == [320] * 5 + [400]
        alone = quick_choice(estimator="trees", calib_size=None).fit(X, y)
        np.testing.assert_array_equal(reg.kernels_[0].components_, alone.kernels_[0].components_)
        assert not hasattr(alone, "choice_")

    def test_the_paper_keeps_its_network(self, linear, monkeypatch):
        monkeypatch.setattr("lvd.models.regressor.LEAST_BATCHES", 50)
        X, y = linear
        reg = quick_choice(preset="paper", calib_size=None).fit(X, y)
        fixed = lvd.NetRegressor(hidden_sizes=(100,), n_batches=50, device="cpu", random_state=0).fit(X, y)
        np.testing.assert_array_equal(reg.predict(X), fixed.predict(X))

    def test_a_score_that_makes_a_model_of_its_own_gets_the_network(self, linear):
        reg = quick_choice(conformity_score=lvd.scores.QuantileResidual(), kernel_target="y").fit(*linear)
        assert not hasattr(reg, "choice_")

    def test_trained_it_cannot_be(self, linear):
        with pytest.raises(lvd.InputError, match="prefit=True needs a trained estimator, got 'trees'"):
            quick_choice(estimator="trees", prefit=True).fit(*linear)
