"""Boxes and ellipsoids of several targets: toys with known answers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lvd import InputError
from lvd.intervals import Boxes, Ellipsoids, mahalanobis_norm


def circle(scale: float = 2.0) -> Ellipsoids:
    return Ellipsoids(np.zeros((1, 2)), np.eye(2)[None], np.array([scale]))


def tilted() -> Ellipsoids:
    """Axes along (1, 1) and (1, -1), half lengths 4 and 2."""
    turn = np.array([[1.0, 1.0], [1.0, -1.0]]) / math.sqrt(2.0)
    return Ellipsoids(np.array([[1.0, -1.0]]), (turn @ np.diag([4.0, 1.0]) @ turn.T)[None], np.array([2.0]))


def test_box_holds_its_border_and_nothing_beyond_it() -> None:
    box = Boxes(np.array([[0.0, 10.0]] * 3), np.array([[1.0, 2.0]] * 3))
    assert box.contains([[1.0, 8.0], [1.1, 10.0], [0.0, 12.5]]).tolist() == [True, False, False]
    assert box.log_volume() == pytest.approx(math.log(8.0))
    assert box.project()[0].tolist() == [[-1.0, 8.0], [1.0, 12.0]]
    assert box.axes.shape == (3, 2, 2)
    assert box.radii[0].tolist() == [1.0, 2.0]


def test_circle() -> None:
    assert circle().contains([[2.0, 0.0]]).all()
    assert not circle().contains([[1.5, 1.5]]).any()
    assert circle().log_volume() == pytest.approx(math.log(4.0 * math.pi))
    assert circle().project()[0].tolist() == [[-2.0, -2.0], [2.0, 2.0]]


def test_volume_in_three_dimensions_is_that_of_a_ball() -> None:
    ball = Ellipsoids(np.zeros((1, 3)), np.eye(3)[None], np.array([3.0]))
    assert ball.log_volume() == pytest.approx(math.log(4.0 / 3.0 * math.pi * 27.0))


def test_tilted_ellipse() -> None:
    assert tilted().radii[0] == pytest.approx([2.0, 4.0])
    assert np.abs(tilted().axes[0]) == pytest.approx(np.full((2, 2), math.sqrt(0.5)))
    assert tilted().log_volume() == pytest.approx(math.log(math.pi * 8.0))
    reach = math.sqrt(10.0)  # 2 times the root of (4 + 1) / 2
    assert tilted().project()[0] == pytest.approx(
        np.array([[1.0 - reach, -1.0 - reach], [1.0 + reach, -1.0 + reach]])
    )
    along, across = np.array([[1.0, 1.0]]) / math.sqrt(2.0), np.array([[1.0, -1.0]]) / math.sqrt(2.0)
    assert tilted().contains(tilted().centers + 3.9 * along).all()
    assert not tilted().contains(tilted().centers + 3.9 * across).any()


def test_projection_is_the_bounding_box_of_many_points_of_the_border() -> None:
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(3, 3))
    region = Ellipsoids(rng.normal(size=(1, 3)), (factor @ factor.T)[None], np.array([1.7]))
    directions = rng.normal(size=(200_000, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    border = region.centers + 1.7 * directions @ factor.T
    assert region.project()[0] == pytest.approx(np.stack([border.min(0), border.max(0)]), abs=5e-3)
    pair = region.onto([2, 0])
    assert pair.project()[0] == pytest.approx(region.project()[0][:, [2, 0]])
    # Monte Carlo: points of the ellipsoid project into its shadow, and reach its border.
    norms = mahalanobis_norm(border[:, [2, 0]] - pair.centers, np.repeat(pair.shapes, len(border), axis=0))
    assert norms.max() <= 1.7 + 1e-9
    assert norms.max() == pytest.approx(1.7, abs=1e-3)


def test_volume_agrees_with_counting_points() -> None:
    points = np.random.default_rng(0).uniform(-4.5, 4.5, size=(100_000, 2))
    region = tilted()[np.zeros(len(points), dtype=int)]
    share = region.contains(region.centers + points).mean()
    assert math.exp(tilted().log_volume()[0]) == pytest.approx(81.0 * share, rel=0.02)


@pytest.mark.parametrize("region", [circle(np.inf), Boxes(np.zeros((1, 2)), np.full((1, 2), np.inf))])
def test_infinity_is_kept_and_holds_everything(region: Boxes | Ellipsoids) -> None:
    assert region.contains([[1e300, -1e300]]).all()
    assert region.log_volume()[0] == np.inf
    assert np.isinf(region.project()).all()
    within = region.within((-1.0, 1.0))
    assert within.log_volume() == pytest.approx(math.log(4.0))
    assert within.project()[0].tolist() == [[-1.0, -1.0], [1.0, 1.0]]


def test_bounds_cut_boxes_and_bound_the_volume_of_ellipsoids() -> None:
    box = Boxes(np.zeros((1, 2)), np.full((1, 2), 2.0), ([0.0, -np.inf], [np.inf, np.inf]))
    assert box.project()[0].tolist() == [[0.0, -2.0], [2.0, 2.0]]
    assert box.log_volume() == pytest.approx(math.log(8.0))
    assert box.onto([1]).project()[0].tolist() == [[-2.0], [2.0]]
    assert circle().within((-0.5, 0.5)).log_volume() == pytest.approx(0.0)
    assert circle().within((-5.0, 5.0)).log_volume() == pytest.approx(math.log(4.0 * math.pi))


def test_empty_region_has_no_volume() -> None:
    assert circle(0.0).log_volume()[0] == -np.inf
    assert Boxes(np.zeros((1, 2)), np.array([[0.0, np.inf]])).log_volume()[0] == -np.inf


def test_y_of_another_shape_is_refused() -> None:
    with pytest.raises(InputError, match=r"y must have the shape of the centres, \(1, 2\).*got \(1, 3\)"):
        circle().contains([[1.0, 2.0, 3.0]])
