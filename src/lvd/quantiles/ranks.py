"""Ranks of weighted quantiles over rows in blocks, with a bound of their errors, compiled for the CPU."""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from numba import njit

from lvd.kernels.compiled import OPTIONS, STRETCH, around_centre, in_blocks, queries_together, weigh

__all__ = ["find_ranks", "in_blocks"]

LEAST_TOTAL = 1e-280
"""Below this total weight, weights matter that do not count even in float64; the oracle has them."""
FAINT = 1e-20
"""Where all weights together are less, float32 does not give their moments."""
FARTHEST = 500.0
"""Queries farther from the centre of the rows, in bandwidths, are not for float32: exponents of up to 87 would err
by more than the 1% that the bound leaves for its second order."""
SINGLE = 1e-10
"""Float32 has a larger unit roundoff than this, float64 a smaller one."""


@njit(**OPTIONS)
@no_type_check
def find_ranks(points, above, below, precisions, blocks, largest, levels, values, ranks, certain, moments):
    """Fill `ranks` (n, l), -1 for -inf and n_rows for +inf, `certain` (n,) and, where wanted, `moments` (n, 3).

    A level l is reached at rank r when ``g = (1 - l) (B + C_r) - l (T - C_r + A)`` is at least 0: C_r is the weight
    of the first rows up to r, T that of all rows, A and B the masses at +inf and -inf. A weight of exponent x errs
    by at most ``w (c0 + c1 x)``, so g errs by at most ``E = (1 - l) e(C_r) + l e(T - C_r)``, where e sums these
    errors. The rank is certain if ``g >= E`` there and ``g < -E`` one row before.

    `above`, `below` and `precisions` are empty where they are 1, 0 and 1. `largest` are the rows' largest precision
    and likelihood ratio. The moments are the sums of w, w^2 and w v, the `values` v in blocks, which may be none.
    """
    n_blocks, n_components, width = blocks.points.shape
    dtype, together = blocks.points.dtype, queries_together(blocks)
    queries, narrow = np.empty((together, n_components), dtype), np.ones(together, dtype)
    weights, exponents = np.empty(width, dtype), np.empty(width, dtype)
    sums, spreads = np.empty((together, n_blocks)), np.empty((together, n_blocks))
    for first in range(0, len(points), together):
        last = min(len(points), first + together)
        for i in range(first, last):
            around_centre(points[i], blocks, queries[i - first])
            moments[i] = 0.0
            if len(precisions):
                narrow[i - first] = precisions[i]
        for block in range(n_blocks):
            for i in range(first, last):
                weigh(queries[i - first], narrow[i - first], blocks, block, weights, exponents)
                sums[i - first, block], spreads[i - first, block] = _sum(weights), _spread(weights, exponents)
                if moments.shape[1]:
                    _add_moments(weights, values, block, moments[i])
        for i in range(first, last):
            # Where queries come one by one, the last block has just been weighed for this one.
            held = n_blocks - 1 if together == 1 else -1
            masses = (above[i] if len(above) else 1.0, below[i] if len(below) else 0.0)
            errors = _errors(points[i], precisions[i] if len(precisions) else 1.0, blocks, largest)
            total, spread = _sum(sums[i - first]), _sum(spreads[i - first])
            everything = total + masses[0] + masses[1]
            faint = moments.shape[1] and blocks.unit > SINGLE and total < FAINT * max(1.0, largest[1])
            certain[i] = LEAST_TOTAL < everything < np.inf and not faint
            for column in range(len(levels)):
                wanted = levels[column] * everything - masses[1]
                block, reached = _first_block(sums[i - first], spreads[i - first], wanted)
                if wanted > 0.0 and block < n_blocks:
                    if block != held:
                        weigh(queries[i - first], narrow[i - first], blocks, block, weights, exponents)
                        held = block
                    place, sure = _place(
                        weights, exponents, wanted, reached, (total, spread), masses, levels[column], errors
                    )
                else:
                    gap, error = _gap(reached, (total, spread), masses, levels[column], errors)
                    place, sure = (0, gap < -error) if block == n_blocks else (-1, gap >= error)
                ranks[i, column] = min(width * block + place, blocks.n_rows)
                certain[i] &= sure


@njit(**OPTIONS)
@no_type_check
def _sum(weights):
    total = 0.0
    for j in range(len(weights)):
        total += np.float64(weights[j])
    return total


