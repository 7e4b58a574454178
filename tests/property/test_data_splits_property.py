"""Splits lose no row, double none, and never part a group."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lvd.data import split_indices, three_way_split


@given(n=st.integers(5, 400), seed=st.integers(0, 2**32 - 1))
def test_every_row_is_in_one_part(n: int, seed: int) -> None:
    parts = split_indices(n, seed)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    for part, share in zip(parts, (0.6, 0.2, 0.2), strict=True):
        assert abs(len(part) - share * n) <= 1.0


@given(
    labels=st.lists(st.integers(0, 12), min_size=3, max_size=80).filter(lambda g: len(set(g)) >= 3),
    seed=st.integers(0, 1000),
)
def test_every_group_is_in_one_part(labels: list[int], seed: int) -> None:
    rows = np.arange(len(labels))
    parts = three_way_split(rows, rows, groups=labels, random_state=seed)[:3]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), rows)
    groups = [{labels[row] for row in part} for part in parts]
    assert all(groups)
    assert sum(map(len, groups)) == len(set(labels))
