from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch.func import functional_call, grad, vmap

import lvd
from lvd.models.heads import (
    LEAST_VARIANCE,
    adversarial_loss,
    gaussian_log_density,
    mean_and_variance,
    mixture_moments,
    negative_log_likelihood,
)
from lvd.models.stack import map_outputs, train_stack
from lvd.models.torch_modules import build_mlp, forward, new_stack


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def fan() -> tuple[np.ndarray, np.ndarray]:
    """Noise whose deviation grows with the first input from 1 to 9."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, size=(600, 2))
    return X, 50 * X[:, 1] + (1 + 8 * X[:, 0]) * rng.normal(size=600)


@pytest.fixture(scope="module")
def fitted(fan) -> lvd.DeepEnsembleRegressor:
    return lvd.DeepEnsembleRegressor(hidden_sizes=(30,), epochs=40, random_state=0).fit(*fan)


class TestStack:
    def test_each_member_is_its_own_network(self):
        stack = new_stack(3, [4, 6, 5, 2], generator())
        same = generator()
        rows = torch.randn(3, 7, 4)
        outputs = forward(stack, rows)
        for member in range(3):
            net = build_mlp(4, [6, 5], 2, generator=same)
            torch.testing.assert_close(outputs[member], net(rows[member]))

    def test_members_do_not_feel_each_other(self):
        inputs, targets = (
            torch.randn(50, 2, generator=generator()),
            torch.randn(50, 1, generator=generator(1)),
        )
        pair = new_stack(2, [2, 8, 2], generator())
        changed = {name: torch.stack([p[0], p[1] + 1.0]) for name, p in pair.items()}
        settings = {"epochs": 3, "batch_size": 20, "learning_rate": 0.01}
        trained, other = (
            train_stack(start, inputs, targets, negative_log_likelihood, **settings, generator=generator())
            for start in (pair, changed)
        )
        for name in pair:
            torch.testing.assert_close(trained[name][0], other[name][0])
            assert not torch.allclose(trained[name][1], other[name][1])

    def test_every_epoch_shows_each_member_every_row_once(self):
        seen = []

        def record(parameters, inputs, targets):
            seen.append(inputs.detach()[:, :, 0])
            return sum(p.sum() for p in parameters.values()) * torch.ones(2)

        rows = torch.arange(10.0)[:, None]
        train_stack(
            new_stack(2, [1, 1], generator()),
            rows,
            rows,
            record,
            epochs=2,
            batch_size=4,
            learning_rate=0.01,
            generator=generator(),
        )
        assert [batch.shape[1] for batch in seen] == [4, 4, 2, 4, 4, 2]
        epoch = torch.cat(seen[:3], dim=1)
        assert torch.equal(epoch.sort(1).values, rows[:, 0].expand(2, -1))
        assert not torch.equal(epoch[0], epoch[1])

    def test_rows_are_evaluated_in_chunks(self, monkeypatch):
        monkeypatch.setattr("lvd.models.stack.EVALUATION_NUMBERS", 2 * 8 * 3)
        stack, rows = new_stack(2, [4, 8, 1], generator()), torch.randn(10, 4)
        chunks = map_outputs(lambda part, outputs: (part, outputs), stack, rows)
        assert [part.stop - part.start for part, _ in chunks] == [3, 3, 3, 1]
        torch.testing.assert_close(
            torch.cat([outputs for _, outputs in chunks], dim=1),
            forward(stack, rows.expand(2, -1, -1)).double(),
        )


class TestHeads:
    def test_variance_is_a_softplus(self):
        mean, variance = mean_and_variance(torch.tensor([[[3.0, -4.0, 0.0, -200.0]]]))
        assert mean.tolist() == [[[3.0, -4.0]]]
        assert variance.flatten().tolist() == pytest.approx([math.log(2.0) + LEAST_VARIANCE, LEAST_VARIANCE])

    def test_log_density_is_that_of_the_normal(self):
        y, mean, variance = (
            torch.tensor(v, dtype=torch.float64) for v in ([1.0, -2.0], [0.5, 3.0], [4.0, 0.25])
        )
        expected = norm.logpdf(y, mean, variance.sqrt())
        np.testing.assert_allclose(gaussian_log_density(y, mean, variance), expected)

    def test_adversarial_loss_matches_autodiff_member_by_member(self):
        stack = {name: p.double() for name, p in new_stack(3, [4, 6, 2], generator()).items()}
        inputs = torch.randn(3, 9, 4, generator=generator(1), dtype=torch.float64)
        targets = torch.randn(3, 9, 1, generator=generator(2), dtype=torch.float64)
        step = torch.tensor([0.1, 0.2, 0.0, 0.3], dtype=torch.float64)
        net = build_mlp(4, [6], 2, generator=generator())

        def loss(parameters, x, y):
            mean, variance = mean_and_variance(functional_call(net, parameters, (x,))[None])
            return -gaussian_log_density(y, mean[0], variance[0]).mean()

        def total(parameters, x, y):
            attacked = x + step * grad(loss, argnums=1)(parameters, x, y).sign()
            return loss(parameters, x, y) + loss(parameters, attacked, y)

        torch.testing.assert_close(
            adversarial_loss(stack, inputs, targets, step), vmap(total)(stack, inputs, targets)
        )
        plain = negative_log_likelihood(stack, inputs, targets)
        assert (adversarial_loss(stack, inputs, targets, step) > 2 * plain).all()
        torch.testing.assert_close(adversarial_loss(stack, inputs, targets, 0 * step), 2 * plain)

    def test_moments_of_a_mixture(self):
        mean, variance = mixture_moments(torch.tensor([[[1.0]], [[5.0]]]), torch.tensor([[[2.0]], [[4.0]]]))
        assert (mean.item(), variance.item()) == (3.0, 3.0 + 4.0)


class TestRegressor:
    def test_width_follows_the_noise(self, fitted):
        X = np.array([[0.05, 0.5], [0.95, 0.5]])
        y_pred, intervals = fitted.predict_interval(X, norm.cdf(1) - norm.cdf(-1))
        deviation = (intervals[:, 1, 0] - intervals[:, 0, 0]) / 2
        assert deviation == pytest.approx([1.4, 8.6], rel=0.5)
        assert y_pred == pytest.approx([25.0, 25.0], abs=3.0)

    def test_members_disagree_far_from_the_data(self, fitted):
        _, intervals = fitted.predict_interval(np.array([[0.5, 0.5], [0.5, -30.0]]))
        widths = intervals[:, 1, 0] - intervals[:, 0, 0]
        assert widths[1] > 5 * widths[0]

    def test_log_likelihood_is_that_of_the_interval_s_normal(self, fitted, fan):
        X, y = fan
        level = 0.8
        y_pred, intervals = fitted.predict_interval(X, level)
        deviation = (intervals[:, 1, 0] - y_pred) / norm.ppf(0.5 + level / 2)
        np.testing.assert_allclose(fitted.log_likelihood(X, y), norm.logpdf(y, y_pred, deviation))

    def test_units_of_y(self, fan):
        X, y = fan
        plain, scaled = (
            lvd.DeepEnsembleRegressor(hidden_sizes=(8,), epochs=2, random_state=0).fit(X, target)
            for target in (y, 64.0 * y)
        )
        np.testing.assert_allclose(scaled.predict(X), 64.0 * plain.predict(X), rtol=1e-5)
        difference = plain.log_likelihood(X, y) - scaled.log_likelihood(X, 64.0 * y)
        np.testing.assert_allclose(difference, math.log(64.0), rtol=1e-5)

    def test_several_targets(self, fan):
        X, y = fan
        reg = lvd.DeepEnsembleRegressor(epochs=40, random_state=0).fit(
            X, np.stack([y, 1000.0 * X[:, 1]], axis=1)
        )
        y_pred, intervals = reg.predict_interval(X, [0.5, 0.9])
        assert y_pred.shape == (600, 2)
        assert intervals.shape == (600, 2, 2, 2)
        assert reg.log_likelihood(X, y_pred).shape == (600, 2)
        assert np.corrcoef(y_pred[:, 1], X[:, 1])[0, 1] > 0.99

    def test_the_seed_decides(self, fan):
        first, again, other = (
            lvd.DeepEnsembleRegressor(epochs=2, random_state=seed).fit(*fan).predict(fan[0])
            for seed in (0, 0, 1)
        )
        assert (first == again).all()
        assert (first != other).any()

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"n_members": 0}, "n_members must be a positive integer, got 0"),
            ({"hidden_sizes": (10, -1)}, "hidden_sizes must be a positive integer, got -1"),
            ({"epochs": 0}, "epochs must be a positive integer, got 0"),
            ({"batch_size": 0}, "batch_size must be a positive integer, got 0"),
            ({"learning_rate": 0.0}, "learning_rate must be a positive number, got 0.0"),
            ({"adversarial_step": -1.0}, "adversarial_step must be a share of each input's range, 0 or more"),
            ({"learning_rate": 1e20}, "training diverged.*lower learning_rate"),
        ],
    )
    def test_refusals(self, fan, parameters, message):
        with pytest.raises(lvd.InputError, match=message):
            lvd.DeepEnsembleRegressor(**{"epochs": 2, **parameters}).fit(*fan)

    def test_one_row_is_too_few(self):
        with pytest.raises(lvd.InputError, match=r"at least 2 rows, got 1 sample"):
            lvd.DeepEnsembleRegressor().fit([[1.0]], [2.0])