@njit(**OPTIONS)
@no_type_check
def _spread(weights, exponents):
    """The sum of weights times exponents; infinite exponents have weight 0."""
    spread = 0.0
    for j in range(len(weights)):
        spread += np.float64(weights[j] * min(exponents[j], np.float32(1e6)))
    return spread


@njit(**OPTIONS)
@no_type_check
def _add_moments(weights, values, block, moments):
    squares, products = 0.0, 0.0
    for j in range(len(weights)):
        squares += np.float64(weights[j]) * np.float64(weights[j])
    if len(values):
        for j in range(len(weights)):
            products += np.float64(weights[j]) * values[0, block, j]
    moments[0] += _sum(weights)
    moments[1] += squares
    moments[2] += products


@njit(**OPTIONS)
@no_type_check
def _first_block(sums, spreads, wanted):
    """The block in which the weights reach what is wanted, or how many there are; weight and spread before it."""
    weight, spread = 0.0, 0.0
    for block in range(len(sums)):
        if weight + sums[block] >= wanted:
            return block, (weight, spread)
        weight += sums[block]
        spread += spreads[block]
    return len(sums), (weight, spread)


@njit(**OPTIONS)
@no_type_check
def _place(weights, exponents, wanted, reached, totals, masses, level, errors):
    """Where in a block the weights reach what is wanted, and whether that is certain."""
    place, weight = 0, reached[0]
    while place < len(weights):
        stretch = 0.0
        for j in range(place, place + STRETCH):
            stretch += np.float64(weights[j])
        if weight + stretch >= wanted:
            break
        weight += stretch
        place += STRETCH
    while place < len(weights) and weight + weights[place] < wanted:
        weight += weights[place]
        place += 1
    if place == len(weights):  # the block's sum, in another order, was larger by a rounding
        return 0, False
    spread = reached[1] + _spread(weights[:place], exponents[:place])
    gap, error = _gap((weight, spread), totals, masses, level, errors)
    before = gap < -error
    weight += weights[place]
    spread += weights[place] * min(exponents[place], np.float32(1e6))
    gap, error = _gap((weight, spread), totals, masses, level, errors)
    return place, before and gap >= error


@njit(**OPTIONS)
@no_type_check
def _gap(reached, totals, masses, level, errors):
    """How far the level is exceeded where so much weight and spread is reached, and by how much that may err."""
    rest, rest_spread = totals[0] - reached[0], totals[1] - reached[1]
    gap = (1.0 - level) * (masses[1] + reached[0]) - level * (rest + masses[0])
    error = (1.0 - level) * (errors[0] * reached[0] + errors[1] * reached[1])
    error += level * (errors[0] * rest + errors[1] * rest_spread)
    return gap, error + errors[2] * (totals[0] + masses[0] + masses[1]) + errors[3]


@njit(**OPTIONS)
@no_type_check
def _errors(point, precision, blocks, largest):
    """c0 and c1 of :func:`find_ranks`, and how much all sums may err by beside, relative to all mass and absolute.

    Let u be the unit roundoff and x the exponent of a weight. Summing k squares and the exponential cost
    ``(k + 9) u x + 4 u``. In float32 the coordinates are rounded too: a difference d of coordinates q and p errs by
    ``u (|q| + |p| + |d|)``, which makes ``4 u Q sqrt(x) <= 2 u Q (1 + x)`` for a query Q away from the centre,
    in bandwidths. Q counts what taking the centre off lost. Sums of m weights, in whatever order, err by ``m u`` of
    float64.
    """
    far, length, centre_length, reach = 0.0, 0.0, 0.0, 0.0
    if blocks.unit > SINGLE:
        for d in range(len(point)):
            length += point[d] * point[d]
            centre_length += blocks.centre[d] * blocks.centre[d]
            reach += (point[d] - blocks.centre[d]) * (point[d] - blocks.centre[d])
        lost = 2.0**-27 * (np.sqrt(length) + np.sqrt(centre_length))
        far = (np.sqrt(reach) + lost) * np.sqrt(precision * largest[0])
        if far > FARTHEST:
            far = np.inf
    return (
        blocks.unit * (16.0 + 2.0 * far),
        1.01 * blocks.unit * (2.0 * len(point) + 10.0 + 2.0 * far),
        (4.0 * blocks.n_rows + 2048.0) * 2.0**-53,
        blocks.n_rows * max(1.0, largest[1]) * blocks.underflow,
    )
