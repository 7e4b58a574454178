"""Gaussian weights ``exp(-||u - v||^2 / h^2)`` over rows in blocks, their sums and quantiles, compiled for the CPU.

Squared distances are sums of squared **differences**, so nothing cancels: in float64 they are those of the oracle
but for the order of summation, in float32 they err by a few roundings of the coordinates. Rows are stored in blocks
of ``(components, BLOCK)``, so that one row after the other is the innermost, vectorised loop.

Functions here release the interpreter's lock and start no threads: the caller cuts the queries into chunks. They
are compiled when first used, which is announced, and kept on disk: beside this file, or, where that cannot be
written, in the user's cache (``NUMBA_CACHE_DIR`` names another folder). What is kept is compiled again when this
file changes, and only then: so they are all here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, no_type_check

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import event
from numba.extending import intrinsic, overload

from lvd._progress import announce_compiling
from lvd._typing import Float, NDArray

BLOCK, STRETCH = 512, 32
STRIDE = 5
"""So many coordinates are processed at a time; rows are padded with zeros to a multiple of it."""
TILE_QUERIES, CACHED = 16, 2**15
"""So many queries are held against a block while it is in the first-level cache; one, where the rows are no more
numbers than the second, so that all of them stay near."""
LOG2_E, LN_2 = 1.4426950408889634, 0.6931471805599453
FAST = {"contract", "nsz", "arcp", "reassoc"}
"""Sums may be reordered and fused; infinity and NaN keep their meaning."""
LEAST_TOTAL = 1e-280
"""Below this total weight, weights matter that do not count even in float64; the oracle has them."""
FAINT = 1e-20
"""Where all weights together are less, float32 does not give their moments."""
FARTHEST = 500.0
"""Queries farther from the centre of the rows, in bandwidths, are not for float32: exponents of up to 87 would err
by more than the 1% that the bound leaves for its second order."""
SINGLE = 1e-10
"""Float32 has a larger unit roundoff than this, float64 a smaller one."""
ROUNDING = {np.dtype(np.float32): (2.0**-24, 2.0**-125), np.dtype(np.float64): (2.0**-53, 2.0**-1020)}
"""The unit roundoff, and below which a weight counts as 0."""


class Blocks(NamedTuple):
    """Rows in blocks: their coordinates, likelihood ratios and precisions ``1 / h^2``; the last two may be empty.

    Past the last row ratios are 0, and coordinates infinite where there are no ratios. A `centre` was taken off the
    coordinates. `unit` is the roundoff of their precision, and weights below `underflow` count as 0.
    """

    points: Float[NDArray, "b c w"]
    ratios: Float[NDArray, "_ w"]
    precisions: Float[NDArray, "_ w"]
    centre: Float[NDArray, "k"]
    centre_length: float
    n_rows: int
    unit: float
    underflow: float


def make_blocks(
    points: Float[NDArray, "m k"],
    centre: Float[NDArray, "k"] | None = None,
    ratios: Float[NDArray, "m"] | None = None,
    precisions: Float[NDArray, "m"] | None = None,
) -> Blocks:
    """Lay rows out in blocks: in float32 around a centre, near which it keeps more digits, else in float64."""
    n_rows, k = points.shape
    dtype = np.dtype(np.float64 if centre is None else np.float32)
    width = min(BLOCK, -(-n_rows // STRETCH) * STRETCH)  # all rows, in whole stretches, or BLOCK of them
    centre = np.zeros(k) if centre is None else centre

    def lay_out(columns: Float[NDArray, "m c"], beyond: float) -> Float[NDArray, "b c w"]:
        padded = np.full((-(-n_rows // width) * width, columns.shape[1]), beyond, dtype)
        with np.errstate(over="ignore"):
            padded[:n_rows] = columns
        return np.ascontiguousarray(padded.reshape(-1, width, columns.shape[1]).transpose(0, 2, 1))

    empty = np.empty((0, width), dtype)
    laid = lay_out(np.pad(points - centre, ((0, 0), (0, -k % STRIDE))), np.inf)
    laid[:, k:] = 0.0
    weights, own = (
        empty if one is None else lay_out(one[:, None], 0.0)[:, 0] for one in (ratios, precisions)
    )
    length = math.hypot(*centre.tolist())
    return Blocks(laid, weights, own, centre, length, n_rows, *ROUNDING[dtype])


def in_blocks(columns: Sequence[Float[NDArray, "m"]], blocks: Blocks) -> Float[NDArray, "c b w"]:
    """Values of the rows laid out as these are, 0 past the last one."""
    n_blocks, _, width = blocks.points.shape
    laid = np.zeros((len(columns), n_blocks, width))
    for column, row in zip(columns, laid, strict=True):
        row.reshape(-1)[: blocks.n_rows] = column
    return laid


def _can_cache() -> bool:
    """Whether numba finds a folder for compiled code; without one it refuses to promise a cache."""
    try:
        njit(cache=True)(lambda: None)
    except RuntimeError:
        return False
    return True


class FirstUse(event.Listener):
    """Says once that compiling begins: to whoever listens, else to a terminal. Code from the cache is silent."""

    said = False

    def on_start(self, begun: Any) -> None:
        """Called by numba when it compiles something; what is not lvd's is not announced."""
        if self.said or not begun.data["dispatcher"].py_func.__module__.startswith("lvd."):
            return
        self.said = True
        announce_compiling()

    def on_end(self, ended: Any) -> None:
        """The end is not announced."""


