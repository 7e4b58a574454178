"""The local guarantee: at a fixed centre, over calibration sets and rows drawn near it, a score is covered.

X ~ N(0, 1), kernel exp(-(x - centre)^2), score given x ~ |N(0, (0.2 + |x|)^2)|. Rows re-weighted by the kernel
are again normal, so the local coverage of a radius is an integral, and no test rows are drawn.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import ndtr

from lvd.conformal import engine

CENTRES = np.arange(-3.0, 4.0)
LEVEL = 0.9
N_SETS, N_ROWS = 20_000, 200


def draw_sets(rng, n_sets):
    """Rows and their scores, each set in ascending order of the scores."""
    x = rng.normal(size=(n_sets, N_ROWS))
    scores = np.abs((0.2 + np.abs(x)) * rng.normal(size=x.shape))
    order = scores.argsort(axis=1)
    return np.take_along_axis(x, order, 1), np.take_along_axis(scores, order, 1)


def radii(x, scores, self_weight):
    """The weighted quantile of every set at every centre, (sets, centres)."""
    weights = np.exp(-np.square(x[:, None, :] - CENTRES[:, None])).cumsum(-1)
    ranks = (weights < LEVEL * (weights[..., -1:] + self_weight)).sum(-1)
    return np.take_along_axis(np.pad(scores, ((0, 0), (0, 1)), constant_values=np.inf), ranks, 1)


def local_coverage(radius):
    """P(score <= radius) for a row drawn with a density proportional to N(0, 1) times the kernel at the centre."""
    nodes, node_weights = np.polynomial.legendre.leggauss(40)
    nodes = 4.0 * (nodes + 1.0)  # on [0, 8]; the kink of |x| lies at an end
    x = np.concatenate([-nodes, nodes])
    mean, deviation = CENTRES / 1.5, (1.0 / 3.0) ** 0.5
    density = np.exp(-0.5 * np.square((x - mean[:, None]) / deviation)) / (deviation * (2.0 * np.pi) ** 0.5)
    covered = 2.0 * ndtr(radius[..., None] / (0.2 + np.abs(x))) - 1.0
    return (covered * density * np.tile(4.0 * node_weights, 2)).sum(-1)


@pytest.fixture(scope="module")
def calibration_sets():
    rng = np.random.default_rng(0)
    return [draw_sets(rng, N_SETS // 40) for _ in range(40)]


def coverage_of(calibration_sets, self_weight):
    """Mean local coverage at each centre over all calibration sets, and its standard error."""
    coverage = np.concatenate([local_coverage(radii(x, v, self_weight)) for x, v in calibration_sets])
    return coverage.mean(0), coverage.std(0) / N_SETS**0.5


def holds(coverage, error):
    """At least the level at every centre; not far above it where calibration rows are plenty."""
    return (coverage >= LEVEL - 4.0 * error) & ((coverage <= 0.93) | (np.abs(CENTRES) > 2.0))


@pytest.mark.parametrize("self_weight", [0.0, 1.0])
def test_the_radii_here_are_the_engines(calibration_sets, self_weight):
    x, scores = calibration_sets[0]
    own = torch.full((len(CENTRES),), self_weight, dtype=torch.float64)
    centres, levels = torch.as_tensor(CENTRES[:, None]), np.array([LEVEL])
    ours = []
    for rows, values in zip(x[:100], scores[:100], strict=True):
        calibration = engine.sort_calibration(torch.as_tensor(rows[:, None]), torch.as_tensor(values))
        ours.append(engine.radius(centres, calibration, levels, own)[:, 0].numpy())
    np.testing.assert_array_equal(np.stack(ours), radii(x[:100], scores[:100], self_weight))


def test_the_guarantee_holds_at_every_centre(calibration_sets):
    coverage, error = coverage_of(calibration_sets, 1.0)
    assert holds(coverage, error).all()
    np.testing.assert_allclose(coverage[3:], [0.905, 0.907, 0.919, 0.999], atol=0.002)


def test_without_the_mass_at_infinity_it_fails_at_every_centre(calibration_sets):
    assert not holds(*coverage_of(calibration_sets, 0.0)).any()


def test_an_always_infinite_radius_fails_where_rows_are_plenty():
    coverage = local_coverage(np.full((1, len(CENTRES)), np.inf))[0]
    np.testing.assert_allclose(coverage, 1.0, atol=1e-9)
    assert not holds(coverage, 0.0)[np.abs(CENTRES) <= 2.0].any()
