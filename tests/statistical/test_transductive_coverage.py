"""Transductive rescaling covers exactly on average; a score that is its own neighbour spoils it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from lvd.calibration.transductive import Prior, sum_others, transductive_radius
from lvd.engine import Queries, SortedRows, similarities

LEVEL, N_CALIB, N_TRIALS = 0.9, 29, 1500
PRIOR = Prior(size=1.0, strength=0.3, bandwidth=0.5)


def draw(rng):
    x = rng.normal(size=(N_CALIB + 1, 2))
    return torch.as_tensor(x), torch.as_tensor(np.exp(x[:, 0]) * np.abs(rng.normal(size=N_CALIB + 1)))


def exact(query, rows, prior=PRIOR):
    return float(transductive_radius(query, rows, sum_others(rows, prior), np.array([LEVEL]))[0, 0])


def among_its_own_neighbours(query, rows):
    """Each calibration score is divided by a mean that it is part of, and the query's by one that it is not."""
    others = sum_others(rows, PRIOR)
    kernel = similarities(Queries(query, bandwidths=query.new_full((1,), PRIOR.bandwidth)), rows)[0]
    mean = (kernel @ rows.scores + PRIOR.strength) / (kernel.sum() + PRIOR.strength)
    scaled = torch.sort(rows.scores * (others.weights + 1.0) / (others.scores + rows.scores)).values
    return float(mean * scaled[int(np.ceil((N_CALIB + 1) * LEVEL)) - 1])


def count_covered(radius):
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(N_TRIALS):
        points, scores = draw(rng)
        rows = SortedRows.of(points[:-1], scores[:-1])
        covered += float(scores[-1]) <= radius(points[-1:], rows)
    return covered


@pytest.mark.parametrize("most", [None, 1.0])
def test_exactly_on_average(most):
    # With 29 rows and no ties the level 27 / 30 is met exactly.
    limited = replace(PRIOR, most=most)
    n_covered = count_covered(lambda query, rows: exact(query, rows, limited))
    assert binomtest(n_covered, N_TRIALS, LEVEL).pvalue > 1e-6


def test_scores_among_their_own_neighbours_fail():
    assert (
        binomtest(count_covered(among_its_own_neighbours), N_TRIALS, LEVEL, alternative="less").pvalue < 1e-6
    )
