"""Ranks of weighted quantiles from block sums, with a certificate, compiled for the CPU.

A level l is reached at rank r when ``g = (1 - l) (B + C_r) - l (T - C_r + A)`` is at least 0: C_r is the weight of
the first rows up to r, T that of all rows, A and B the masses at +inf and -inf. A weight of exponent x errs by at
most ``w (c0 + c1 x)``, so g errs by at most ``E = (1 - l) e(C_r) + l e(T - C_r)``, where e sums these errors. The
rank is the first one with ``g >= E``; it is certain if ``g < -E`` one row before.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from numba import njit

from lvd.kernels.compiled import BLOCK, OPTIONS, TILE_QUERIES, weigh

LEAST_TOTAL = 1e-280
"""Below this total weight, weights matter that do not count even in float64; the oracle has them."""


@njit(**OPTIONS)
@no_type_check
def find_ranks(queries, precisions, masses, errors, blocks, n_rows, levels, values, ranks, certain, moments):
    """Fill `ranks` (n, l), -1 for -inf and n_rows for +inf, `certain` (n,) and, where wanted, `moments` (n, 3).

    `masses` (n, 2) lie at +inf and -inf; `errors` (n, 4) are c0, c1, and how much all sums may err by beside,
    relative to the total and absolute. The moments are the sums of w, w^2 and w v, the `values` v in blocks.
    """
    n_blocks = len(blocks.points)
    weights, exponents = np.empty(BLOCK, queries.dtype), np.empty(BLOCK, queries.dtype)
    sums, spreads = np.empty((TILE_QUERIES, n_blocks)), np.empty((TILE_QUERIES, n_blocks))
    for first in range(0, len(queries), TILE_QUERIES):
        last = min(len(queries), first + TILE_QUERIES)
        for i in range(first, last):
            moments[i] = 0.0
        for block in range(n_blocks):
            for i in range(first, last):
                weigh(queries[i], precisions[i], blocks, block, weights, exponents)
                total, spread = 0.0, 0.0
                for j in range(BLOCK):
                    total += np.float64(weights[j])
                for j in range(BLOCK):
                    # Infinite exponents have weight 0.
                    spread += np.float64(weights[j] * min(exponents[j], np.float32(1e6)))
                sums[i - first, block], spreads[i - first, block] = total, spread
                if moments.shape[1]:
                    moments[i, 0] += total
                    squares = 0.0
                    for j in range(BLOCK):
                        squares += np.float64(weights[j]) * np.float64(weights[j])
                    moments[i, 1] += squares
                if len(values):
                    products = 0.0
                    for j in range(BLOCK):
                        products += np.float64(weights[j]) * values[block, j]
                    moments[i, 2] += products
        for i in range(first, last):
            above, below = masses[i]
            certain[i] = True
            for column in range(len(levels)):
                rank, sure = _rank(
                    sums[i - first], spreads[i - first], above, below, levels[column], errors[i],
                    queries[i], precisions[i], blocks, weights, exponents,
                )  # fmt: skip
                ranks[i, column] = min(rank, n_rows)
                certain[i] &= sure


@njit(**OPTIONS)
@no_type_check
def _rank(sums, spreads, above, below, level, errors, query, precision, blocks, weights, exponents):
    """The rank of one query at one level, and whether it is certain."""
    total, spread = sums.sum(), spreads.sum()
    everything = total + above + below
    if not (LEAST_TOTAL < everything < np.inf):
        return BLOCK * len(sums), False
    gap, error = _gap(0.0, 0.0, total, spread, above, below, level, errors)
    if gap >= error:
        return -1, True
    reached, reached_spread, block = 0.0, 0.0, 0
    while block < len(sums):
        gap, error = _gap(
            reached + sums[block], reached_spread + spreads[block], total, spread, above, below, level, errors
        )
        if gap >= error:
            break
        reached, reached_spread, block = reached + sums[block], reached_spread + spreads[block], block + 1
    else:
        return BLOCK * len(sums), gap < -error
    weigh(query, precision, blocks, block, weights, exponents)
    gap, error = _gap(reached, reached_spread, total, spread, above, below, level, errors)
    for j in range(BLOCK):
        before = gap < -error
        reached += weights[j]
        reached_spread += weights[j] * min(exponents[j], np.float32(1e6))
        gap, error = _gap(reached, reached_spread, total, spread, above, below, level, errors)
        if gap >= error:
            return BLOCK * block + j, before
    # The block's sum, in another order, was larger by a rounding.
    return BLOCK * (block + 1), False


@njit(**OPTIONS)
@no_type_check
def _gap(reached, reached_spread, total, spread, above, below, level, errors):
    """How far the level is exceeded, and by how much that may err."""
    rest, rest_spread = total - reached, spread - reached_spread
    gap = (1.0 - level) * (below + reached) - level * (rest + above)
    error = (1.0 - level) * (errors[0] * reached + errors[1] * reached_spread)
    error += level * (errors[0] * rest + errors[1] * rest_spread)
    return gap, error + errors[2] * (total + above + below) + errors[3]
