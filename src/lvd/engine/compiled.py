"""Gaussian weights ``exp(-||u - v||^2 / h^2)`` of rows in blocks, compiled for the CPU: their sums and quantiles,
the gradient for learning a kernel, and the projection of embeddings.

Squared distances are sums of squared **differences**, so nothing cancels: in float64 they equal the oracle's up
to the order of summation, in float32 they are off by a few roundings of the coordinates. Rows are stored in
blocks of ``(components, rows)``, so that the innermost, vectorised loop runs over rows; for many queries among
few rows it runs over queries.

Functions here release the interpreter lock and start no threads: the caller splits the queries into chunks. They
are compiled on first use, with a notice, and cached on disk: beside this file or, if that is not writable, in the
user's cache (``NUMBA_CACHE_DIR`` names another folder). Numba recompiles them only when this file changes, so
they are all here.
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
from lvd._validation import ArrayCheck, MisfitError, Sizes, checked

BLOCK_BYTES, WHOLE, STRETCH = 20 * 1024, 64, 16
"""Blocks of this many bytes stay in the first-level cache with their results; they hold a multiple of 64 rows,
512 with ten coordinates in float32. A search adds up 16 of them at a time."""
TEN, STRIDE = 10, 5
"""Coordinates are processed ten at a time, padded with zeros; factors of a projection five at a time."""
PAGE = 4096
"""Rows and their weights are aligned to this many bytes. Otherwise reads cross cache lines; and if weights are
written less than 256 bytes ahead of where rows are read, judging by the last twelve bits of the addresses, the
processor stalls to check whether they overlap (4K aliasing)."""
TILE_QUERIES, MANY_QUERIES, LARGE = 16, 128, 2**20
"""This many queries are processed per block while it is in the first-level cache; more if the rows are so many
numbers that each block comes from main memory."""
LANES, MOST_LANES, KEPT = 16, 512, 2**17
"""Lanes of queries come in sixteens, at most 512, and fewer if more weights than this would have to be kept."""
LOG2_E = 1.4426950408889634
EXP2_SINGLE = (
    0.6931472149680279, 0.24022652782887737, 0.05550310551013797, 0.009617692972993062, 0.0013406643902351759,
    0.0001559467816132662,
)  # fmt: skip
EXP2_DOUBLE = (
    0.6931471805585506, 0.24022650695813708, 0.05550410873971224, 0.009618129159172244, 0.0013333547331461977,
    0.0001540345603665657, 1.5258493063907014e-05, 1.3255182784592006e-06, 9.16811938851594e-08,
)  # fmt: skip
"""Coefficients of the polynomials for ``2^t``, |t| <= 1/2, by the Remez algorithm; their relative errors, 2.6e-9
and 7.8e-14, are small compared with those of sums of many weights."""
FAST = {"contract", "nsz", "reassoc"}
"""Sums may be reordered and fused; infinity and NaN keep their meaning, and quotients their last digit."""
LEAST_TOTAL = 1e-280
"""Below this total weight, even weights that underflow in float64 matter; the oracle keeps them."""
FAINT = 1e-20
"""Below this total weight, float32 cannot provide the moments."""
FARTHEST = 500.0
"""Queries farther from the centre of the rows, in bandwidths, need float64: errors of exponents up to 87 would
exceed the 1% that the bound allows for second-order terms."""
SINGLE = 1e-10
"""A threshold between the unit roundoffs of float32 and float64."""
ROUNDING = {np.dtype(np.float32): (2.0**-24, 2.0**-125), np.dtype(np.float64): (2.0**-53, 2.0**-1020)}
"""The unit roundoff, and the weight below which weights count as 0."""


class Blocks(NamedTuple):
    """Rows in blocks: their coordinates, likelihood ratios and precisions ``1 / h^2``; the last two may be empty.

    Padding rows have ratio 0, precision 1 and infinite coordinates. The `centre` has been subtracted from the
    coordinates. `unit` is the unit roundoff of their type, and weights below `underflow` count as 0.
    """

    points: Float[NDArray, "b c w"]
    ratios: Float[NDArray, "_ w"]
    precisions: Float[NDArray, "_ w"]
    centre: Float[NDArray, "k"]
    centre_length: float
    n_rows: int
    unit: float
    underflow: float


SINGLE_BLOCKS, DOUBLE_BLOCKS = (
    tuple(map(ArrayCheck.of, (f"{dtype} b c w", f"?{dtype} b w", f"?{dtype} b w", "float64 k")))
    for dtype in ("float32", "float64")
)


def check_blocks(blocks: Any, sizes: Sizes) -> None:
    """Check blocks in either precision, so that loops stay within bounds."""
    if not isinstance(blocks, Blocks) or not isinstance(blocks.n_rows, int):
        raise MisfitError("Blocks")
    single = isinstance(blocks.points, np.ndarray) and blocks.points.dtype == np.float32
    for check, array in zip(SINGLE_BLOCKS if single else DOUBLE_BLOCKS, blocks[:4], strict=True):
        check(array, sizes)
    padded = sizes["k"] + -sizes["k"] % TEN == sizes["c"] and sizes["w"] % WHOLE == 0
    if not padded or -(-blocks.n_rows // sizes["w"]) != sizes["b"]:
        raise MisfitError("Blocks of one size")
    if sizes.setdefault("m", blocks.n_rows) != blocks.n_rows:
        raise MisfitError("Blocks of m rows")


def check_single_blocks(blocks: Any, sizes: Sizes) -> None:
    """The same for float32."""
    check_blocks(blocks, sizes)
    if blocks.points.dtype != np.float32:
        raise MisfitError("Blocks in float32")


def make_blocks(
    points: Float[NDArray, "m k"],
    centre: Float[NDArray, "k"] | None = None,
    ratios: Float[NDArray, "m"] | None = None,
    precisions: Float[NDArray, "m"] | None = None,
) -> Blocks:
    """Lay rows out in blocks: in float32 around a centre, which keeps more digits, else in float64."""
    n_rows, k = points.shape
    dtype = np.dtype(np.float64 if centre is None else np.float32)
    n_bytes = dtype.itemsize * (k + -k % TEN)  # of a row
    width = min(max(1, BLOCK_BYTES // n_bytes // WHOLE), -(-n_rows // WHOLE)) * WHOLE
    centre = np.zeros(k) if centre is None else centre

    def lay_out(columns: Float[NDArray, "m c"], beyond: float) -> Float[NDArray, "b c w"]:
        padded = np.full((-(-n_rows // width) * width, columns.shape[1]), beyond, dtype)
        with np.errstate(over="ignore"):
            padded[:n_rows] = columns
        turned = padded.reshape(-1, width, columns.shape[1]).transpose(0, 2, 1)
        laid = _on_pages(turned.shape, dtype)
        laid[:] = turned
        return laid

    empty = np.empty((0, width), dtype)
    laid = lay_out(np.pad(points - centre, ((0, 0), (0, -k % TEN))), np.inf)
    laid[:, k:] = 0.0
    weights = empty if ratios is None else lay_out(ratios[:, None], 0.0)[:, 0]
    own = empty if precisions is None else lay_out(precisions[:, None], 1.0)[:, 0]
    length = math.hypot(*centre.tolist())
    return Blocks(laid, weights, own, centre, length, n_rows, *ROUNDING[dtype])


def _on_pages(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray:
    """An array that starts at a page boundary."""
    memory = np.empty(math.prod(shape) * dtype.itemsize + PAGE, np.uint8)
    begin = -memory.ctypes.data % PAGE
    return memory[begin : len(memory) - PAGE + begin].view(dtype).reshape(shape)


def in_blocks(columns: Sequence[Float[NDArray, "m"]], blocks: Blocks) -> Float[NDArray, "c b w"]:
    """Values of the rows in the same layout, with padding 0."""
    n_blocks, _, width = blocks.points.shape
    laid = np.zeros((len(columns), n_blocks, width))
    for column, row in zip(columns, laid, strict=True):
        row.reshape(-1)[: blocks.n_rows] = column
    return laid


def _can_cache() -> bool:
    """Whether numba finds a folder for compiled code; without one it raises an error if a cache is requested."""
    try:
        njit(cache=True)(lambda: None)
    except RuntimeError:
        return False
    return True


class FirstUse(event.Listener):
    """Reports the start of compilation once, to the listener or the terminal; cached code reports nothing."""

    said = False

    def on_start(self, begun: Any) -> None:
        """Called by numba when it compiles something; only lvd's own code is announced."""
        module = begun.data["dispatcher"].py_func.__module__ or ""  # code made by exec has no file
        if self.said or not module.startswith("lvd."):
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
"""For functions that others here call: always inlined. Passing blocks takes as long as weighing a few rows, and a
separate function that sums would do so in another order in the process that compiled it than in those that read
the cache."""


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


