from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

import lvd
from lvd.models.dropout import draw_mask, dropout_loss, pass_log_density, thin, weight_decay
from lvd.models.torch_modules import forward, new_stack


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def vector(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.fixture(scope="module")
def line() -> tuple[np.ndarray, np.ndarray]:
    """Of the variance of y a tenth is noise: its precision, standardised, is 10."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    return X, 7.0 + 30.0 * X[:, 0] + 10.0 * rng.normal(size=500)


def quick(**parameters) -> lvd.MCDropoutRegressor:
    defaults = {
        "dropout_rates": 0.1,
        "precisions": 10.0,
        "hidden_sizes": (20,),
        "epochs": 5,
        "random_state": 0,
    }
    return lvd.MCDropoutRegressor(**{**defaults, **parameters})


class TestDropout:
    def test_masks_keep_the_mean(self):
        mask = draw_mask((100_000,), torch.tensor(0.2), generator())
        assert sorted(mask.unique().tolist()) == pytest.approx([0.0, 1.25])
        assert mask.mean().item() == pytest.approx(1.0, abs=5 * 0.5 / 100_000**0.5)

    def test_rates_share_the_draw(self):
        low, high = draw_mask((1000,), torch.tensor([[0.1], [0.4]]), generator())
        assert (high[low == 0] == 0).all()
        assert (low == 0).sum() < (high == 0).sum()

    def test_weight_decay(self):
        decay = weight_decay(vector(0.1), vector(10.0), length_scale=0.5, n_rows=90)
        assert decay.item() == pytest.approx(0.5**2 * 0.9 / (2 * 90 * 10))

    def test_loss_without_dropout_is_half_the_squared_error_and_the_decay(self):
        stack = {"w": torch.tensor([[[2.0]]]), "b": torch.tensor([[1.0]])}
        loss = dropout_loss(
            stack,
            torch.tensor([[[1.0], [3.0]]]),
            torch.tensor([[[0.0], [4.0]]]),
            dropout=torch.zeros(1),
            decay=torch.tensor([0.1]),
            generator=generator(),
        )
        assert loss.item() == pytest.approx(0.5 * (3**2 + 3**2) / 2 + 0.1 * (2**2 + 1**2))

    def test_gradient_of_the_loss(self):
        stack = {
            name: p.double().requires_grad_() for name, p in new_stack(2, [3, 4, 1], generator()).items()
        }
        inputs = torch.randn(2, 6, 3, generator=generator(1), dtype=torch.float64)
        targets = torch.randn(2, 6, 1, generator=generator(2), dtype=torch.float64)

        def loss(*tensors):
            return dropout_loss(
                dict(zip(stack, tensors, strict=True)),
                inputs,
                targets,
                dropout=vector(0.1, 0.4),
                decay=vector(0.01, 0.1),
                generator=generator(),
            )

        assert torch.autograd.gradcheck(loss, tuple(stack.values()))

    def test_a_pass_cuts_the_same_inputs_of_a_layer_for_all_rows(self):
        net, rows = new_stack(1, [3, 5, 1], generator()), torch.randn(4, 3)
        passes = thin(net, 0.5, 6, generator(1))
        same = generator(1)
        masks = [draw_mask((6, 1, width), torch.tensor(0.5), same) for width in (3, 5)]
        whole = {name: p.expand(6, *p.shape[1:]) for name, p in net.items()}
        inputs = rows.expand(6, -1, -1)
        torch.testing.assert_close(forward(passes, inputs), forward(whole, inputs, masks))

    def test_passes_of_a_linear_network_have_its_mean(self):
        net, row = new_stack(1, [3, 1], generator()), torch.ones(1, 1, 3)
        outputs = forward(thin(net, 0.3, 20_000, generator()), row.expand(20_000, -1, -1)).flatten()
        error = outputs.mean() - forward(net, row).item()
        assert abs(error) < 5 * outputs.std() / 20_000**0.5

    def test_log_density_is_that_of_the_mean_density(self):
        y, passes = (
            vector(1.0, -2.0)[:, None],
            torch.randn(7, 2, 1, generator=generator(), dtype=torch.float64),
        )
        expected = np.log(norm.pdf(y.numpy(), passes.numpy(), 4.0**-0.5).mean(0))
        np.testing.assert_allclose(pass_log_density(y, passes, 4.0), expected)

    def test_log_density_does_not_underflow(self):
        far = pass_log_density(torch.full((1, 1), 1e4), torch.zeros(3, 1, 1), 1.0)
        assert far.item() == pytest.approx(-0.5e8)


class TestRegressor:
    def test_variance_is_that_of_the_passes_and_the_noise(self, line):
        X, y = line
        level = norm.cdf(1) - norm.cdf(-1)
        _, noise_only = quick(dropout_rates=0.0).fit(X, y).predict_interval(X, level)
        np.testing.assert_allclose(noise_only[:, 1] - noise_only[:, 0], 2 * y.std() * 10**-0.5)
        reg = quick().fit(X, y)
        y_pred, intervals = reg.predict_interval(X, level)
        inputs = reg.model_.scale_inputs(X).double().expand(1000, -1, -1)
        members = {name: parameter.double() for name, parameter in reg._passes().items()}
        passes = forward(members, inputs).numpy()[:, :, 0]
        np.testing.assert_allclose(y_pred, passes.mean(0) * y.std() + y.mean(), rtol=1e-5)
        deviation = y.std() * np.sqrt(passes.var(0) + 0.1)
        np.testing.assert_allclose(intervals[:, 1, 0] - y_pred, deviation, rtol=1e-5)

    def test_validation_finds_the_precision_of_the_noise(self, line):
        reg = quick(dropout_rates=(0.01, 0.5), precisions=(1.0, 10.0, 100.0), epochs=60).fit(*line)
        assert (reg.dropout_, reg.tau_) == (0.01, 10.0)

    def test_predictions_repeat_and_rows_stand_alone(self, line):
        X, _ = line
        reg = quick().fit(*line)
        first, again = reg.predict_interval(X), reg.predict_interval(X)
        assert (first[1] == again[1]).all()
        np.testing.assert_allclose(reg.predict(X[3:5]), first[0][3:5], rtol=1e-6)

    def test_the_seed_decides(self, line):
        grid = {"precisions": (1.0, 10.0)}
        first, again, other = (
            quick(**grid, random_state=seed).fit(*line).predict(line[0]) for seed in (0, 0, 1)
        )
        assert (first == again).all()
        assert (first != other).any()

    def test_log_likelihood_in_the_units_of_y(self, line):
        X, y = line
        plain, scaled = quick().fit(X, y), quick().fit(X, 64.0 * y)
        difference = plain.log_likelihood(X, y) - scaled.log_likelihood(X, 64.0 * y)
        np.testing.assert_allclose(difference, math.log(64.0), rtol=1e-4)
        certain = quick(dropout_rates=0.0).fit(X, y)
        expected = norm.logpdf(y, certain.predict(X), y.std() * 10**-0.5)
        np.testing.assert_allclose(certain.log_likelihood(X, y), expected)

    def test_several_targets(self, line):
        X, y = line
        reg = quick(precisions=(1.0, 10.0)).fit(X, np.stack([y, X[:, 1]], axis=1))
        y_pred, intervals = reg.predict_interval(X, [0.5, 0.9])
        assert y_pred.shape == (500, 2)
        assert intervals.shape == (500, 2, 2, 2)
        assert reg.log_likelihood(X, y_pred).shape == (500, 2)

    def test_two_rows_are_enough(self):
        reg = quick(precisions=(1.0, 10.0)).fit([[0.0], [1.0]], [0.0, 1.0])
        assert np.isfinite(reg.predict_interval([[0.5]])[1]).all()

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"dropout_rates": (0.1, 1.0)}, r"dropout_rates must be one or more numbers in \[0, 1\)"),
            ({"dropout_rates": ()}, "dropout_rates must be one or more numbers"),
            ({"precisions": 0.0}, "precisions must be one or more positive numbers, got 0.0"),
            ({"validation_size": 20.0}, r"validation_size must lie in \(0, 1\), got 20.0"),
            ({"length_scale": -1.0}, "length_scale must be a positive number, got -1.0"),
            ({"n_passes": 0}, "n_passes must be a positive integer, got 0"),
        ],
    )
    def test_refusals(self, line, parameters, message):
        with pytest.raises(lvd.InputError, match=message):
            quick(**parameters).fit(*line)
