"""The calibrated level against its definition, cell by cell."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lvd.calibration.guarantees import calibrated_radius, standing
from lvd.engine import Queries, SortedRows


def brute_force(query, points, scores, level, *, ratios=None, own=1.0, bandwidths=None):
    """Keep v while, with v as the test row's score, the local quantile level at which v is reached is not extreme.

    Each of the m + 1 rows has the share of local weight strictly below its own score; v is kept while the rows
    whose share is below the test row's carry less than the level, all rows weighing their likelihood ratios. The
    kernel around a row has the bandwidth of that row; the last one is the query's.
    """
    m = len(scores)
    everyone = np.vstack([points, query])
    mass = np.append(np.ones(m) if ratios is None else ratios, own)
    h = np.ones(m + 1) if bandwidths is None else bandwidths
    weights = mass * np.exp(-np.square(everyone[:, None] - everyone[None]).sum(-1) / h[:, None] ** 2)
    ordered = np.unique(scores)
    kept = 0.0
    edges = np.concatenate([[ordered[0] - 1.0], ordered, [ordered[-1] + 1.0]])
    for low, high, radius in zip(edges[:-1], edges[1:], np.append(ordered, np.inf), strict=True):
        v = np.append(scores, (low + high) / 2)
        share = np.array([weights[i][v < v[i]].sum() / weights[i].sum() for i in range(m + 1)])
        if mass[share < share[-1]].sum() / mass.sum() < level:
            kept = radius
    return kept


def radius(queries, rows, levels, *, own=None, bandwidths=None, row_bandwidths=None):
    """Bandwidths of the rows come in the order of the rows, and are sorted with them."""
    sorted_bandwidths = None if row_bandwidths is None else row_bandwidths[rows.order]
    asked = Queries(queries, own, bandwidths=bandwidths)
    return calibrated_radius(asked, rows, standing(rows, sorted_bandwidths), np.array(levels))


@given(
    m=st.integers(1, 25),
    k=st.integers(1, 3),
    spread=st.floats(0.1, 2.0),
    ties=st.booleans(),
    seed=st.integers(0, 10_000),
    level=st.sampled_from([0.2, 0.5, 0.8, 0.9]),
    weighted=st.booleans(),
    adaptive=st.booleans(),
)
def test_equals_brute_force(m, k, spread, ties, seed, level, weighted, adaptive):
    rng = np.random.default_rng(seed)
    points, query = rng.normal(size=(m, k)) * spread, rng.normal(size=(1, k)) * spread
    scores = np.abs(rng.normal(size=m))
    scores = scores.round(1) + 0.1 if ties else scores
    ratios, own = (rng.gamma(2.0, size=m), rng.gamma(2.0)) if weighted else (None, 1.0)
    h = np.exp(rng.uniform(0.0, 1.5, size=m + 1)) if adaptive else None
    rows = SortedRows.of(
        torch.tensor(points), torch.tensor(scores), ratios=None if ratios is None else torch.tensor(ratios)
    )
    ours = radius(
        torch.tensor(query),
        rows,
        [level],
        own=torch.tensor([own], dtype=torch.float64),
        bandwidths=None if h is None else torch.tensor(h[-1:]),
        row_bandwidths=None if h is None else torch.tensor(h[:-1]),
    )
    assert ours.item() == brute_force(query, points, scores, level, ratios=ratios, own=own, bandwidths=h)


def test_threads_change_nothing(rng, monkeypatch):
    points, scores = torch.tensor(rng.normal(size=(60, 2))), torch.tensor(np.abs(rng.normal(size=60)))
    queries, rows = torch.tensor(rng.normal(size=(30, 2))), SortedRows.of(points, scores)
    whole = radius(queries, rows, [0.5, 0.9])
    monkeypatch.setattr("lvd._parallel.THREAD_PAIRS", 128)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    torch.testing.assert_close(whole, radius(queries, rows, [0.5, 0.9]), rtol=0, atol=0)


def test_no_calibration_row_is_infinite():
    rows = SortedRows.of(torch.empty(0, 2, dtype=torch.float64), torch.empty(0, dtype=torch.float64))
    assert torch.isinf(radius(torch.zeros(3, 2, dtype=torch.float64), rows, [0.9])).all()


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_a_constant_kernel_gives_split_conformal(rng, level):
    scores = np.abs(rng.normal(size=99))
    rows = SortedRows.of(torch.zeros(99, 2, dtype=torch.float64), torch.tensor(scores))
    ours = radius(torch.zeros(1, 2, dtype=torch.float64), rows, [level])
    assert ours.item() == np.sort(scores)[int(np.ceil(100 * level)) - 1]


@pytest.mark.parametrize("m", [9, 99, 195, 700])
def test_levels_that_are_met_exactly(rng, m):
    """Shares are counts of rows over m + 1, and so are these levels: a quotient may not lose its last digit."""
    scores = np.sort(rng.gamma(1.0, size=m))
    rows = SortedRows.of(torch.zeros(m, 2, dtype=torch.float64), torch.tensor(scores))
    ours = radius(torch.zeros(1, 2, dtype=torch.float64), rows, np.arange(1, m + 1) / (m + 1))
    np.testing.assert_array_equal(ours[0], scores)
