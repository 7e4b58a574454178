"""Squared distances by products, and by differences where products would lose their digits."""

from __future__ import annotations

import pytest
import torch

from lvd.engine.quantiles import FAR, distances_by_products


def differences(a, b):
    return (a[:, None] - b[None]).square().sum(2)


@pytest.mark.parametrize(
    ("apart", "error"),
    [(10.0, 1e-12), (0.9 * FAR**0.5, 1e-8), (1e8, 1.0)],
    ids=["near", "to the limit", "far"],
)
def test_distances_are_those_of_differences(apart, error):
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in (40, 50))
    a[:, 0] += apart
    found = distances_by_products(a, b)
    assert (found >= 0.0).all()
    torch.testing.assert_close(found, differences(a, b), rtol=1e-15, atol=error)


@pytest.mark.parametrize("apart", [1e4, 1e16, float("inf")])
def test_a_point_far_out_does_not_disturb_the_others(apart):
    a, b = (
        torch.randn(30, 3, generator=torch.Generator().manual_seed(s), dtype=torch.float64) for s in (0, 1)
    )
    b[7, 0] = apart
    others = torch.arange(30) != 7
    found = distances_by_products(a, b)
    torch.testing.assert_close(found[:, others], differences(a, b[others]), rtol=0.0, atol=1e-12)
    assert (torch.exp(-found[:, 7]) == 0.0).all()


def test_the_same_points_are_not_apart():
    points = torch.randn(30, 10, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert distances_by_products(points, points).diagonal().max() < 1e-13
    assert distances_by_products(points, points[:0]).shape == (30, 0)