ALONE = {"fastmath": {"contract", "nsz"}}
"""For functions in which sums must not be reordered."""


def halvings(distance: float, factor: float) -> float:
    """How often a weight is halved: the squared distance times the factor, capped where ``2^-x`` is 0."""
    raise NotImplementedError("compiled code only")


@overload(halvings, jit_options=ALONE)
@no_type_check
def _halvings(distance, factor):
    most = np.float32(127.0) if distance == types.float32 else 1023.0
    return lambda distance, factor: min(distance * factor, most)


def exp2_minus(x: float) -> float:
    """``2^-x`` for the result of :func:`halvings`, in the precision of x."""
    raise NotImplementedError("compiled code only")


@overload(exp2_minus, jit_options=ALONE)
@no_type_check
def _exp2_minus(x):
    """A power of two times a polynomial on the half octaves around 1, the minimax one with p(0) = 1.

    Computing ``round_to - x`` rounds to an integer, which becomes the low bits of the difference, offset by the
    exponent bias. At the largest number of halvings the bits of the power of two are all 0, so it is 0.
    """
    if x == types.float32:
        round_to, digits = np.float32(1.5 * 2.0**23 + 127.0), np.int32(23)
        c1, c2, c3, c4, c5, c6 = (np.float32(c) for c in EXP2_SINGLE)

        def single(x):
            rounded = round_to - x
            t = (round_to - rounded) - x
            series = np.float32(1.0) + t * (c1 + t * (c2 + t * (c3 + t * (c4 + t * (c5 + t * c6)))))
            return series * _number_of(np.int32(_bits_of(rounded) << digits))

        return single

    c1, c2, c3, c4, c5, c6, c7, c8, c9 = EXP2_DOUBLE
    round_to_double = 1.5 * 2.0**52 + 1023.0

    def double(x):
        rounded = round_to_double - x
        t = (round_to_double - rounded) - x
        low = c6 + t * (c7 + t * (c8 + t * c9))
        series = 1.0 + t * (c1 + t * (c2 + t * (c3 + t * (c4 + t * (c5 + t * low)))))
        return series * _number_of(_bits_of(rounded) << 52)

    return double


