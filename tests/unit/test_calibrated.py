"""The calibrated level against its definition, cell by cell."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lvd.conformal import calibrated
from lvd.quantiles.engine import sort_calibration


def brute_force(query, points, scores, level, *, ratios=None, own=1.0, floor=0.0):
    """Keep v while, with v as the test row's score, the local quantile level at which v is reached is not extreme.

    Each of the m + 1 rows has the share of local weight strictly below its own score; v is kept while the rows
    whose share is below the test row's carry less than the level, all rows weighing their likelihood ratios.
    """
    m = len(scores)
    everyone = np.vstack([points, query])
    mass = np.append(np.ones(m) if ratios is None else ratios, own)
    kernel = np.exp(-np.square(everyone[:, None] - everyone[None]).sum(-1))
    weights = mass * ((1.0 - floor) * kernel + floor)
    ordered = np.unique(scores)
    kept = 0.0
    edges = np.concatenate([[ordered[0] - 1.0], ordered, [ordered[-1] + 1.0]])
    for low, high, radius in zip(edges[:-1], edges[1:], np.append(ordered, np.inf), strict=True):
        v = np.append(scores, (low + high) / 2)
        share = np.array([weights[i][v < v[i]].sum() / weights[i].sum() for i in range(m + 1)])
        if mass[share < share[-1]].sum() / mass.sum() < level:
            kept = radius
    return kept


@given(
    m=st.integers(1, 25),
    k=st.integers(1, 3),
    spread=st.floats(0.1, 2.0),
    ties=st.booleans(),
    seed=st.integers(0, 10_000),
    level=st.sampled_from([0.2, 0.5, 0.8, 0.9]),
    floor=st.sampled_from([0.0, 0.05, 0.5]),
    weighted=st.booleans(),
)
def test_equals_brute_force(m, k, spread, ties, seed, level, floor, weighted):
    rng = np.random.default_rng(seed)
    points, query = rng.normal(size=(m, k)) * spread, rng.normal(size=(1, k)) * spread
    scores = np.abs(rng.normal(size=m))
    scores = scores.round(1) + 0.1 if ties else scores
    ratios, own = (rng.gamma(2.0, size=m), rng.gamma(2.0)) if weighted else (None, 1.0)
    calibration = sort_calibration(
        torch.tensor(points),
        torch.tensor(scores),
        weights=None if ratios is None else torch.tensor(ratios),
        floor=floor,
    )
    ours = calibrated.radius(
        torch.tensor(query),
        calibration,
        calibrated.standing(calibration),
        np.array([level]),
        torch.tensor([own], dtype=torch.float64),
    )
    assert ours.item() == brute_force(query, points, scores, level, ratios=ratios, own=own, floor=floor)


def test_streaming_in_chunks_changes_nothing(rng, monkeypatch):
    points, scores = torch.tensor(rng.normal(size=(60, 2))), torch.tensor(np.abs(rng.normal(size=60)))
    queries, levels = torch.tensor(rng.normal(size=(30, 2))), np.array([0.5, 0.9])
    calibration = sort_calibration(points, scores)
    whole = calibrated.radius(queries, calibration, calibrated.standing(calibration), levels)
    monkeypatch.setattr(calibrated, "CHUNK_ELEMENTS", 128)
    parts = calibrated.radius(queries, calibration, calibrated.standing(calibration), levels)
    torch.testing.assert_close(whole, parts, rtol=0, atol=0)


def test_no_calibration_row_is_infinite():
    calibration = sort_calibration(
        torch.empty(0, 2, dtype=torch.float64), torch.empty(0, dtype=torch.float64)
    )
    ours = calibrated.radius(
        torch.zeros(3, 2, dtype=torch.float64), calibration, calibrated.standing(calibration), np.array([0.9])
    )
    assert torch.isinf(ours).all()


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_a_constant_kernel_gives_split_conformal(rng, level):
    scores = np.abs(rng.normal(size=99))
    calibration = sort_calibration(torch.zeros(99, 2, dtype=torch.float64), torch.tensor(scores))
    ours = calibrated.radius(
        torch.zeros(1, 2, dtype=torch.float64),
        calibration,
        calibrated.standing(calibration),
        np.array([level]),
    )
    assert ours.item() == np.sort(scores)[int(np.ceil(100 * level)) - 1]
