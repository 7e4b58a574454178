"""Where plain LVD falls short of its level on average, and the two other guarantees hold.

With X ~ N(0, I_10), a kernel of bandwidth h^2 = 2 and the score ||X||, a row has neighbours that lie nearer to the
origin and have smaller scores.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from lvd.quantiles import engine
from lvd.conformal import calibrated
from lvd.conformal.randomized import draw_centres

LEVEL = np.array([0.9])


def covers(rng, m, radii):
    """One trial: a fresh calibration set and one new row, which each of the radii covers or not."""
    rows = rng.normal(size=(m + 1, 10))
    points = torch.tensor(rows / 2.0)
    scores = torch.tensor(np.linalg.norm(rows, axis=1))
    calibration = engine.sort_calibration(points[:-1], scores[:-1])
    return [bool(scores[-1] <= radius(points[-1:], calibration).item()) for radius in radii]


def local(query, calibration):
    return engine.radius(query, calibration, LEVEL, torch.ones(1, dtype=torch.float64))


def randomized(query, calibration):
    centre = draw_centres(query, 0)
    own = (centre - query).square().sum(1).neg().exp()
    return engine.radius(centre, calibration, LEVEL, own)


def level_calibrated(query, calibration):
    return calibrated.radius(query, calibration, calibrated.standing(calibration), LEVEL)


def broken(query, calibration):
    standing = calibrated.standing(calibration)
    weaker = calibrated.Standing(0.9 * standing.below, standing.total, standing.n_below)
    return calibrated.radius(query, calibration, weaker, LEVEL)


@pytest.mark.parametrize(
    ("radius", "too_small", "m"),
    [(randomized, local, 20_000), (level_calibrated, broken, 300)],
    ids=["randomized beside plain radii", "a calibrated level beside a weaker one"],
)
def test_marginal_coverage_holds_where_smaller_radii_fall_short(radius, too_small, m):
    trials = [covers(np.random.default_rng(trial), m, (radius, too_small)) for trial in range(300)]
    holds, falls_short = (
        binomtest(sum(covered), len(trials), 0.9, alternative="less").pvalue
        for covered in zip(*trials, strict=True)
    )
    assert holds > 1e-6
    assert falls_short < 1e-6
