"""Joint coverage and volumes: by hand, and for regions, boxes and booleans alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lvd import InputError, metrics
from lvd.intervals import Boxes, Ellipsoids

RNG = np.random.default_rng(0)
X, Y = RNG.uniform(size=(400, 2)), RNG.normal(size=(400, 2))
Y[X[:, 0] < 0.3] *= 3.0
BOXES = Boxes(np.zeros((400, 2)), np.full((400, 2), 2.0))
ELLIPSOIDS = Ellipsoids(np.zeros((400, 2)), np.repeat(np.eye(2)[None], 400, axis=0), np.full(400, 2.0))


def test_joint_coverage_counts_rows_of_which_all_targets_are_inside():
    hits = (np.abs(Y) <= 2.0).all(axis=1)
    assert metrics.joint_coverage_rate(Y, BOXES) == hits.mean()
    assert metrics.joint_coverage_rate(Y, BOXES.project()) == hits.mean()
    assert metrics.joint_coverage_rate(Y, BOXES.project()[:, :, None]) == hits.mean()
    assert metrics.joint_coverage_rate(Y, hits) == hits.mean()
    assert metrics.joint_coverage_rate(Y, ELLIPSOIDS) == (np.linalg.norm(Y, axis=1) <= 2.0).mean()
    each = [metrics.marginal_coverage_rate(Y[:, t], BOXES.project()[:, :, t]) for t in range(2)]
    assert hits.mean() < min(each)


def test_mean_log_volume():
    assert metrics.mean_log_volume(BOXES) == pytest.approx(np.log(16.0))
    assert metrics.mean_log_volume(BOXES.project()) == pytest.approx(np.log(16.0))
    assert metrics.mean_log_volume(ELLIPSOIDS) == pytest.approx(np.log(4.0 * np.pi))
    widths = np.where(np.arange(400)[:, None] < 200, np.inf, BOXES.half_widths)
    infinite = replace(BOXES, half_widths=widths)
    assert metrics.mean_log_volume(infinite) == np.inf
    counted = metrics.mean_log_volume(infinite, y_range=([-5.0, -5.0], 5.0))
    assert counted == pytest.approx((np.log(100.0) + np.log(16.0)) / 2.0)
    assert counted == metrics.mean_log_volume(infinite.project(), y_range=(-5.0, 5.0))


@pytest.mark.parametrize("region", [BOXES, BOXES.project(), (np.abs(Y) <= 2.0).all(axis=1)])
def test_slabs_and_ert_find_where_the_joint_coverage_is_low(region):
    slab = metrics.worst_slab_coverage(X, Y, region, n_directions=50, random_state=0)
    assert slab.coverage < metrics.joint_coverage_rate(Y, region) - 0.1
    risk = metrics.excess_risk_of_target_coverage(X, Y, region, 0.9)
    assert risk.under > 0.05


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: metrics.joint_coverage_rate(Y, np.zeros((400, 2))),
            r"must have shape \(n, 2, n_targets\), got",
        ),
        (lambda: metrics.joint_coverage_rate(Y, np.zeros((400, 2, 3))), "y has 2 targets, but intervals 3"),
        (lambda: metrics.joint_coverage_rate(Y[:5], BOXES), "y must have the shape of the centres"),
        (lambda: metrics.mean_log_volume(BOXES, y_range=(5.0, -5.0)), "y_range must hold finite numbers"),
        (lambda: metrics.mean_log_volume(BOXES, y_range=([0.0, 1.0], [1.0])), "inconsistent numbers"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
