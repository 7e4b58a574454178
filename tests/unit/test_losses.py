"""The loss of three quantiles: its elements, what a step lowers, and how its outputs are read."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.metrics import mean_pinball_loss

from lvd.models.losses import ORDER_WEIGHTS, ORDERS, QuantilesLoss, SquaredLoss

RNG = np.random.default_rng(0)


def test_elements_are_the_sum_of_the_pinball_losses():
    outputs, targets = RNG.normal(size=(30, 6)), RNG.normal(size=(30, 2))
    elements = QuantilesLoss().elements(torch.tensor(outputs), torch.tensor(targets)).numpy()
    for target in (0, 1):
        expected = sum(
            weight * mean_pinball_loss(targets[:, target], outputs[:, 2 * number + target], alpha=order)
            for number, (order, weight) in enumerate(zip(ORDERS, ORDER_WEIGHTS, strict=True))
        )
        assert elements[:, target].mean() == pytest.approx(expected)


def test_normal_errors_cost_alike_at_every_quantile():
    y = norm.ppf(np.arange(0.5, 20_000) / 20_000)
    costs = [
        weight * mean_pinball_loss(y, np.full(len(y), norm.ppf(order)), alpha=order)
        for order, weight in zip(ORDERS, ORDER_WEIGHTS, strict=True)
    ]
    np.testing.assert_allclose(costs, 1.0, rtol=0.01)


def test_a_step_treats_easy_and_hard_targets_alike():
    """In units of usual losses, errors that are ten times smaller weigh as much."""
    elements = torch.tensor([[1.0, 0.5], [3.0, 0.1]], dtype=torch.float64)
    usual, known, shrunk = elements.mean(0), torch.ones_like(elements), elements.new_tensor([1.0, 0.1])
    loss = QuantilesLoss()
    assert loss.total(elements, known, lambda *_: usual).item() == pytest.approx(1.0, abs=1e-5)
    assert loss.total(elements * shrunk, known, lambda *_: usual * shrunk).item() == pytest.approx(
        1.0, abs=1e-4
    )
    assert SquaredLoss().total(elements, known, lambda *_: usual).item() == pytest.approx(
        elements.mean().item()
    )


def test_what_is_not_known_does_not_count():
    elements, usual = torch.ones(4, 2, dtype=torch.float64), torch.tensor([0.5, 3.0], dtype=torch.float64)
    known = torch.tensor([[1.0, 0.0]] * 3 + [[0.0, 0.0]], dtype=torch.float64)
    assert QuantilesLoss().total(elements, known, lambda *_: usual).item() == pytest.approx(2.0, abs=1e-5)
    assert QuantilesLoss().total(elements, torch.zeros_like(known), lambda *_: usual).item() == 0.0


def test_outputs_are_read_as_medians_and_expected_errors():
    """Of normal distributions the expected error is their mean absolute one; crossed quantiles are sorted."""
    quantiles = np.stack([norm(3.0, 2.0).ppf(ORDERS), norm(-1.0, 0.5).ppf(ORDERS)], axis=1)
    outputs = torch.tensor((quantiles - 1.0) / 4.0).flip(0).reshape(1, -1)
    unscaled = QuantilesLoss().unscale(outputs, torch.tensor([1.0, 1.0]), torch.tensor([4.0, 4.0]))
    median, spread = QuantilesLoss().read(unscaled.numpy())
    np.testing.assert_allclose(median, [[3.0, -1.0]])
    np.testing.assert_allclose(spread, np.sqrt(2 / np.pi) * np.array([[[2.0, 0.5], [2.0, 0.5]]]), rtol=1e-3)