def square_distance(points: Any, block: int, d: int, j: int, *query: float) -> float:
    """The squared distance to row j of a block in ten coordinates, starting at coordinate d."""
    raise NotImplementedError("compiled code only")


@overload(square_distance, jit_options=ALONE)
@no_type_check
def _square_distance(points, block, d, j, q0, q1, q2, q3, q4, q5, q6, q7, q8, q9):
    """Two sums of five have less latency than one of ten."""

    def compute(points, block, d, j, q0, q1, q2, q3, q4, q5, q6, q7, q8, q9):
        d0, d1 = q0 - points[block, d, j], q1 - points[block, d + 1, j]
        d2, d3 = q2 - points[block, d + 2, j], q3 - points[block, d + 3, j]
        d4, d5 = q4 - points[block, d + 4, j], q5 - points[block, d + 5, j]
        d6, d7 = q6 - points[block, d + 6, j], q7 - points[block, d + 7, j]
        d8, d9 = q8 - points[block, d + 8, j], q9 - points[block, d + 9, j]
        low = d0 * d0 + d1 * d1 + d2 * d2 + d3 * d3 + d4 * d4
        return low + (d5 * d5 + d6 * d6 + d7 * d7 + d8 * d8 + d9 * d9)

    return compute


@checked(rows="float64 n h", mean="float64 h", factors="float64 k h", result=">float64 n k")
@njit(**OPTIONS)
@no_type_check
def project(rows, mean, factors, result):
    """``result = (rows - mean) factors^T``, where a row's result does not depend on the other rows.

    Two rows are multiplied with five factors at a time; the last of either are repeated to fill up.
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
def row_on_a_page(blocks):
    """Memory for the weights of a block, shaped as one row."""
    width, itemsize = blocks.points.shape[2], blocks.points.itemsize
    memory = np.empty(width + PAGE // itemsize, blocks.points.dtype)
    begin = -memory.ctypes.data % PAGE // itemsize
    return memory[begin : begin + width].reshape(1, width)


@njit(**PART)
@no_type_check
def around_centre(points, i, blocks, queries, number):
    """Write point i as a query in the coordinates of the blocks: centred, in their precision."""
    for d in range(points.shape[1]):
        queries[number, d] = points[i, d] - blocks.centre[d]
    for d in range(points.shape[1], queries.shape[1]):
        queries[number, d] = 0


@njit(**PART)
@no_type_check
def queries_together(blocks):
    """How many queries are processed per block at a time."""
    return TILE_QUERIES if blocks.points.size <= LARGE else MANY_QUERIES


@njit(**PART)
@no_type_check
def square_distances(queries, i, points, block, distances, row):
    """The squared distances of the rows of one block from query i, into a row of `distances`."""
    for d in range(0, points.shape[1], TEN):
        q0, q1, q2, q3 = queries[i, d], queries[i, d + 1], queries[i, d + 2], queries[i, d + 3]
        q4, q5, q6 = queries[i, d + 4], queries[i, d + 5], queries[i, d + 6]
        q7, q8, q9 = queries[i, d + 7], queries[i, d + 8], queries[i, d + 9]
        if d == 0:
            for j in range(points.shape[2]):
                distances[row, j] = square_distance(
                    points, block, 0, j, q0, q1, q2, q3, q4, q5, q6, q7, q8, q9
                )
        else:
            for j in range(points.shape[2]):
                distances[row, j] += square_distance(
                    points, block, d, j, q0, q1, q2, q3, q4, q5, q6, q7, q8, q9
                )


@njit(**PART)
@no_type_check
def weigh(queries, i, precision, blocks, block, weights):
    """The weights of a block's rows for query i, into the one row of `weights`.

    Returns the sum of weights times exponents ``||u - v||^2 / h^2``, without rows so far away that their weight
    is 0. Arrays are passed whole with indices, since reference counting a slice takes as long as a few rows.
    Distances have their own loop: processors look less far ahead in a longer one.
    """
    width, factor = weights.shape[1], weights.dtype.type(LOG2_E * precision)
    spread = weights.dtype.type(0)
    square_distances(queries, i, blocks.points, block, weights, 0)
    if len(blocks.precisions):
        for j in range(width):
            weights[0, j] *= blocks.precisions[block, j]
    if len(blocks.ratios):
        for j in range(width):
            x = halvings(weights[0, j], factor)
            weight = blocks.ratios[block, j] * exp2_minus(x)
            weights[0, j] = weight
            spread += weight * x
    else:
        for j in range(width):
            x = halvings(weights[0, j], factor)
            weight = exp2_minus(x)
            weights[0, j] = weight
            spread += weight * x
    return np.float64(spread) / LOG2_E


@checked(
    points="float64 n k",
    precisions="float64 n",
    blocks=check_blocks,
    values="float64 v b w",
    result=">float64 n v",
)
@njit(**OPTIONS)
@no_type_check
def sums_over_blocks(points, precisions, blocks, values, result):
    """``result[i, c] = sum_j w_ij values[c, j]``; `values` are in blocks, (columns, blocks, width)."""
    n_blocks, n_components, width = blocks.points.shape
    together, weights = queries_together(blocks), row_on_a_page(blocks)
    queries = np.zeros((together, n_components), weights.dtype)
    for first in range(0, len(points), together):
        last = min(len(points), first + together)
        for i in range(first, last):
            around_centre(points, i, blocks, queries, i - first)
            result[i] = 0.0
        for block in range(n_blocks):
            for i in range(first, last):
                weigh(queries, i - first, precisions[i], blocks, block, weights)
                for c in range(values.shape[0]):
                    total = 0.0
                    for j in range(width):
                        total += np.float64(weights[0, j]) * values[c, block, j]
                    result[i, c] += total


@njit(**PART)
@no_type_check
def weigh_others(queries, i, own, blocks, block, weights):
    """The weights of a block's rows for query i, which is row `own`: its weight to itself is 0."""
    weigh(queries, i, 1.0, blocks, block, weights)
    place = own - block * weights.shape[1]
    if 0 <= place < weights.shape[1]:
        weights[0, place] = 0


