"""Where plain LVD falls short of its level on average, and the two other guarantees hold.

With X ~ N(0, I_10), a kernel of bandwidth h^2 = 2 and the score ||X||, a row has neighbours that lie nearer to the
origin and have smaller scores.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from lvd.conformal import calibrated, engine
from lvd.conformal.randomized import draw_centres

LEVEL = np.array([0.9])


def covers(rng, m, radius):
    """One trial: a fresh calibration set and one new row."""
    rows = rng.normal(size=(m + 1, 10))
    points = torch.tensor(rows / 2.0)
    scores = torch.tensor(np.linalg.norm(rows, axis=1))
    calibration = engine.sort_calibration(points[:-1], scores[:-1])
    return bool(scores[-1] <= radius(points[-1:], calibration).item())


def local(query, calibration):
    return engine.radius(query, calibration, LEVEL, torch.ones(1, dtype=torch.float64))


def randomized(query, calibration):
    centre = draw_centres(query, 0)
    own = (centre - query).square().sum(1).neg().exp()
    return engine.radius(centre, calibration, LEVEL, own)


def level_calibrated(query, calibration):
    return calibrated.radius(query, calibration, calibrated.standing(calibration), LEVEL)


def p_value_below_level(radius, *, trials, m):
    covered = sum(covers(np.random.default_rng(trial), m, radius) for trial in range(trials))
    return binomtest(covered, trials, 0.9, alternative="less").pvalue


@pytest.mark.parametrize(("radius", "m"), [(randomized, 20_000), (level_calibrated, 300)])
def test_marginal_coverage_holds(radius, m):
    assert p_value_below_level(radius, trials=300, m=m) > 1e-6


def test_plain_local_radii_fall_short_on_average():
    assert p_value_below_level(local, trials=300, m=20_000) < 1e-6


def test_a_calibrated_level_is_not_a_matter_of_luck():
    def broken(query, calibration):
        standing = calibrated.standing(calibration)
        weaker = calibrated.Standing(0.9 * standing.below, standing.total, standing.n_below)
        return calibrated.radius(query, calibration, weaker, LEVEL)

    assert p_value_below_level(broken, trials=300, m=300) < 1e-6
