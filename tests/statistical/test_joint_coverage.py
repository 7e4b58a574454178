"""Joint coverage: all targets of a row are in its region at the level, over fresh calibration sets and rows.

Errors of three targets that go together, of sizes that differ between rows. Radii of a quantile for each target at
the level itself, which is what gives each target its own interval, do not hold together.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

import lvd
from lvd.scores.joint import BoundJoint

LEVEL, N_TRIALS, N_CALIB = 0.8, 300, 30
FACTOR = np.linalg.cholesky([[1.0, 0.6, 0.0], [0.6, 1.0, -0.5], [0.0, -0.5, 1.0]])
KERNEL = lvd.MahalanobisKernel.from_components([[0.5]], mean=[0.0], scale=[1.0])


def draw(rng, n_rows):
    """Places, errors, and what a region measures them by, which is wrong on purpose: nothing need be right."""
    x = rng.normal(size=(n_rows, 1))
    errors = (0.3 + np.abs(x)) * (rng.standard_t(4, size=(n_rows, 3)) @ FACTOR.T) * [1.0, 10.0, 0.1]
    unit = (1.0 + np.square(x)) * [1.0, 8.0, 0.2]
    shapes = np.exp(-0.1 * np.square(x))[..., None] * (FACTOR @ FACTOR.T + 0.3 * np.eye(3))
    return x, errors, unit, shapes * unit[:, :, None] * unit[:, None]


def bound_to(kind, unit, shapes):
    return BoundJoint(np.zeros_like(unit), unit, shapes if kind == "ellipsoid" else None)


def count(kind, guarantee, trial):
    """How often the region of one new row holds it, with a calibration set of its own in each trial."""
    hits = 0
    for number in range(N_TRIALS):
        rng = np.random.default_rng(number)
        x, errors, unit, shapes = draw(rng, N_CALIB + 1)
        hits += trial(kind, guarantee, number, x, errors, unit, shapes)
    return hits


def joint(kind, guarantee, number, x, errors, unit, shapes):
    scores = bound_to(kind, unit, shapes)(errors)[:, 0, 0]
    prior = lvd.calibration.transductive.Prior()
    conformal = lvd.LocalConformal(KERNEL, prior=prior).conformalize(x[:-1], scores[:-1])
    chosen = {"random_state": number} if guarantee == "randomized" else {}
    radius = conformal.radius(x[-1:], LEVEL, guarantee=guarantee, **chosen)
    region = bound_to(kind, unit[-1:], shapes[-1:]).region(radius)
    return bool(region.contains(errors[-1:])[0])


def one_by_one(kind, guarantee, number, x, errors, unit, shapes):
    """The mutant: each target has a radius of its own at the level."""
    scores = np.abs(errors) / unit
    radii = [
        lvd.LocalConformal(KERNEL)
        .conformalize(x[:-1], column[:-1])
        .radius(x[-1:], LEVEL, guarantee=guarantee)
        for column in scores.T
    ]
    return bool((scores[-1] <= np.concatenate(radii)).all())


@pytest.mark.parametrize("kind", ["box", "ellipsoid"])
@pytest.mark.parametrize("guarantee", ["calibrated", "randomized", "transductive"])
def test_all_targets_are_in_the_region_at_the_level(kind, guarantee):
    hits = count(kind, guarantee, joint)
    assert binomtest(hits, N_TRIALS, LEVEL, alternative="less").pvalue > 1e-6
    assert hits / N_TRIALS < 0.98


def test_a_quantile_for_each_target_fails():
    hits = count("box", "calibrated", one_by_one)
    assert binomtest(hits, N_TRIALS, LEVEL, alternative="less").pvalue < 1e-6
