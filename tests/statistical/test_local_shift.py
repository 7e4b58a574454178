"""The local guarantee under a shift: a new case near a centre may weigh more than the centre itself.

Two sites: new rows come from site B ten times as often as calibration rows do, and B's errors are larger. At a
centre in site A the new case has the density w(x) K(centre, x) p(x): it often is of B, and then weighs w(B).
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

import lvd
from lvd.engine import Queries, local_quantile

LEVEL, SHARE_OF_B, N_TRIALS = 0.9, 0.05, 500
RATIO = {"A": 0.5 / 0.95, "B": 10.0}
PLACE = {"A": 0.0, "B": 0.3}
SIGMA = {"A": 0.1, "B": 1.0}


def draw(rng, n, share_of_b):
    sites = np.where(rng.random(n) < share_of_b, "B", "A")
    points, weights, sigma = (np.array([of[s] for s in sites]) for of in (PLACE, RATIO, SIGMA))
    return points[:, None], np.abs(sigma * rng.normal(size=n)), weights


def count_covered(n_calib, max_weight, radius=lvd.LocalConformal.radius):
    """Fresh calibration rows and one new case near A in every trial."""
    rng = np.random.default_rng(0)
    kernel = lvd.MahalanobisKernel.from_components([[1.0]], mean=[0.0], scale=[1.0], device="cpu")
    reach = np.exp(-np.square(PLACE["B"] - PLACE["A"]))
    masses = np.array([RATIO["A"] * (1.0 - SHARE_OF_B), RATIO["B"] * SHARE_OF_B * reach])
    covered = 0
    for _ in range(N_TRIALS):
        points, scores, weights = draw(rng, n_calib, SHARE_OF_B)
        new = draw(rng, 1, masses[1] / masses.sum())[1][0]
        conformal = lvd.LocalConformal(kernel)
        conformal.conformalize(points, scores, weights=weights, max_weight=max_weight)
        covered += new <= radius(conformal, [[PLACE["A"]]], LEVEL, weights=[RATIO["A"]])[0]
    return covered


def with_the_centres_weight(conformal, embeddings, level, weights):
    """The mutant: the mass at infinity is the likelihood ratio of the centre."""
    rows = conformal._queries(embeddings, None, weights, guarantee="calibrated")
    known = conformal.calibration_.groups[None][0]
    return local_quantile(Queries(rows.points, rows.weights), known, np.array([level])).radius[:, 0].numpy()


def rejected(covered):
    return binom.cdf(covered, N_TRIALS, LEVEL) < 1e-6


@pytest.mark.parametrize("n_calib", [40, 100])
def test_with_the_largest_weight_at_infinity_it_holds(n_calib):
    assert not rejected(count_covered(n_calib, RATIO["B"]))


def test_the_largest_weight_seen_serves_where_heavy_rows_are_seen():
    assert not rejected(count_covered(100, None))


def test_with_the_centres_own_weight_it_fails():
    assert rejected(count_covered(40, RATIO["B"], with_the_centres_weight))