@checked(
    queries="float32 n c", own="int64 n", blocks=check_single_blocks, y="float32 b w", sums=">float64 2 n"
)
@njit(**OPTIONS)
@no_type_check
def add_neighbors(queries, own, blocks, y, sums):
    """Add the rows' weights times their targets to ``sums[0]``, and the weights to ``sums[1]``."""
    width = y.shape[1]
    weights = row_on_a_page(blocks)
    for block in range(len(y)):
        for i in range(len(queries)):
            weigh_others(queries, i, own[i], blocks, block, weights)
            products, total = np.float32(0), np.float32(0)
            for j in range(width):
                products += weights[0, j] * y[block, j]
                total += weights[0, j]
            sums[0, i] += products
            sums[1, i] += total


@checked(
    queries="float32 n c",
    own="int64 n",
    blocks=check_single_blocks,
    y="float32 b w",
    slope="float32 n",
    offset="float32 n",
    on_queries=">float64 n k",
    on_rows=">float32 b c w",
)
@njit(**OPTIONS)
@no_type_check
def add_pulls(queries, own, blocks, y, slope, offset, on_queries, on_rows):
    """Add ``w_ij (slope_i y_j + offset_i) (p_i - p_j)`` to the gradient at p_i, and its negative to that at p_j."""
    width = y.shape[1]
    weights = row_on_a_page(blocks)
    for block in range(len(y)):
        for i in range(len(queries)):
            weigh_others(queries, i, own[i], blocks, block, weights)
            for j in range(width):
                weights[0, j] *= slope[i] * y[block, j] + offset[i]
            for d in range(on_queries.shape[1]):
                pulled = np.float32(0)
                for j in range(width):
                    pull = weights[0, j] * (queries[i, d] - blocks.points[block, d, j])
                    pulled += pull
                    on_rows[block, d, j] -= pull
                on_queries[i, d] += pulled


@njit(**PART)
@no_type_check
def sum_reaches(distances, n_blocks, factor, wanted):
    """Whether ``sum_j 2^(-factor d_j)`` over this many blocks is at least `wanted`."""
    total = 0.0
    for block in range(n_blocks):
        part = distances.dtype.type(0)
        for j in range(distances.shape[1]):
            part += exp2_minus(halvings(distances[block, j], factor))
        total += np.float64(part)
        if total >= wanted:
            return True
    return False


