"""What the diagnostics promise, each beside a version without the safeguard, which breaks the promise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from lvd.metrics import group_coverage, worst_slab_coverage

LEVEL, REJECT = 0.9, 1e-6


def intervals_that_cover(hits):
    """Intervals that hold y = 0 where `hits` is true."""
    return np.where(hits[:, None], [-1.0, 1.0], [1.0, 2.0])


@pytest.fixture(scope="module")
def slabs():
    """Worst slabs of data whose coverage is the level at every x."""
    rng = np.random.default_rng(0)
    found = []
    for seed in range(60):
        X, hits = rng.normal(size=(400, 3)), rng.random(400) < LEVEL
        found.append(
            worst_slab_coverage(
                X, np.zeros(400), intervals_that_cover(hits), n_directions=50, random_state=seed
            )
        )
    return found


def test_held_out_rows_judge_the_worst_slab_fairly(slabs):
    n = sum(slab.count for slab in slabs)
    hits = round(sum(slab.coverage * slab.count for slab in slabs if slab.count))
    assert stats.binomtest(hits, n, LEVEL).pvalue > REJECT


def test_the_rows_that_chose_the_slab_do_not(slabs):
    n = 10 * len(slabs)  # delta = 0.1 of the 100 rows searched
    hits = round(sum(slab.search_coverage * 10 for slab in slabs))
    assert stats.binomtest(hits, n, LEVEL, alternative="less").pvalue < REJECT


@pytest.fixture(scope="module")
def verdicts():
    """Coverage of 20 groups, all of them at the level, in 400 draws."""
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(20), 50)
    draws = (rng.random(1000) < LEVEL for _ in range(400))
    return [group_coverage(np.zeros(1000), intervals_that_cover(hits), groups, LEVEL) for hits in draws]


def test_sound_groups_are_rarely_flagged(verdicts):
    alarms = sum(any(row.below_level for row in rows) for rows in verdicts)
    assert stats.binomtest(alarms, len(verdicts), 0.05, alternative="greater").pvalue > REJECT


def test_without_the_correction_they_often_would_be(verdicts):
    alarms = sum(any(row.p_value <= 0.05 for row in rows) for rows in verdicts)
    assert stats.binomtest(alarms, len(verdicts), 0.05, alternative="greater").pvalue < REJECT


def test_the_band_holds_the_truth(verdicts):
    rows = [row for rows in verdicts for row in rows]
    held = sum(row.lower <= LEVEL <= row.upper for row in rows)
    assert stats.binomtest(held, len(rows), 0.95, alternative="less").pvalue > REJECT


def test_the_normal_band_does_not(verdicts):
    rows = [row for rows in verdicts for row in rows]
    half = [1.96 * np.sqrt(row.coverage * (1 - row.coverage) / row.count) for row in rows]
    held = sum(abs(row.coverage - LEVEL) <= h for row, h in zip(rows, half, strict=True))
    assert stats.binomtest(held, len(rows), 0.95, alternative="less").pvalue < REJECT
