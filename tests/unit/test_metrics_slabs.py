from __future__ import annotations

import math

import numpy as np
import pytest

from lvd import InputError
from lvd.metrics import worst_slab_coverage
from lvd.metrics.conditional import lowest_run


def intervals_that_cover(hits):
    """Intervals that hold y = 0 where `hits` is true."""
    return np.where(hits[:, None], [-1.0, 1.0], [1.0, 2.0])


@pytest.mark.parametrize(
    ("counts", "hits", "min_count", "expected"),
    [
        ([1, 1, 1, 1], [1, 0, 1, 1], 1, (1, 2)),
        ([1, 1, 1, 1], [1, 0, 1, 1], 2, (0, 2)),  # 1/2, as (1, 3): the first to end
        ([1, 1, 1, 1, 2, 1], [1, 0, 1, 0, 0, 1], 3, (3, 5)),  # a cell of two rows counts twice
        ([2, 2], [1, 0], 3, (0, 2)),  # and is never cut in two
    ],
)
def test_the_lowest_run_by_hand(counts, hits, min_count, expected):
    assert lowest_run(np.array(counts), np.array(hits), min_count, (2, 1)) == expected


def test_no_run_under_the_bound_is_none():
    counts, hits = np.ones(4, dtype=int), np.array([1, 0, 1, 0])
    assert lowest_run(counts, hits, 2, (1, 3)) is None  # the lowest is 1/3 itself
    assert lowest_run(counts, hits, 3, (1, 2)) == (1, 4)


def test_a_planted_slab_is_found_and_judged_on_other_rows(rng):
    X = rng.uniform(-1, 1, size=(4000, 2))
    inside = np.abs(X[:, 0] + X[:, 1] - 0.5) < 0.2
    slab = worst_slab_coverage(X, np.zeros(4000), intervals_that_cover(~inside), random_state=0)
    assert slab.search_coverage <= slab.coverage < 0.1
    assert abs(slab.direction @ [1, 1]) / math.sqrt(2) > 0.99
    sign = math.copysign(1, slab.direction[0])
    assert sorted([sign * slab.a, sign * slab.b]) == pytest.approx([0.3 / 2**0.5, 0.7 / 2**0.5], abs=0.05)
    projected = X @ slab.direction
    assert 0 < slab.count < ((slab.a <= projected) & (projected <= slab.b)).sum()


def test_equal_rows_are_never_separated(rng):
    X = np.repeat(rng.normal(size=(20, 3)), 50, axis=0)
    hits = np.tile(np.arange(50) < 45, 20)
    slab = worst_slab_coverage(X, np.zeros(1000), intervals_that_cover(hits), delta=0.04, random_state=0)
    assert slab.search_coverage > 0.5  # a window that cut through the repeated rows would reach 0


def test_a_slab_holds_the_share_it_must(rng):
    X = rng.normal(size=(1000, 3))
    hits = rng.random(1000) < 0.9
    slab = worst_slab_coverage(
        X, np.zeros(1000), intervals_that_cover(hits), delta=0.3, search_fraction=0.5, random_state=1
    )
    assert slab.count > 0.2 * 500


def test_everything_covered_is_coverage_one_and_the_seed_decides_the_slab(rng):
    X, y = rng.normal(size=(100, 2)), np.zeros(100)
    everything = np.tile([-np.inf, np.inf], (100, 1))
    first, again = (worst_slab_coverage(X, y, everything, n_directions=5, random_state=3) for _ in range(2))
    assert first.coverage == first.search_coverage == 1.0
    np.testing.assert_array_equal(first.direction, again.direction)


def test_no_held_out_row_inside_has_no_coverage():
    X = np.array([[0.0], [1.0], [2.0]])
    slab = worst_slab_coverage(X, [0, 0, 0], [[0, 1]] * 3, n_directions=1, random_state=0)
    assert slab.count == 0
    assert math.isnan(slab.coverage)


def test_too_few_rows_to_split_are_refused():
    with pytest.raises(
        InputError, match=r"search_fraction=0\.25 of 1 rows leaves 0 to search and 1 to judge on"
    ):
        worst_slab_coverage([[0.0]], [0], [[0, 1]])