@checked(
    points="float64 n k",
    blocks=check_blocks,
    precisions="float64 g",
    wanted="number",
    grid="float64 g",
    result=">float64 n",
)
@njit(**OPTIONS)
@no_type_check
def smallest_bandwidths(points, blocks, precisions, wanted, grid, result):
    """The first of an ascending `grid` of bandwidths at which the weights of all rows sum to at least `wanted`.

    If there is none, the last. `precisions` are ``1 / h^2``; the rows' distances are computed once. A quarter of
    the blocks gives a guess, from which steps of growing length search the grid.
    """
    n_blocks, n_components, width = blocks.points.shape
    dtype, last = blocks.points.dtype, len(grid) - 1
    factors = (LOG2_E * precisions).astype(dtype)
    query, distances = np.zeros((1, n_components), dtype), np.empty((n_blocks, width), dtype)
    n_few = -(-n_blocks // 4)
    for i in range(len(points)):
        around_centre(points, i, blocks, query, 0)
        for place in range(n_blocks):  # every fourth block comes first
            block = 4 * place if place < n_few else place - n_few + (place - n_few) // 3 + 1
            square_distances(query, 0, blocks.points, block, distances, place)
        low, high = 0, last
        while low < high:
            middle = (low + high) // 2
            if sum_reaches(distances, n_few, factors[middle], wanted * n_few / n_blocks):
                high = middle
            else:
                low = middle + 1
        guess, step, low, high = high, 1, 0, last
        while low < high:
            if sum_reaches(distances, n_blocks, factors[guess], wanted):
                high = guess
                guess = max(low, guess - step)
            else:
                low = guess + 1
                guess = min(high - 1, guess + step)
            step *= 2
        result[i] = grid[high]


@njit(**PART)
@no_type_check
def _accumulate(query, precision, blocks, ratios, weights, kernel, reached):
    """The kernel around a query at all rows, and the cumulative sums of ratios times kernel, in the rows' order.

    Used by all callers, so that sums of the same numbers are equal bit for bit.
    """
    reached[0] = total = 0.0
    for block in range(len(blocks.points)):
        weigh(query, 0, precision, blocks, block, weights)
        first = block * weights.shape[1]
        for row in range(first, min(first + weights.shape[1], blocks.n_rows)):
            kernel[row] = weights[0, row - first]
            total += ratios[row] * weights[0, row - first]
            reached[row + 1] = total


@checked(
    points="float64 n k",
    precisions="?float64 n",
    blocks=check_blocks,
    ratios="float64 m",
    n_below="int64 n ..m",
    below=">float64 n",
    total=">float64 n",
)
@njit(**OPTIONS)
@no_type_check
def sums_below(points, precisions, blocks, ratios, n_below, below, total):
    """For each point the weight of the first `n_below` rows, and that of all rows; precisions may be empty."""
    weights = row_on_a_page(blocks)
    query = np.zeros((1, blocks.points.shape[1]), weights.dtype)
    kernel, reached = np.empty(blocks.n_rows), np.empty(blocks.n_rows + 1)
    for i in range(len(points)):
        around_centre(points, i, blocks, query, 0)
        precision = precisions[i] if len(precisions) else 1.0
        _accumulate(query, precision, blocks, ratios, weights, kernel, reached)
        below[i], total[i] = reached[n_below[i]], reached[blocks.n_rows]


@checked(
    points="float64 n k",
    own="float64 n",
    precisions="?float64 n",
    blocks=check_blocks,
    around=check_blocks,
    ratios="float64 m",
    below="float64 m",
    total="float64 m",
    n_below="int64 m+1 ..m",
    levels="float64 l",
    ranks=">int64 n l",
)
@njit(**OPTIONS)
@no_type_check
def find_calibrated_ranks(
    points, own, precisions, blocks, around, ratios, below, total, n_below, levels, ranks
):
    """``k* = max{k : S(k) < level}`` of :class:`lvd.calibration.guarantees.Standing`, m for +inf.

    `around` are the same rows with the precisions of their own kernels, if any. S does not decrease, so bisection
    finds k*: it adds up each row's share of S(k) for a dozen k, without sorting.
    """
    m, weights = blocks.n_rows, row_on_a_page(blocks)
    query = np.zeros((1, blocks.points.shape[1]), weights.dtype)
    kernel, values, reached, theta, third = (
        np.empty(m), np.empty(m), np.empty(m + 1), np.empty(m + 1), np.empty(m + 1)
    )  # fmt: skip
    everybody = ratios.sum()
    for i in range(len(points)):
        around_centre(points, i, blocks, query, 0)
        precision = precisions[i] if len(precisions) else 1.0
        _accumulate(query, precision, blocks, ratios, weights, kernel, reached)
        everything = own[i] + reached[m]
        for k in range(m + 1):
            theta[k] = reached[n_below[k]] / everything
        if len(around.precisions):
            _accumulate(query, 1.0, around, ratios, weights, kernel, reached)
        third[0] = beside = 0.0
        for row in range(m):
            mine = own[i] * kernel[row]
            low, high = below[row] / (total[row] + mine), (below[row] + mine) / (total[row] + mine)
            in_first, in_second = high < theta[row], low >= theta[row]
            values[row] = high if in_first else low if in_second else np.inf
            beside += 0.0 if in_first or in_second else ratios[row]
            third[row + 1] = beside
        for column in range(len(levels)):
            least, most = 0, m
            while least < most:
                k = (least + most + 1) // 2
                mass, limit = 0.0, theta[k]
                for row in range(m):
                    mass += ratios[row] if values[row] < limit else 0.0
                if (mass + third[n_below[k]]) / (own[i] + everybody) < levels[column]:
                    least = k
                else:
                    most = k - 1
            ranks[i, column] = least


QUERIES: dict[str, Any] = {
    "points": "float64 n k",
    "above": "?float64 n",
    "below": "?float64 n",
    "precisions": "?float64 n",
    "blocks": check_blocks,
    "largest": "float64 2",
    "levels": "float64 l",
}
FOUND: dict[str, Any] = {"ranks": ">int64 n l", "certain": ">bool n"}


@checked(**QUERIES, values="?float64 1 b w", **FOUND, moments=">float64 n 0|3")
@njit(**OPTIONS)
@no_type_check
def find_ranks(points, above, below, precisions, blocks, largest, levels, values, ranks, certain, moments):
    """Fill `ranks` (n, l), -1 for -inf and n_rows for +inf, `certain` (n,) and, if requested, `moments` (n, 3).

    Level l is reached at rank r if ``g = (1 - l) (B + C_r) - l (T - C_r + A)`` is at least 0: C_r is the weight
    of the first rows up to r, T that of all rows, A and B the masses at +inf and -inf. A weight w with exponent x
    has an error of at most ``w (c0 + c1 x)``, so g has one of at most ``E = (1 - l) e(C_r) + l e(T - C_r)``,
    where e sums these errors. The rank is certain if ``g >= E`` there and ``g < -E`` one row before.

    `above`, `below` and `precisions` are empty if they are 1, 0 and 1 throughout. `largest` are the rows' largest
    precision and likelihood ratio. The moments are the sums of w, w^2 and w v, with the `values` v in blocks,
    possibly none.
    """
    n_blocks, n_components, width = blocks.points.shape
    together, weights = min(queries_together(blocks), len(points)), row_on_a_page(blocks)
    queries = np.zeros((together, n_components), weights.dtype)
    sums, spreads = np.empty((together, n_blocks)), np.empty((together, n_blocks))
    for first in range(0, len(points), together):
        last = min(len(points), first + together)
        for i in range(first, last):
            around_centre(points, i, blocks, queries, i - first)
            moments[i] = 0.0
        for block in range(n_blocks):
            for i in range(first, last):
                precision = precisions[i] if len(precisions) else 1.0
                spreads[i - first, block] = weigh(queries, i - first, precision, blocks, block, weights)
                sums[i - first, block] = _sum_by_fours(weights)
                if moments.shape[1]:
                    _add_moments(weights, values, block, moments, i)
        for i in range(first, last):
            number = i - first
            precision = precisions[i] if len(precisions) else 1.0
            masses = (above[i] if len(above) else 1.0, below[i] if len(below) else 0.0)
            errors = _errors(points, i, precision, blocks, largest)
            totals = _sum(sums, number), _sum(spreads, number)
            everything = totals[0] + masses[0] + masses[1]
            faint = moments.shape[1] and blocks.unit > SINGLE and totals[0] < FAINT * max(1.0, largest[1])
            certain[i] = LEAST_TOTAL < everything < np.inf and not faint
            held = n_blocks - 1 if together == 1 else -1  # of this query
            for column in range(len(levels)):
                level = levels[column]
                wanted = level * everything - masses[1]
                block, weight, error = _first_block(sums, spreads, number, totals, wanted, level, errors)
                error += errors[2] * everything + errors[3]
                if wanted > 0.0 and block < n_blocks:
                    if block != held:
                        weigh(queries, number, precision, blocks, block, weights)
                        held = block
                    place, weight = _place(weights, wanted, weight)
                    sure = _gap(weight, totals[0], masses, level) < -error
                    sure &= _gap(weight + weights[0, place], totals[0], masses, level) >= error
                else:
                    gap = _gap(weight, totals[0], masses, level)
                    place, sure = (0, gap < -error) if block == n_blocks else (-1, gap >= error)
                ranks[i, column] = min(width * block + place, blocks.n_rows)
                certain[i] &= sure


@checked(**QUERIES, **FOUND)
@njit(**OPTIONS)
@no_type_check
def find_ranks_among_few(points, above, below, precisions, blocks, largest, levels, ranks, certain):
    """The same as :func:`find_ranks`, for many queries among few rows without their own bandwidths.

    The innermost loops run over queries, so that no loop sums across lanes; all weights are kept. The errors of
    all weights count on both sides of a rank, and the sum of weights times exponents is replaced by its bound ``T
    log(R / T)`` from Jensen's inequality, where R is the sum of all likelihood ratios.
    """
    n_padded, dtype = -(-blocks.n_rows // STRETCH) * STRETCH, blocks.points.dtype
    n_lanes = -(-min(len(points), MOST_LANES, max(1, KEPT // n_padded)) // LANES) * LANES
    lanes, factors = np.zeros((1, blocks.points.shape[1], n_lanes), dtype), np.ones(n_lanes, dtype)
    rows = np.empty((n_padded, blocks.points.shape[1]), dtype)
    for row in range(n_padded):
        for d in range(rows.shape[1]):
            rows[row, d] = blocks.points[row // blocks.points.shape[2], d, row % blocks.points.shape[2]]
    weights, reached = np.empty((n_padded, n_lanes), dtype), np.empty((n_padded // STRETCH, n_lanes))
    wanted, stretches = np.empty(n_lanes), np.empty(n_lanes, np.int64)
    errors, masses = np.empty(n_lanes), np.empty((n_lanes, 2))
    ratio_sum = np.float64(blocks.n_rows)
    if len(blocks.ratios):
        ratio_sum = np.float64(blocks.ratios.sum())
    for first in range(0, len(points), n_lanes):
        some = range(min(len(points) - first, n_lanes))
        for lane in some:
            factors[lane] = LOG2_E * (precisions[first + lane] if len(precisions) else 1.0)
            for d in range(points.shape[1]):
                lanes[0, d, lane] = points[first + lane, d] - blocks.centre[d]
        _weigh_lanes(rows, lanes, factors, blocks.ratios, weights)
        _sum_stretches(weights, reached)
        totals = reached[-1]
        for lane in some:
            i, total = first + lane, totals[lane]
            masses[lane] = (above[i] if len(above) else 1.0), (below[i] if len(below) else 0.0)
            everything = total + masses[lane, 0] + masses[lane, 1]
            precision = precisions[i] if len(precisions) else 1.0
            c0, c1, relative, absolute = _errors(points, i, precision, blocks, largest)
            spread = 1.001 * total * (np.log(max(1.0, ratio_sum / total)) + 1e-3) if total > 0.0 else 0.0
            errors[lane] = c0 * total + c1 * spread + relative * everything + absolute
            certain[i] = LEAST_TOTAL < everything < np.inf
        for column in range(len(levels)):
            level = levels[column]
            for lane in some:
                above_all, below_all = masses[lane, 0], masses[lane, 1]
                wanted[lane] = level * (totals[lane] + above_all + below_all) - below_all
            _count_below(reached, wanted, stretches)
            for lane in some:
                row, weight = _row_in_lane(weights, reached, lane, stretches[lane], wanted[lane])
                ends = masses[lane, 0], masses[lane, 1]
                sure = _gap(weight, totals[lane], ends, level) < -errors[lane] or row < 0
                if row < n_padded:
                    reached_there = weight + (weights[row, lane] if row >= 0 else 0.0)
                    sure &= _gap(reached_there, totals[lane], ends, level) >= errors[lane]
                ranks[first + lane, column] = min(row, blocks.n_rows)
                certain[first + lane] &= sure


@njit(**PART)
@no_type_check
def _weigh_lanes(rows, lanes, factors, ratios, weights):
    """The weights of all rows for the queries in lanes: rows play the part of queries, and the lanes that of a
    block."""
    for row in range(len(weights)):
        square_distances(rows, row, lanes, 0, weights, row)
        for lane in range(weights.shape[1]):
            weights[row, lane] = exp2_minus(halvings(weights[row, lane], factors[lane]))
        if len(ratios):
            ratio = ratios[row // ratios.shape[1], row % ratios.shape[1]]
            for lane in range(weights.shape[1]):
                weights[row, lane] *= ratio


@njit(**PART)
@no_type_check
def _sum_stretches(weights, reached):
    """The cumulative weights at the end of each stretch, summed four at a time in their own precision."""
    for stretch in range(len(reached)):
        for lane in range(weights.shape[1]):
            reached[stretch, lane] = reached[stretch - 1, lane] if stretch else 0.0
        for row in range(STRETCH * stretch, STRETCH * (stretch + 1), 4):
            for lane in range(weights.shape[1]):
                reached[stretch, lane] += np.float64(
                    (weights[row, lane] + weights[row + 1, lane])
                    + (weights[row + 2, lane] + weights[row + 3, lane])
                )


@njit(**PART)
@no_type_check
def _count_below(reached, wanted, counts):
    """The number of stretches, except the last, at whose end the weight is below `wanted`."""
    for lane in range(len(wanted)):
        counts[lane] = 0
    for stretch in range(len(reached) - 1):
        for lane in range(len(wanted)):
            counts[lane] += reached[stretch, lane] < wanted[lane]


@njit(**PART)
@no_type_check
def _row_in_lane(weights, reached, lane, stretch, wanted):
    """The row at which a query's weights reach `wanted`, and the weight before it.

    The row is -1 if `wanted` is not positive, and past the last row if all weights together are less.
    """
    if wanted <= 0.0:
        return -1, 0.0
    if reached[len(reached) - 1, lane] < wanted:
        return len(weights), reached[len(reached) - 1, lane]
    row, weight = STRETCH * stretch, reached[stretch - 1, lane] if stretch else 0.0
    last = row + STRETCH - 1
    while row < last and weight + weights[row, lane] < wanted:
        weight += weights[row, lane]
        row += 1
    return row, weight


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
    """The sum of weights: four at a time in their own precision, then in float64."""
    total, quarter = 0.0, weights.shape[1] // 4
    for j in range(quarter):
        total += np.float64(
            (weights[0, j] + weights[0, j + quarter])
            + (weights[0, j + 2 * quarter] + weights[0, j + 3 * quarter])
        )
    return total


@njit(**PART)
@no_type_check
def _add_moments(weights, values, block, moments, i):
    squares, products = 0.0, 0.0
    for j in range(weights.shape[1]):
        squares += np.float64(weights[0, j]) * np.float64(weights[0, j])
    if len(values):
        for j in range(weights.shape[1]):
            products += np.float64(weights[0, j]) * values[0, block, j]
    moments[i, 0] += _sum(weights, 0)
    moments[i, 1] += squares
    moments[i, 2] += products


@njit(**PART)
@no_type_check
def _first_block(sums, spreads, row, totals, wanted, level, errors):
    """The block in which the weights reach `wanted`, or the number of blocks, the weight before it, and E.

    All of that block counts on both sides, so E holds wherever in it the rank is; recomputed weights are the
    same, as nothing in them is summed in another order. The last term is for the spreads of blocks, which are
    float32 sums.
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
def _place(weights, wanted, weight):
    """The position in a block at which the weights reach `wanted`, and the weight before it."""
    place, width = 0, weights.shape[1]
    while place < width - STRETCH:
        stretch = 0.0
        for j in range(place, place + STRETCH):
            stretch += np.float64(weights[0, j])
        if weight + stretch >= wanted:
            break
        weight += stretch
        place += STRETCH
    while place < width - 1 and weight + weights[0, place] < wanted:
        weight += weights[0, place]
        place += 1
    return place, weight


@njit(**PART)
@no_type_check
def _gap(reached, total, masses, level):
    """By how much the level is exceeded at this cumulative weight."""
    return (1.0 - level) * (masses[1] + reached) - level * (total - reached + masses[0])


@njit(**PART)
@no_type_check
def _errors(points, row, precision, blocks, largest):
    """c0 and c1 of :func:`find_ranks`, and the further error of all sums, relative to the total mass and absolute.

    Let u be the unit roundoff and x the exponent of a weight. Rounding the differences of coordinates costs ``2 u
    x``. In the sum of ten squares none is rounded more than 6 times, plus once for each further square;
    precisions and the factor of base 2 cost ``4 u x``. The exponential costs 3 u, a likelihood ratio 2 u, a sum
    of four weights 3 u, and the float64 polynomial another 700 u. In float32 the coordinates q and p themselves
    are rounded: for a query at distance Q from the centre, in bandwidths, ``|p| <= Q + sqrt(x)``, which costs ``2
    u sqrt(x) (2 Q + sqrt(x)) <= 2 u Q (1 + x) + 2 u x``. Q includes what subtracting the centre lost. Sums of m
    weights, in any order, have errors of ``m u`` in float64. The oracle's exponents have errors of ``(k + 5) u
    x`` in float64.
    """
    far, away, polynomial = 0.0, 0.0, 720.0
    if blocks.unit > SINGLE:
        for d in range(points.shape[1]):
            away += (points[row, d] - blocks.centre[d]) * (points[row, d] - blocks.centre[d])
        lost = 2.0**-26 * (np.sqrt(away) + blocks.centre_length)
        far = (np.sqrt(away) + lost) * np.sqrt(precision * largest[0])
        polynomial = 0.0
        if far > FARTHEST:
            far = np.inf
    more = max(0, points.shape[1] - TEN)
    return (
        blocks.unit * (9.0 + 2.0 * far + polynomial),
        1.01 * (blocks.unit * (15.0 + more + 2.0 * far) + 2.0**-53 * (points.shape[1] + 6.0)),
        (4.0 * blocks.n_rows + 2048.0) * 2.0**-53,
        blocks.n_rows * max(1.0, largest[1]) * blocks.underflow,
    )