event.register("numba:compile", FirstUse())  # type: ignore[no-untyped-call]
OPTIONS: dict[str, Any] = {
    "nogil": True, "cache": _can_cache(), "fastmath": FAST, "error_model": "numpy",
}  # fmt: skip


@intrinsic
@no_type_check
def _power_of_two_32(_context, _exponent):
    """The float32 whose biased exponent, shifted into place, is given."""
    return types.float32(types.int32), lambda _c, builder, _s, args: builder.bitcast(args[0], ir.FloatType())


@intrinsic
@no_type_check
def _power_of_two_64(_context, _exponent):
    return types.float64(types.int64), lambda _c, builder, _s, args: builder.bitcast(args[0], ir.DoubleType())


def exp_minus(x: float) -> float:
    """``exp(-x)`` for x >= 0 in the precision of x; 0 where :data:`ROUNDING` says so."""
    raise NotImplementedError("compiled code only")


@overload(exp_minus, jit_options={"fastmath": FAST})
@no_type_check
def _exp_minus(x):
    """Powers of two times a Taylor series on half an octave, to the sixth and to the thirteenth order."""
    if x == types.float32:

        def single(x):
            scaled = x * np.float32(-LOG2_E)
            clamped = max(scaled, np.float32(-125.0))
            whole = np.int32(clamped - np.float32(0.5))
            part = clamped - np.float32(whole)
            low = np.float32(5.5504109e-2) + part * (
                np.float32(9.6181291e-3) + part * (np.float32(1.3333558e-3) + part * np.float32(1.5403530e-4))
            )
            series = np.float32(1.0) + part * (
                np.float32(6.9314718e-1) + part * (np.float32(2.4022651e-1) + part * low)
            )
            power = _power_of_two_32((whole + np.int32(127)) << np.int32(23))
            return series * power if scaled > np.float32(-125.0) else np.float32(0.0)

        return single

    def double(x):
        scaled = x * -LOG2_E
        clamped = max(scaled, -1020.0)
        whole = np.int64(clamped - 0.5)
        t = (clamped - whole) * LN_2
        low = 1 / 5040.0 + t * (1 / 40320.0 + t * (1 / 362880.0 + t * (1 / 3628800.0 + t * (
            1 / 39916800.0 + t * (1 / 479001600.0 + t / 6227020800.0)))))  # fmt: skip
        series = 1.0 + t * (1.0 + t * (0.5 + t * (1 / 6.0 + t * (1 / 24.0 + t * (1 / 120.0 + t * (
            1 / 720.0 + t * low))))))  # fmt: skip
        return series * _power_of_two_64((whole + 1023) << 52) if scaled > -1020.0 else 0.0

    return double


@njit(**OPTIONS)
@no_type_check
def around_centre(point, blocks, query):
    """Write a query's coordinates as the blocks hold those of rows: around their centre, in their precision."""
    for d in range(len(point)):
        query[d] = point[d] - blocks.centre[d]
    for d in range(len(point), len(query)):
        query[d] = 0


@njit(**OPTIONS)
@no_type_check
def queries_together(blocks):
    """How many queries are held against a block at a time."""
    return 1 if blocks.points.size <= CACHED else TILE_QUERIES


@njit(**OPTIONS)
@no_type_check
def square_distances(query, blocks, block, exponents):
    """The squared distances of the rows of one block from one query."""
    points, width = blocks.points[block], blocks.points.shape[2]
    for j in range(width):
        exponents[j] = 0
    for d in range(0, len(query), STRIDE):
        q0, q1, q2, q3, q4 = query[d], query[d + 1], query[d + 2], query[d + 3], query[d + 4]
        for j in range(width):
            d0, d1, d2 = q0 - points[d, j], q1 - points[d + 1, j], q2 - points[d + 2, j]
            d3, d4 = q3 - points[d + 3, j], q4 - points[d + 4, j]
            exponents[j] += d0 * d0 + d1 * d1 + d2 * d2 + d3 * d3 + d4 * d4


