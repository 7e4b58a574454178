"""Which rows the page holds when it cannot hold all of them."""

from __future__ import annotations

import numpy as np

from lvd._typing import Float, Int, NDArray
from lvd.intervals import widths
from lvd.page.evaluation import Evaluated

MOST_ROWS = 1000


def missed_by(y: Float[NDArray, "n"], intervals: Float[NDArray, "n 2"]) -> Float[NDArray, "n"]:
    """How far y lies outside its interval; 0 inside."""
    outside: NDArray = np.maximum(intervals[:, 0] - y, y - intervals[:, 1])
    return np.maximum(outside, 0.0)


def choose_rows(evaluated: Evaluated, *, n_most: int = MOST_ROWS, seed: int = 0) -> Int[NDArray, "k"]:
    """In turn the row missed by most, an infinite one, the widest finite one and one at random, each once.

    The infinite ones come in random order too. What is cut off at the end leaves the same mixture.
    """
    missed, width = missed_by(evaluated.y, evaluated.intervals), widths(evaluated.intervals)
    anyone = np.random.default_rng(seed).permutation(len(missed))
    worst_missed = np.argsort(-missed, kind="stable")[: np.count_nonzero(missed)]
    finite = np.flatnonzero(~evaluated.unlimited)
    widest = finite[np.argsort(-width[finite], kind="stable")]
    lists = [worst_missed, anyone[evaluated.unlimited[anyone]], widest, anyone]
    turns = np.concatenate([np.arange(len(rows)) for rows in lists])
    in_turn = np.concatenate(lists)[np.argsort(turns, kind="stable")]
    _, first = np.unique(in_turn, return_index=True)
    return in_turn[np.sort(first)][:n_most]
