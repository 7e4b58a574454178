"""The loss of three quantiles: its elements, what a step lowers, and how its outputs are read."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.metrics import mean_pinball_loss

from lvd.models.losses import ORDER_WEIGHTS, ORDERS, QuantilesLoss, SquaredLoss, known_mean

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
    """Ten times smaller errors of one target change the total by a constant, and no gradient's direction."""
    elements = torch.tensor([[1.0, 0.5], [3.0, 0.1]], dtype=torch.float64)
    known = torch.ones_like(elements)
    loss, shift = QuantilesLoss(), torch.tensor([1.0, 0.1], dtype=torch.float64)
    total = loss.total(elements, known)
    assert total.item() == pytest.approx(np.log([2.0, 0.3]).mean(), abs=1e-5)
    assert (loss.total(elements * shift, known) - total).item() == pytest.approx(np.log(0.1) / 2, abs=1e-4)
    assert SquaredLoss().total(elements, known).item() == pytest.approx(elements.mean().item())


def test_what_is_not_known_does_not_count():
    outputs, nan = torch.tensor(RNG.normal(size=(4, 6))), float("nan")
    targets = torch.tensor([[1.0, nan], [nan, nan], [0.0, nan], [2.0, nan]], dtype=torch.float64)
    alone = known_mean(QuantilesLoss(), outputs[:, ::2], targets[:, :1])
    assert known_mean(QuantilesLoss(), outputs, targets).item() == pytest.approx(alone.item())
    assert known_mean(QuantilesLoss(), outputs, torch.full((4, 2), nan)).item() == 0.0


def test_outputs_are_read_as_medians_and_expected_errors():
    """Of normal distributions the expected error is their mean absolute one; crossed quantiles are sorted."""
    quantiles = np.stack([norm(3.0, 2.0).ppf(ORDERS), norm(-1.0, 0.5).ppf(ORDERS)], axis=1)
    outputs = torch.tensor((quantiles - 1.0) / 4.0).flip(0).reshape(1, -1)
    unscaled = QuantilesLoss().unscale(outputs, torch.tensor([1.0, 1.0]), torch.tensor([4.0, 4.0]))
    median, spread = QuantilesLoss().read(unscaled.numpy())
    np.testing.assert_allclose(median, [[3.0, -1.0]])
    np.testing.assert_allclose(spread, np.sqrt(2 / np.pi) * np.array([[[2.0, 0.5], [2.0, 0.5]]]), rtol=1e-3)