@njit(**OPTIONS)
@no_type_check
def weigh(query, precision, blocks, block, weights, exponents):
    """The weights of the rows of one block for one query, and their exponents ``||u - v||^2 / h^2``."""
    width = blocks.points.shape[2]
    square_distances(query, blocks, block, exponents)
    if len(blocks.precisions):
        for j in range(width):
            exponents[j] *= precision * blocks.precisions[block, j]
    elif precision != 1:
        for j in range(width):
            exponents[j] *= precision
    if len(blocks.ratios):
        for j in range(width):
            weights[j] = blocks.ratios[block, j] * exp_minus(exponents[j])
    else:
        for j in range(width):
            weights[j] = exp_minus(exponents[j])


@njit(**OPTIONS)
@no_type_check
def sums_over_blocks(points, precisions, blocks, values, result):
    """``result[i, c] = sum_j w_ij values[c, j]``; `values` are in blocks, (columns, blocks, width)."""
    n_blocks, n_components, width = blocks.points.shape
    dtype, together = blocks.points.dtype, queries_together(blocks)
    queries = np.empty((together, n_components), dtype)
    weights, exponents = np.empty(width, dtype), np.empty(width, dtype)
    for first in range(0, len(points), together):
        last = min(len(points), first + together)
        for i in range(first, last):
            around_centre(points[i], blocks, queries[i - first])
            result[i] = 0.0
        for block in range(n_blocks):
            for i in range(first, last):
                weigh(queries[i - first], dtype.type(precisions[i]), blocks, block, weights, exponents)
                for c in range(values.shape[0]):
                    total = 0.0
                    for j in range(width):
                        total += np.float64(weights[j]) * values[c, block, j]
                    result[i, c] += total


@njit(**OPTIONS)
@no_type_check
def weights_reach(distances, precision, wanted):
    """Whether ``sum_j exp(-precision d_j)`` is what is wanted or more."""
    total = 0.0
    for first in range(0, len(distances), BLOCK):
        some, part = distances[first : first + BLOCK], distances.dtype.type(0)
        for j in range(len(some)):
            part += exp_minus(some[j] * precision)
        total += np.float64(part)
        if total >= wanted:
            return True
    return False


@njit(**OPTIONS)
@no_type_check
def smallest_bandwidths(points, blocks, precisions, wanted, grid, result):
    """The first of a `grid` of bandwidths, ascending, with which the weights of all rows sum to what is wanted.

    Where none does, the last. `precisions` are ``1 / h^2``; the rows' distances are computed once. A quarter of the
    blocks guess where in the grid the answer is, and steps of growing length from there find it.
    """
    n_blocks, n_components, width = blocks.points.shape
    dtype, last = blocks.points.dtype, len(grid) - 1
    query, distances = np.empty(n_components, dtype), np.empty(n_blocks * width, dtype)
    n_few = -(-n_blocks // 4)
    for i in range(len(points)):
        around_centre(points[i], blocks, query)
        for place in range(n_blocks):  # every fourth block comes first
            block = 4 * place if place < n_few else place - n_few + (place - n_few) // 3 + 1
            square_distances(query, blocks, block, distances[place * width : (place + 1) * width])
        low, high = 0, last
        while low < high:
            middle = (low + high) // 2
            if weights_reach(distances[: n_few * width], precisions[middle], wanted * n_few / n_blocks):
                high = middle
            else:
                low = middle + 1
        guess, step, low, high = high, 1, 0, last
        while low < high:
            if weights_reach(distances, precisions[guess], wanted):
                high = guess
                guess = max(low, guess - step)
            else:
                low = guess + 1
                guess = min(high - 1, guess + step)
            step *= 2
        result[i] = grid[high]


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
    far, away = 0.0, 0.0
    if blocks.unit > SINGLE:
        for d in range(len(point)):
            away += (point[d] - blocks.centre[d]) * (point[d] - blocks.centre[d])
        lost = 2.0**-26 * (np.sqrt(away) + blocks.centre_length)
        far = (np.sqrt(away) + lost) * np.sqrt(precision * largest[0])
        if far > FARTHEST:
            far = np.inf
    return (
        blocks.unit * (16.0 + 2.0 * far),
        1.01 * blocks.unit * (2.0 * len(point) + 10.0 + 2.0 * far),
        (4.0 * blocks.n_rows + 2048.0) * 2.0**-53,
        blocks.n_rows * max(1.0, largest[1]) * blocks.underflow,
    )
