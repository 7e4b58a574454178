"""Sums of rows over time, in blocks whose number is bounded, and rolling windows of them."""

from __future__ import annotations

import numpy as np
import pytest

from lvd.intervals import binomial_band
from lvd.metrics.rolling import MOST_BLOCKS, TimeBlocks, sums_of


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    widths = np.where(rng.uniform(size=n) < 0.1, np.inf, rng.uniform(1, 2, size=n))
    return np.arange(n, dtype=float), rng.uniform(size=n) < 0.9, widths, rng.uniform(size=n) < 0.8


@pytest.mark.parametrize("n", [1, 255, 256, 257, 5000])
def test_no_row_is_lost_and_blocks_are_bounded(n):
    blocks = TimeBlocks()
    for row in sums_of(*rows(n)):
        blocks.add(row)
    assert len(blocks.sums) <= MOST_BLOCKS
    np.testing.assert_allclose(blocks.sums.sum(axis=0), sums_of(*rows(n)).sum(axis=0))
    at_once = TimeBlocks.of(*rows(n))
    assert len(at_once.sums) <= MOST_BLOCKS
    np.testing.assert_allclose(at_once.sums.sum(axis=0), blocks.sums.sum(axis=0))


def test_windows_by_hand():
    moments, covered, widths, known = rows(200)
    found = TimeBlocks.of(moments, covered, widths, known).rolling()
    assert found.window == 50
    assert len(found.coverage) == 151
    for last in (49, 120, 199):
        some = slice(last - 49, last + 1)
        place = last - 49
        assert found.moments[place] == last
        assert found.coverage[place] == covered[some].mean()
        lower, upper = binomial_band(covered[some].sum(), 50)
        np.testing.assert_allclose([found.lower[place], found.upper[place]], [lower, upper])
        np.testing.assert_allclose(found.width[place], widths[some][np.isfinite(widths[some])].mean())
        np.testing.assert_allclose(found.unknown[place], 1 - known[some].mean())


def test_rows_out_of_order_are_sorted():
    moments, *others = rows(300)
    order = np.random.default_rng(1).permutation(300)
    mixed = TimeBlocks.of(moments[order], *(one[order] for one in others))
    np.testing.assert_allclose(mixed.sums, TimeBlocks.of(moments, *others).sums)


def test_few_rows_are_one_window():
    found = TimeBlocks.of(*rows(7)).rolling()
    assert (found.window, len(found.coverage)) == (7, 1)
