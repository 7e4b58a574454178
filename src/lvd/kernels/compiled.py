"""Gaussian weights ``exp(-||u - v||^2 / h^2)`` over rows in blocks, compiled for the CPU: their sums and quantiles,
and the gradient by which a kernel is learned; and the projection of embeddings.

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
PAIR, TILE_QUERIES, MANY_QUERIES = 2, 16, 128
CACHED, LARGE = 2**15, 2**20
"""So many queries are held against a block while it is in the first-level cache: two, where the rows are so few
numbers that all of them stay near, and many, where they are so many that each block comes from main memory."""
LOG2_E = 1.4426950408889634
EXP2_SINGLE = (
    0.6931472149680279, 0.24022652782887737, 0.05550310551013797, 0.009617692972993062, 0.0013406643902351759,
    0.0001559467816132662,
)  # fmt: skip
EXP2_DOUBLE = (
    0.6931471805585506, 0.24022650695813708, 0.05550410873971224, 0.009618129159172244, 0.0013333547331461977,
    0.0001540345603665657, 1.5258493063907014e-05, 1.3255182784592006e-06, 9.16811938851594e-08,
)  # fmt: skip
"""Of the polynomials for ``2^t``, |t| <= 1/2, by Remez' algorithm; their relative errors are 2.6e-9 and 7.8e-14,
which is little beside what sums of many weights err by."""
FAST = {"contract", "nsz", "arcp", "reassoc"}
"""Sums may be reordered and fused; infinity and NaN keep their meaning."""
LEAST_TOTAL = 1e-280
"""Below this total weight, weights matter that do not count even in float64; the oracle has them."""
FAINT = 1e-20
"""Where all weights together are less, float32 does not give their moments."""
FARTHEST = 500.0
"""Queries farther from the centre of the rows, in bandwidths, are not for float32: exponents of up to 87 would err
by more than the 1% that the bound leaves for its second order."""
MOST_SPREAD = 0.368
"""``1 / e``, rounded up."""
SINGLE = 1e-10
"""Float32 has a larger unit roundoff than this, float64 a smaller one."""
ROUNDING = {np.dtype(np.float32): (2.0**-24, 2.0**-125), np.dtype(np.float64): (2.0**-53, 2.0**-1020)}
"""The unit roundoff, and below which a weight counts as 0."""


class Blocks(NamedTuple):
    """Rows in blocks: their coordinates, likelihood ratios and precisions ``1 / h^2``; the last two may be empty.

    Past the last row ratios are 0, precisions 1 and coordinates infinite. A `centre` was taken off the
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
    most = BLOCK * 4 // dtype.itemsize  # as many bytes in either precision
    width = min(most, -(-n_rows // STRETCH) * STRETCH)  # all rows, in whole stretches, or so many of them
    centre = np.zeros(k) if centre is None else centre

    def lay_out(columns: Float[NDArray, "m c"], beyond: float) -> Float[NDArray, "b c w"]:
        padded = np.full((-(-n_rows // width) * width, columns.shape[1]), beyond, dtype)
        with np.errstate(over="ignore"):
            padded[:n_rows] = columns
        return np.ascontiguousarray(padded.reshape(-1, width, columns.shape[1]).transpose(0, 2, 1))

    empty = np.empty((0, width), dtype)
    laid = lay_out(np.pad(points - centre, ((0, 0), (0, -k % STRIDE))), np.inf)
    laid[:, k:] = 0.0
    weights = empty if ratios is None else lay_out(ratios[:, None], 0.0)[:, 0]
    own = empty if precisions is None else lay_out(precisions[:, None], 1.0)[:, 0]
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
PART: dict[str, Any] = {"inline": "always", **OPTIONS}
"""Of functions that others here call. Handing the blocks over takes as long as weighing a few rows; and one that
sums by itself would do so in another order in the process that compiled it than in those that read the cache."""


@intrinsic
@no_type_check
def _bits_of(_context, number):
    """The bits of a number as an integer of its size."""
    integer, size = (types.int32, 32) if number == types.float32 else (types.int64, 64)
    return integer(number), lambda _c, builder, _s, args: builder.bitcast(args[0], ir.IntType(size))


@intrinsic
@no_type_check
def _number_of(_context, bits):
    """The number that has these bits."""
    number, kind = (
        (types.float32, ir.FloatType()) if bits == types.int32 else (types.float64, ir.DoubleType())
    )
    return number(bits), lambda _c, builder, _s, args: builder.bitcast(args[0], kind)


def exp_minus(x: float) -> float:
    """``exp(-x)`` for x >= 0 in the precision of x; 0 where :data:`ROUNDING` says so."""
    raise NotImplementedError("compiled code only")


@overload(exp_minus, jit_options={"fastmath": {"contract", "nsz"}})
@no_type_check
def _exp_minus(x):
    """A power of two times a polynomial on the half octaves around 1, that of least relative error with p(0) = 1.

    Adding `round_to`, then taking it off, rounds to a whole number, whose bits are then the last of the sum: here
    sums may not be reordered. At the least exponent the power of two has no bits, which makes it 0.
    """
    if x == types.float32:
        round_to, least, bias, digits = (
            np.float32(1.5 * 2.0**23), np.float32(-127.0), np.int32(127), np.int32(23)
        )  # fmt: skip
        log2_e = np.float32(-LOG2_E)
        c1, c2, c3, c4, c5, c6 = (np.float32(c) for c in EXP2_SINGLE)

        def single(x):
            scaled = max(x * log2_e, least)
            rounded = scaled + round_to
            t = scaled - (rounded - round_to)
            series = np.float32(1.0) + t * (c1 + t * (c2 + t * (c3 + t * (c4 + t * (c5 + t * c6)))))
            return series * _number_of(np.int32((_bits_of(rounded) + bias) << digits))

        return single

    c1, c2, c3, c4, c5, c6, c7, c8, c9 = EXP2_DOUBLE

    def double(x):
        scaled = max(x * -LOG2_E, -1023.0)
        rounded = scaled + 1.5 * 2.0**52
        t = scaled - (rounded - 1.5 * 2.0**52)
        low = c6 + t * (c7 + t * (c8 + t * c9))
        series = 1.0 + t * (c1 + t * (c2 + t * (c3 + t * (c4 + t * (c5 + t * low)))))
        return series * _number_of((_bits_of(rounded) + 1023) << 52)

    return double


@njit(**OPTIONS)
@no_type_check
def project(rows, mean, factors, result):
    """``result = (rows - mean) factors^T``, in which a row's numbers do not depend on the rows beside it.

    Two rows are held against five factors at a time, the last ones of either as often as it takes.
    """
    n_components, width = factors.shape
    centred, chosen = np.empty((2, width)), np.empty(STRIDE, np.int64)
    for i in range(0, len(rows), 2):
        other = min(i + 1, len(rows) - 1)
        for d in range(width):
            centred[0, d] = rows[i, d] - mean[d]
            centred[1, d] = rows[other, d] - mean[d]
        for c in range(0, n_components, STRIDE):
            for place in range(STRIDE):
                chosen[place] = min(c + place, n_components - 1)
            c0, c1, c2, c3, c4 = chosen
            a0, a1, a2, a3, a4 = 0.0, 0.0, 0.0, 0.0, 0.0
            b0, b1, b2, b3, b4 = 0.0, 0.0, 0.0, 0.0, 0.0
            for d in range(width):
                x, y = centred[0, d], centred[1, d]
                f0, f1, f2, f3, f4 = (
                    factors[c0, d],
                    factors[c1, d],
                    factors[c2, d],
                    factors[c3, d],
                    factors[c4, d],
                )
                a0, a1, a2, a3, a4 = a0 + x * f0, a1 + x * f1, a2 + x * f2, a3 + x * f3, a4 + x * f4
                b0, b1, b2, b3, b4 = b0 + y * f0, b1 + y * f1, b2 + y * f2, b3 + y * f3, b4 + y * f4
            result[i, c0], result[i, c1], result[i, c2], result[i, c3], result[i, c4] = a0, a1, a2, a3, a4
            result[other, c0], result[other, c1], result[other, c2] = b0, b1, b2
            result[other, c3], result[other, c4] = b3, b4


@njit(**PART)
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
    if blocks.points.size <= CACHED:
        return PAIR
    return TILE_QUERIES if blocks.points.size <= LARGE else MANY_QUERIES


@njit(**PART)
@no_type_check
def square_distances(queries, blocks, block, left, right):
    """The squared distances of the rows of one block from the first two queries: each row is read once for both."""
    points, width = blocks.points[block], blocks.points.shape[2]
    for j in range(width):
        left[j] = 0
        right[j] = 0
    first, second = queries[0], queries[1]
    for d in range(0, len(first), STRIDE):
        q0, q1, q2, q3, q4 = first[d], first[d + 1], first[d + 2], first[d + 3], first[d + 4]
        r0, r1, r2, r3, r4 = second[d], second[d + 1], second[d + 2], second[d + 3], second[d + 4]
        for j in range(width):
            p0, p1, p2, p3, p4 = (
                points[d, j],
                points[d + 1, j],
                points[d + 2, j],
                points[d + 3, j],
                points[d + 4, j],
            )
            d0, d1, d2, d3, d4 = q0 - p0, q1 - p1, q2 - p2, q3 - p3, q4 - p4
            left[j] += d0 * d0 + d1 * d1 + d2 * d2 + d3 * d3 + d4 * d4
            d0, d1, d2, d3, d4 = r0 - p0, r1 - p1, r2 - p2, r3 - p3, r4 - p4
            right[j] += d0 * d0 + d1 * d1 + d2 * d2 + d3 * d3 + d4 * d4


@njit(**PART)
@no_type_check
def weigh(exponents, precision, blocks, block, weights):
    """From squared distances of a block's rows their exponents ``||u - v||^2 / h^2``, in place, and weights.

    Returns the sum of weights times exponents; infinite exponents have weight 0. In float64, where its error is
    small beside that of sums, it returns the most that it can be, as ``x exp(-x)`` is at most ``1 / e``.
    """
    width = blocks.points.shape[2]
    spread, most = weights.dtype.type(0), np.float32(1e6)
    if len(blocks.precisions):
        for j in range(width):
            exponents[j] *= precision * blocks.precisions[block, j]
    elif precision != 1:
        for j in range(width):
            exponents[j] *= precision
    if blocks.unit < SINGLE:
        for j in range(width):
            weights[j] = exp_minus(exponents[j])
        if not len(blocks.ratios):
            return MOST_SPREAD * width
        for j in range(width):
            weights[j] *= blocks.ratios[block, j]
            spread += blocks.ratios[block, j]
        return MOST_SPREAD * np.float64(spread)
    if len(blocks.ratios):
        for j in range(width):
            weights[j] = blocks.ratios[block, j] * exp_minus(exponents[j])
            spread += weights[j] * min(exponents[j], most)
    else:
        for j in range(width):
            weights[j] = exp_minus(exponents[j])
            spread += weights[j] * min(exponents[j], most)
    return np.float64(spread)


@njit(**OPTIONS)
@no_type_check
def sums_over_blocks(points, precisions, blocks, values, result):
    """``result[i, c] = sum_j w_ij values[c, j]``; `values` are in blocks, (columns, blocks, width)."""
    n_blocks, n_components, width = blocks.points.shape
    dtype, together = blocks.points.dtype, queries_together(blocks)
    queries = np.zeros((together, n_components), dtype)
    weights, exponents = np.empty(width, dtype), np.empty((PAIR, width), dtype)
    for first in range(0, len(points), together):
        last = min(len(points), first + together)
        for i in range(first, last):
            around_centre(points[i], blocks, queries[i - first])
            result[i] = 0.0
        for block in range(n_blocks):
            for pair in range(first, last, PAIR):
                square_distances(queries[pair - first :], blocks, block, exponents[0], exponents[1])
                for i in range(pair, min(pair + PAIR, last)):
                    weigh(exponents[i - pair], dtype.type(precisions[i]), blocks, block, weights)
                    for c in range(values.shape[0]):
                        total = 0.0
                        for j in range(width):
                            total += np.float64(weights[j]) * values[c, block, j]
                        result[i, c] += total


@njit(**PART)
@no_type_check
def weigh_others(queries, own, i, blocks, block, exponents, weights):
    """The weights of a block's rows for query number i, which comes after its neighbour if i is odd.

    `own` are the numbers of the rows that the queries are: of a row to itself the weight is 0.
    """
    first = min(i - i % 2, len(queries) - PAIR)
    if i % 2 == 0:
        square_distances(queries[first:], blocks, block, exponents[0], exponents[1])
    weigh(exponents[i - first], queries.dtype.type(1), blocks, block, weights)
    place = own[i] - block * len(weights)
    if 0 <= place < len(weights):
        weights[place] = 0


@njit(**OPTIONS)
@no_type_check
def add_neighbors(queries, own, blocks, y, sums):
    """Add the rows' weights times their targets to ``sums[0]``, and the weights to ``sums[1]``."""
    width = y.shape[1]
    weights, exponents = np.empty(width, queries.dtype), np.empty((PAIR, width), queries.dtype)
    for block in range(len(y)):
        for i in range(len(queries)):
            weigh_others(queries, own, i, blocks, block, exponents, weights)
            products, total = np.float32(0), np.float32(0)
            for j in range(width):
                products += weights[j] * y[block, j]
                total += weights[j]
            sums[0, i] += products
            sums[1, i] += total


@njit(**OPTIONS)
@no_type_check
def add_pulls(queries, own, blocks, y, slope, offset, on_queries, on_rows):
    """Add ``w_ij (slope_i y_j + offset_i) (p_i - p_j)`` to what pulls at p_i, and its negative at p_j."""
    width = y.shape[1]
    weights, exponents = np.empty(width, queries.dtype), np.empty((PAIR, width), queries.dtype)
    for block in range(len(y)):
        for i in range(len(queries)):
            weigh_others(queries, own, i, blocks, block, exponents, weights)
            for j in range(width):
                weights[j] *= slope[i] * y[block, j] + offset[i]
            for d in range(queries.shape[1]):
                pulled = np.float32(0)
                for j in range(width):
                    pull = weights[j] * (queries[i, d] - blocks.points[block, d, j])
                    pulled += pull
                    on_rows[block, d, j] -= pull
                on_queries[i, d] += pulled


@njit(**PART)
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
    queries, both = np.zeros((2, n_components), dtype), np.empty((2, n_blocks * width), dtype)
    n_few = -(-n_blocks // 4)
    for i in range(len(points)):
        if i % 2 == 0:
            for other in range(i, min(i + 2, len(points))):
                around_centre(points[other], blocks, queries[other - i])
            for place in range(n_blocks):  # every fourth block comes first
                block = 4 * place if place < n_few else place - n_few + (place - n_few) // 3 + 1
                at = slice(place * width, (place + 1) * width)
                square_distances(queries, blocks, block, both[0, at], both[1, at])
        distances, low, high = both[i % 2], 0, last
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
    dtype, together = blocks.points.dtype, min(queries_together(blocks), max(PAIR, len(points)))
    # One more, so that the last has one beside it too.
    queries, narrow = np.zeros((together + 1, n_components), dtype), np.ones(together, dtype)
    weights, exponents = np.empty((PAIR + 1, width), dtype), np.empty((PAIR, width), dtype)
    sums, spreads = np.empty((together, n_blocks)), np.empty((together, n_blocks))
    for first in range(0, len(points), together):
        last = min(len(points), first + together)
        for i in range(first, last):
            around_centre(points[i], blocks, queries[i - first])
            moments[i] = 0.0
            if len(precisions):
                narrow[i - first] = precisions[i]
        for block in range(n_blocks):
            for pair in range(first, last, PAIR):
                square_distances(queries[pair - first :], blocks, block, exponents[0], exponents[1])
                for i in range(pair, min(pair + PAIR, last)):
                    some, x = weights[i - pair], exponents[i - pair]
                    spreads[i - first, block] = weigh(x, narrow[i - first], blocks, block, some)
                    sums[i - first, block] = _sum_by_fours(some)
                    if moments.shape[1]:
                        _add_moments(weights, i - pair, values, block, moments[i])
        for i in range(first, last):
            number = i - first
            # Where queries come in pairs, the last block has just been weighed for this one.
            held, slot = (n_blocks - 1, number) if together == PAIR else (-1, PAIR)
            masses = (above[i] if len(above) else 1.0, below[i] if len(below) else 0.0)
            errors = _errors(points, i, precisions[i] if len(precisions) else 1.0, blocks, largest)
            totals = _sum(sums, number), _sum(spreads, number)
            everything = totals[0] + masses[0] + masses[1]
            faint = moments.shape[1] and blocks.unit > SINGLE and totals[0] < FAINT * max(1.0, largest[1])
            certain[i] = LEAST_TOTAL < everything < np.inf and not faint
            for column in range(len(levels)):
                level = levels[column]
                wanted = level * everything - masses[1]
                block, weight, error = _first_block(sums, spreads, number, totals, wanted, level, errors)
                error += errors[2] * everything + errors[3]
                if wanted > 0.0 and block < n_blocks:
                    if block != held:
                        held, slot = block, PAIR
                        square_distances(queries[number:], blocks, block, exponents[0], exponents[1])
                        weigh(exponents[0], narrow[number], blocks, block, weights[PAIR])
                    place, weight = _place(weights, slot, wanted, weight)
                    sure = _gap(weight, totals[0], masses, level) < -error
                    sure &= _gap(weight + weights[slot, place], totals[0], masses, level) >= error
                else:
                    gap = _gap(weight, totals[0], masses, level)
                    place, sure = (0, gap < -error) if block == n_blocks else (-1, gap >= error)
                ranks[i, column] = min(width * block + place, blocks.n_rows)
                certain[i] &= sure


@njit(**PART)
@no_type_check
def _sum(weights, row):
    total = 0.0
    for j in range(weights.shape[1]):
        total += np.float64(weights[row, j])
    return total


@njit(**PART)
@no_type_check
def _sum_by_fours(weights):
    """The sum of weights, four at a time in their own precision, and these sums in float64."""
    total, quarter = 0.0, len(weights) // 4
    w0, w1, w2, w3 = weights[:quarter], weights[quarter:], weights[2 * quarter :], weights[3 * quarter :]
    for j in range(quarter):
        total += np.float64((w0[j] + w1[j]) + (w2[j] + w3[j]))
    return total


@njit(**PART)
@no_type_check
def _add_moments(weights, row, values, block, moments):
    squares, products = 0.0, 0.0
    for j in range(weights.shape[1]):
        squares += np.float64(weights[row, j]) * np.float64(weights[row, j])
    if len(values):
        for j in range(weights.shape[1]):
            products += np.float64(weights[row, j]) * values[0, block, j]
    moments[0] += _sum(weights, row)
    moments[1] += squares
    moments[2] += products


@njit(**PART)
@no_type_check
def _first_block(sums, spreads, row, totals, wanted, level, errors):
    """The block in which the weights reach what is wanted, or how many there are, the weight before it, and E.

    All of that block counts on both sides, so that E holds wherever in it the rank is. Spreads of a block are sums
    of float32, which the last term is for.
    """
    n_blocks = sums.shape[1]
    block, weight, spread = 0, 0.0, 0.0
    while block < n_blocks and weight + sums[row, block] < wanted:
        weight += sums[row, block]
        spread += spreads[row, block]
        block += 1
    rest = errors[0] * (totals[0] - weight) + errors[1] * (totals[1] - spread)
    reached = errors[0] * weight + errors[1] * spread
    if block < n_blocks:
        reached += errors[0] * sums[row, block] + errors[1] * spreads[row, block]
    return block, weight, (1.0 - level) * reached + level * rest + 1e-4 * errors[1] * totals[1]


@njit(**PART)
@no_type_check
def _place(weights, row, wanted, weight):
    """Where in a block the weights reach what is wanted, and the weight before it."""
    place, width = 0, weights.shape[1]
    while place < width - STRETCH:
        stretch = 0.0
        for j in range(place, place + STRETCH):
            stretch += np.float64(weights[row, j])
        if weight + stretch >= wanted:
            break
        weight += stretch
        place += STRETCH
    while place < width - 1 and weight + weights[row, place] < wanted:
        weight += weights[row, place]
        place += 1
    return place, weight


@njit(**PART)
@no_type_check
def _gap(reached, total, masses, level):
    """How far the level is exceeded where so much weight is reached."""
    return (1.0 - level) * (masses[1] + reached) - level * (total - reached + masses[0])


@njit(**PART)
@no_type_check
def _errors(points, row, precision, blocks, largest):
    """c0 and c1 of :func:`find_ranks`, and how much all sums may err by beside, relative to all mass and absolute.

    Let u be the unit roundoff and x the exponent of a weight. Summing k squares, the exponential and sums of four
    weights cost ``(k + 9) u x + 6 u``, and the polynomial of float64 700 u more. In float32 the coordinates are
    rounded too: a difference d of coordinates q and p errs by ``u (|q| + |p| + |d|)``, which makes
    ``4 u Q sqrt(x) <= 2 u Q (1 + x)`` for a query Q away from the centre, in bandwidths. Q counts what taking the
    centre off lost. Sums of m weights, in whatever order, err by ``m u`` of float64.
    """
    far, away = 0.0, 0.0
    if blocks.unit > SINGLE:
        for d in range(points.shape[1]):
            away += (points[row, d] - blocks.centre[d]) * (points[row, d] - blocks.centre[d])
        lost = 2.0**-26 * (np.sqrt(away) + blocks.centre_length)
        far = (np.sqrt(away) + lost) * np.sqrt(precision * largest[0])
        if far > FARTHEST:
            far = np.inf
    polynomial = 0.0 if blocks.unit > SINGLE else 720.0
    return (
        blocks.unit * (16.0 + 2.0 * far + polynomial),
        1.01 * blocks.unit * (2.0 * points.shape[1] + 10.0 + 2.0 * far),
        (4.0 * blocks.n_rows + 2048.0) * 2.0**-53,
        blocks.n_rows * max(1.0, largest[1]) * blocks.underflow,
    )
