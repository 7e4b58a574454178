"""Gaussian weights ``exp(-||u - v||^2 / h^2)`` over rows in blocks, their sums and quantiles, compiled for the CPU.

Squared distances are sums of squared **differences**, so nothing cancels: in float64 they are those of the oracle
but for the order of summation, in float32 they err by a few roundings of the coordinates. Rows are stored in blocks
of ``(components, BLOCK)``, so that one row after the other is the innermost, vectorised loop.

Functions here release the interpreter's lock and start no threads: the caller cuts the queries into chunks. They
are compiled when first used, which is announced, and kept on disk: beside this file, or, where that cannot be
written, in the user's cache (``NUMBA_CACHE_DIR`` names another folder).
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple, no_type_check

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import event
from numba.extending import intrinsic, overload

from lvd._progress import announce
from lvd._typing import Float, NDArray

BLOCK = 512
STRIDE = 5
"""So many coordinates are processed at a time; rows are padded with zeros to a multiple of it."""
TILE_QUERIES = 16
"""So many queries are held against a block while it is in the first-level cache."""
LOG2_E, LN_2 = 1.4426950408889634, 0.6931471805599453
UNDERFLOW = {np.dtype(np.float32): 2.0**-125, np.dtype(np.float64): 2.0**-1020}
"""Weights below this count as 0."""
FAST = {"contract", "nsz", "arcp", "reassoc"}
"""Sums may be reordered and fused; infinity and NaN keep their meaning."""
LEAST_TOTAL = 1e-280
"""Below this total weight, weights matter that do not count even in float64; the oracle has them."""
FIRST_USE = "compiling for the first use, about ten seconds"


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
        if not announce(FIRST_USE) and sys.stderr.isatty():
            print(f"lvd: {FIRST_USE}", file=sys.stderr)

    def on_end(self, ended: Any) -> None:
        """The end is not announced."""


event.register("numba:compile", FirstUse())  # type: ignore[no-untyped-call]
OPTIONS: dict[str, Any] = {
    "nogil": True, "cache": _can_cache(), "fastmath": FAST, "error_model": "numpy",
}  # fmt: skip


class Blocks(NamedTuple):
    """Rows in blocks: their coordinates, likelihood ratios and precisions ``1 / h^2``; the last two may be empty.

    Past the last row ratios are 0, and coordinates infinite where there are no ratios.
    """

    points: Float[NDArray, "b c w"]
    ratios: Float[NDArray, "_ w"]
    precisions: Float[NDArray, "_ w"]


def make_blocks(
    points: Float[NDArray, "m k"],
    ratios: Float[NDArray, "m"] | None,
    precisions: Float[NDArray, "m"] | None,
    dtype: Any,
) -> Blocks:
    """Lay rows out in blocks."""
    padded = _pad(points, np.inf, dtype)
    widened = np.zeros((len(padded), -(-points.shape[1] // STRIDE) * STRIDE), dtype)
    widened[:, : points.shape[1]] = padded
    columns = [
        np.empty((0, BLOCK), dtype) if column is None else _pad(column, 0.0, dtype).reshape(-1, BLOCK)
        for column in (ratios, precisions)
    ]
    laid = np.ascontiguousarray(widened.reshape(-1, BLOCK, widened.shape[1]).transpose(0, 2, 1))
    return Blocks(laid, *columns)


def widen(queries: Float[NDArray, "n k"], dtype: Any) -> Float[NDArray, "n c"]:
    """Queries with as many coordinates as the blocks."""
    wide = np.zeros((len(queries), -(-queries.shape[1] // STRIDE) * STRIDE), dtype)
    with np.errstate(over="ignore"):
        wide[:, : queries.shape[1]] = queries
    return wide


def _pad(array: NDArray, value: float, dtype: Any) -> NDArray:
    padded = np.full((-(-len(array) // BLOCK) * BLOCK, *array.shape[1:]), value, dtype)
    with np.errstate(over="ignore"):
        padded[: len(array)] = array
    return padded


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
    """``exp(-x)`` for x >= 0 in the precision of x; 0 below :data:`UNDERFLOW`."""
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
def weigh(query, precision, blocks, block, weights, exponents):
    """The weights of the rows of one block for one query, and their exponents ``||u - v||^2 / h^2``."""
    points = blocks.points[block]
    for j in range(BLOCK):
        exponents[j] = 0
    for d in range(0, len(query), STRIDE):
        q0, q1, q2, q3, q4 = query[d], query[d + 1], query[d + 2], query[d + 3], query[d + 4]
        for j in range(BLOCK):
            d0, d1, d2 = q0 - points[d, j], q1 - points[d + 1, j], q2 - points[d + 2, j]
            d3, d4 = q3 - points[d + 3, j], q4 - points[d + 4, j]
            exponents[j] += d0 * d0 + d1 * d1 + d2 * d2 + d3 * d3 + d4 * d4
    if len(blocks.precisions):
        for j in range(BLOCK):
            exponents[j] *= precision * blocks.precisions[block, j]
    elif precision != 1:
        for j in range(BLOCK):
            exponents[j] *= precision
    if len(blocks.ratios):
        for j in range(BLOCK):
            weights[j] = blocks.ratios[block, j] * exp_minus(exponents[j])
    else:
        for j in range(BLOCK):
            weights[j] = exp_minus(exponents[j])


@njit(**OPTIONS)
@no_type_check
def sums_over_blocks(queries, precisions, blocks, values, result):
    """``result[i, c] = sum_j w_ij values[c, j]``; `values` are in blocks, (columns, blocks, BLOCK)."""
    weights, exponents = np.empty(BLOCK, queries.dtype), np.empty(BLOCK, queries.dtype)
    for first in range(0, len(queries), TILE_QUERIES):
        last = min(len(queries), first + TILE_QUERIES)
        for i in range(first, last):
            result[i] = 0.0
        for block in range(len(blocks.points)):
            for i in range(first, last):
                weigh(queries[i], precisions[i], blocks, block, weights, exponents)
                for c in range(values.shape[0]):
                    total = 0.0
                    for j in range(BLOCK):
                        total += np.float64(weights[j]) * values[c, block, j]
                    result[i, c] += total


@njit(**OPTIONS)
@no_type_check
def smallest_bandwidths(queries, blocks, precisions, wanted, grid, result):
    """The first of a `grid` of bandwidths, ascending, with which the weights of all rows sum to what is wanted.

    Where none does, the last. `precisions` are ``1 / h^2``; the rows' distances are computed once.
    """
    n_rows = len(blocks.points) * BLOCK
    weights, distances = np.empty(BLOCK, queries.dtype), np.empty(n_rows, queries.dtype)
    for i in range(len(queries)):
        for block in range(len(blocks.points)):
            weigh(queries[i], queries.dtype.type(1), blocks, block, weights, distances[block * BLOCK :])
        low, high = 0, len(grid) - 1
        while low < high:
            middle = (low + high) // 2
            total = 0.0
            for j in range(n_rows):
                total += np.float64(exp_minus(distances[j] * precisions[middle]))
            if total >= wanted:
                high = middle
            else:
                low = middle + 1
        result[i] = grid[high]


@njit(**OPTIONS)
@no_type_check
def find_ranks(queries, precisions, masses, errors, blocks, n_rows, levels, values, ranks, certain, moments):
    """Fill `ranks` (n, l), -1 for -inf and n_rows for +inf, `certain` (n,) and, where wanted, `moments` (n, 3).

    A level l is reached at rank r when ``g = (1 - l) (B + C_r) - l (T - C_r + A)`` is at least 0: C_r is the weight
    of the first rows up to r, T that of all rows, A and B the masses at +inf and -inf. A weight of exponent x errs
    by at most ``w (c0 + c1 x)``, so g errs by at most ``E = (1 - l) e(C_r) + l e(T - C_r)``, where e sums these
    errors. The rank is the first one with ``g >= E``; it is certain if ``g < -E`` one row before.

    `masses` (n, 2) are those at +inf and -inf; `errors` (n, 4) are c0, c1, and how much all sums may err by beside,
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
