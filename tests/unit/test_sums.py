"""Squared distances by products, and by differences where products would lose their digits."""

from __future__ import annotations

import pytest
import torch

from lvd.kernels.sums import FAR, squared_distances


def differences(a, b):
    return (a[:, None] - b[None]).square().sum(2)


@pytest.mark.parametrize(
    ("reach", "error"),
    [(10.0, 1e-12), (0.3 * FAR**0.5, 1e-9), (1e8, 1e-9)],
    ids=["near", "to the limit", "far"],
)
def test_distances_are_those_of_differences(reach, error):
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in (40, 50))
    a[:, 0] += reach
    b[:, 0] += reach
    found = squared_distances(a, b)
    assert (found >= 0.0).all()
    torch.testing.assert_close(found, differences(a, b), rtol=0.0, atol=error)


def test_the_same_points_are_not_apart():
    points = torch.randn(30, 10, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert squared_distances(points, points).diagonal().max() < 1e-13
    assert squared_distances(points, points[:0]).shape == (30, 0)
