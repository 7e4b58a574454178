"""Triton kernels of the GPU engine: block sums on the tensor cores, the crossing block, the float64 settlement.

A weight is ``exp2`` of one product of K + 2 columns, padded to KP: ``[2u, -|u|^2, 1] . [v, 1, c] = -|u - v|^2``
in coordinates stretched by ``sqrt(log2 e)`` and centred. The points' constant c holds ``-|v|^2`` and the logarithm
of a row's own weight; if no row has one, a query's factors are multiplied by ``1 / h^2``. Products have three
terms in tf32, which gives float32 precision, or are float64 if points are so far apart that a distance is a small
difference of large norms (DOUBLE); exponentials are float32. `own` holds a query's masses at +inf and -inf, and
``1 / h^2``.

Rows of weights are summed over blocks of TILES x 128 points, and blocks over splits, one per program; the quantile
is found top down, split, block, row, so that no query reads more than a few hundred numbers. Sizes are not
specialised: one compiled kernel serves them all.
"""

# ruff: noqa: PLR0917 (a kernel takes all its memory as arguments)

from __future__ import annotations

from typing import no_type_check

import triton
import triton.language as tl

QUERIES: tl.constexpr = tl.constexpr(64)
POINTS: tl.constexpr = tl.constexpr(128)
EXACT_QUERIES: tl.constexpr = tl.constexpr(16)
STEP: tl.constexpr = tl.constexpr(7)
FLOAT32_EPS: tl.constexpr = tl.constexpr(2.0**-23)
FLOAT64_EPS: tl.constexpr = tl.constexpr(2.0**-52)
FAINT: tl.constexpr = tl.constexpr(1e-10)
STRONG: tl.constexpr = tl.constexpr(1e18)


@triton.jit(do_not_specialize=["n"])
@no_type_check
def prepare_queries(
    queries, centre, stretch, own, left, margins, counters, n, largest_norm, log_weight, log_mass, growth,
    tolerance, least_own, K: tl.constexpr, KP: tl.constexpr, DOUBLE: tl.constexpr,
):  # fmt: skip
    """Left factors, and the bound on each query's relative error; infinite if float32 is not enough.

    The relative error of a sum of weights is the weighted mean of the errors of exponents. Rows of mass M around
    a query of own mass o raise that mean most if all are equally far, and no farther than ``d^2 = log(M / o)``:
    beyond, they lose weight faster than the errors of their exponents grow. So the bound is one for radii;
    moments, which leave out the own mass, may have larger errors if that is nearly all the weight.
    """
    rows = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    columns = tl.arange(0, KP)
    if tl.program_id(0) == 0:
        tl.store(counters + tl.arange(0, 2), tl.zeros((2,), tl.int32))
    valid = rows < n
    inside = valid[:, None] & (columns < K)[None, :]
    point = tl.load(queries + rows[:, None] * K + columns[None, :], mask=inside, other=0.0)
    middle = tl.load(centre + columns, mask=columns < K, other=0.0)
    factor = tl.load(stretch)
    shifted = tl.where(inside, (point - middle[None, :]) * factor, 0.0)
    if not DOUBLE:
        # Norms of the rounded coordinates, so that rounding moves points, not distances.
        shifted = shifted.to(tl.float32).to(tl.float64)
    squared = tl.sum(shifted * shifted, 1)
    tile = tl.where(columns[None, :] < K, 2.0 * shifted, 0.0)
    tile = tl.where(columns[None, :] == K, -squared[:, None], tile)
    tile = tl.where(columns[None, :] == K + 1, 1.0, tile)
    precision = tl.load(own + 3 * rows + 2, mask=valid, other=1.0)
    tile *= precision[:, None]
    tl.store(left + rows[:, None] * KP + columns[None, :], tile, mask=valid[:, None])
    above = tl.load(own + 3 * rows, mask=valid, other=1.0)
    mass = above + tl.load(own + 3 * rows + 1, mask=valid, other=0.0)
    furthest = tl.maximum(log_mass - tl.log(tl.maximum(mass, least_own)), 1.0)
    natural = squared / (factor * factor)
    reach = tl.minimum(tl.sqrt(natural) + tl.sqrt(furthest / precision), largest_norm)
    # Scaled factors are rounded once more.
    roundings = growth + tl.where(precision == 1.0, 0.0, 1.0)
    products = roundings * (precision * (natural + reach * reach) + log_weight)
    if DOUBLE:
        bound = FLOAT32_EPS * (4.0 + 0.5 * (furthest + log_weight)) + FLOAT64_EPS * products
    else:
        bound = FLOAT32_EPS * (4.0 + products)
    suffices = (bound <= tolerance) & (mass >= least_own)
    tl.store(margins + rows, tl.where(suffices, bound, float("inf")), mask=valid)


@triton.jit
@no_type_check
def _split(numbers):
    """A float32 as the sum of two tf32 numbers, each rounded to nearest, to 2^-22 of itself."""
    bits = numbers.to(tl.uint32, bitcast=True)
    high = ((bits + 0x1000) & 0xFFFFE000).to(tl.float32, bitcast=True)
    bits = (numbers - high).to(tl.uint32, bitcast=True)
    return high, ((bits + 0x1000) & 0xFFFFE000).to(tl.float32, bitcast=True)


@triton.jit
@no_type_check
def _halves(query, DOUBLE: tl.constexpr):
    """Left factors as :func:`_exponents` takes them: as they are, or as two tf32 numbers each."""
    if DOUBLE:
        return query, query
    else:
        return _split(query)


@triton.jit
@no_type_check
def _exponents(high, low, factor, DOUBLE: tl.constexpr):
    """The products of left and right factors in float32."""
    if DOUBLE:
        return tl.dot(high, factor, out_dtype=tl.float64).to(tl.float32)
    else:
        factor_high, factor_low = _split(factor)
        exponents = tl.dot(low, factor_high, input_precision="tf32")
        exponents = tl.dot(high, factor_low, exponents, input_precision="tf32")
        return tl.dot(high, factor_high, exponents, input_precision="tf32")


@triton.jit(do_not_specialize=["n", "n_blocks", "span"])
@no_type_check
def block_sums(
    left, right, values, sums, partial, n, n_blocks, span,
    KP: tl.constexpr, TILES: tl.constexpr, MOMENTS: tl.constexpr, DOUBLE: tl.constexpr,
):  # fmt: skip
    """Sums of the weights over each block, and over all blocks of this program's split.

    With MOMENTS also the split's sums of squared weights and of weights times values.
    """
    rows = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    split = tl.program_id(1)
    n_splits = tl.num_programs(1)
    columns = tl.arange(0, KP)
    valid = rows < n
    query = tl.load(left + rows[:, None] * KP + columns[None, :], mask=valid[:, None], other=0.0)
    high, low = _halves(query, DOUBLE)
    total = tl.zeros((QUERIES,), tl.float64)
    squares = tl.zeros((QUERIES,), tl.float64)
    products = tl.zeros((QUERIES,), tl.float64)
    block_sum = tl.zeros((QUERIES,), tl.float32)
    stop = tl.minimum(n_blocks, (split + 1) * span) * TILES
    for tile in range(split * span * TILES, stop):
        points = tile * POINTS + tl.arange(0, POINTS)
        # 64-bit: forty million points of 64 columns pass 2^31 numbers
        factor = tl.load(right + points.to(tl.int64)[None, :] * KP + columns[:, None])
        exponents = _exponents(high, low, factor, DOUBLE)
        weights = tl.exp2(exponents)
        block_sum += tl.sum(weights, 1)
        if MOMENTS:
            value = tl.load(values + points)
            squares += tl.sum(weights * weights, 1).to(tl.float64)
            products += tl.sum(weights * value[None, :], 1).to(tl.float64)
        if tile % TILES == TILES - 1:
            tl.store(sums + (tile // TILES) * n + rows, block_sum, mask=valid)
            total += block_sum.to(tl.float64)
            block_sum = tl.zeros((QUERIES,), tl.float32)
    tl.store(partial + split * n + rows, total, mask=valid)
    if MOMENTS:
        tl.store(partial + (n_splits + split) * n + rows, squares, mask=valid)
        tl.store(partial + (2 * n_splits + split) * n + rows, products, mask=valid)


@triton.jit
@no_type_check
def _advance(values, countable, target, running, count, prior):
    """One part of a cumulative sum: how many entries stay below the target, and their sum."""
    below = (running + tl.cumsum(values, 0) < target) & countable
    count += tl.sum(below.to(tl.int32), 0)
    prior += tl.sum(tl.where(below, values, 0.0), 0)
    return running + tl.sum(values, 0), count, prior


@triton.jit
@no_type_check
def _store_moments(partial, moments, n, n_splits, slot, query, first, SPLITS: tl.constexpr):
    """Effective sample size and mean value of a query from its splits' sums."""
    splits = tl.arange(0, SPLITS)
    cells = partial + (n_splits + splits) * n + slot
    squares = tl.sum(tl.load(cells, mask=splits < n_splits, other=0.0), 0)
    cells = partial + (2 * n_splits + splits) * n + slot
    products = tl.sum(tl.load(cells, mask=splits < n_splits, other=0.0), 0)
    tl.store(moments + query, tl.where(squares > 0.0, first * first / squares, 0.0))
    tl.store(moments + n + query, products / first)


@triton.jit(do_not_specialize=["n", "m", "n_levels", "n_blocks", "n_splits", "span"])
@no_type_check
def locate(
    left, right, sums, partial, margins, own, levels, scores, radius, exact, moments, pending, counters,
    n, m, n_levels, n_blocks, n_splits, span, KP: tl.constexpr, TILES: tl.constexpr, SPLITS: tl.constexpr,
    SETTLE: tl.constexpr, MOMENTS: tl.constexpr,
):  # fmt: skip
    """The radius of one query at every level, and whether it is exact, that is, whether no rounding could change
    it.

    Queries that float32 cannot decide are put on the pending list.
    """
    query = tl.program_id(0)
    margin = tl.load(margins + query)
    decided = margin < 1.0
    if decided:
        splits = tl.arange(0, SPLITS)
        split_sums = tl.load(partial + splits * n + query, mask=splits < n_splits, other=0.0)
        first = tl.sum(split_sums, 0)
        below = tl.load(own + 3 * query + 1)
        total = first + tl.load(own + 3 * query) + below
        if MOMENTS:
            _store_moments(partial, moments, n, n_splits, query, query, first, SPLITS)
        columns = tl.arange(0, KP)
        lanes = tl.arange(0, POINTS)
        factor = tl.load(left + query * KP + columns)
        for level in range(n_levels):
            wanted = tl.load(levels + level)
            low = (wanted - margin) * total - below
            high = (wanted + margin) * total - below
            zero = total * 0.0
            _, split, prior = _advance(split_sums, splits < n_splits - 1, high, zero, 0, zero)
            start = split * span
            stop = tl.minimum(start + span, n_blocks)
            running = prior
            count = 0
            for block in range(start, stop, POINTS):
                blocks = block + lanes
                cells = sums + blocks * n + query
                values = tl.load(cells, mask=blocks < stop, other=0.0).to(tl.float64)
                running, count, prior = _advance(values, blocks < stop - 1, high, running, count, prior)
            block = start + count
            running = prior
            rank = block * TILES * POINTS
            for tile in range(TILES):
                points = (block * TILES + tile) * POINTS + lanes
                rows = tl.load(right + points.to(tl.int64)[:, None] * KP + columns[None, :])
                weights = tl.exp2(tl.sum(rows * factor[None, :], 1).to(tl.float32)).to(tl.float64)
                running, rank, prior = _advance(weights, lanes >= 0, high, running, rank, prior)
            rank = tl.minimum(rank, m)
            # An infinite radius is certain if all rows together stay below the lower target.
            prior = tl.where(rank == m, first, prior)
            decided = decided & ((prior < low) | (high <= 0.0))
            # If the mass at -inf alone reaches the level, the radius is -inf.
            found = tl.where(high <= 0.0, float("-inf"), tl.load(scores + rank))
            tl.store(radius + query * n_levels + level, found)
        tl.store(exact + query, decided.to(tl.int8))
        if not SETTLE:
            # An overflow gives NaN, which is no candidate.
            decided = decided | (total < float("inf"))
        if MOMENTS:
            # In float32 the squares of smaller weights vanish, and those of larger ones overflow.
            decided = decided & (first > FAINT) & (first < STRONG)
    if not decided:
        tl.store(pending + tl.atomic_add(counters, 1), query)


@triton.jit(do_not_specialize=["n", "m", "n_splits", "span"])
@no_type_check
def exact_sums(
    queries, points, scales, values, own, partial, pending, counters, n, m, n_splits, span,
    K: tl.constexpr, PLAIN: tl.constexpr, MOMENTS: tl.constexpr,
):  # fmt: skip
    """The float64 sums of pending queries over splits of `span` blocks; programs share the work evenly."""
    n_pending = tl.load(counters)
    lanes = tl.arange(0, POINTS)
    n_items = tl.cdiv(n_pending, EXACT_QUERIES) * n_splits
    for item in range(tl.program_id(0), n_items, tl.num_programs(0)):
        slots = (item // n_splits) * EXACT_QUERIES + tl.arange(0, EXACT_QUERIES)
        split = item % n_splits
        valid = slots < n_pending
        chosen = tl.load(pending + slots, mask=valid, other=0)
        precision = tl.load(own + 3 * chosen + 2)
        total = tl.zeros((EXACT_QUERIES,), tl.float64)
        squares = tl.zeros((EXACT_QUERIES,), tl.float64)
        products = tl.zeros((EXACT_QUERIES,), tl.float64)
        for block in range(split * span, (split + 1) * span):
            rows = block * POINTS + lanes
            inside = rows < m
            distance = tl.zeros((EXACT_QUERIES, POINTS), tl.float64)
            for column in range(K):
                coordinate = tl.load(points + column * m + rows, mask=inside, other=0.0)
                difference = coordinate[None, :] - tl.load(queries + chosen * K + column)[:, None]
                distance += difference * difference
            weights = tl.exp(-distance * precision[:, None])
            if not PLAIN:
                weights *= tl.load(scales + rows, mask=inside, other=0.0)[None, :]
            weights = tl.where(inside[None, :], weights, 0.0)
            total += tl.sum(weights, 1)
            if MOMENTS:
                value = tl.load(values + rows, mask=inside, other=0.0).to(tl.float64)
                squares += tl.sum(weights * weights, 1)
                products += tl.sum(weights * value[None, :], 1)
        tl.store(partial + split * n + slots, total, mask=valid)
        if MOMENTS:
            tl.store(partial + (n_splits + split) * n + slots, squares, mask=valid)
            tl.store(partial + (2 * n_splits + split) * n + slots, products, mask=valid)


@triton.jit(do_not_specialize=["n", "m", "n_levels", "n_splits", "span"])
@no_type_check
def locate_exact(
    queries, points, scales, partial, own, levels, scores, radius, exact, moments, pending, unsettled,
    counters, n, m, n_levels, n_splits, span, margin,
    K: tl.constexpr, SPLITS: tl.constexpr, SETTLE: tl.constexpr, PLAIN: tl.constexpr, MOMENTS: tl.constexpr,
):  # fmt: skip
    """The radii of the pending queries; those that depend on float64 rounding go on the unsettled list."""
    lanes = tl.arange(0, POINTS)
    splits = tl.arange(0, SPLITS)
    for slot in range(tl.program_id(0), tl.load(counters), tl.num_programs(0)):
        query = tl.load(pending + slot)
        split_sums = tl.load(partial + splits * n + slot, mask=splits < n_splits, other=0.0)
        first = tl.sum(split_sums, 0)
        below = tl.load(own + 3 * query + 1)
        total = first + tl.load(own + 3 * query) + below
        precision = tl.load(own + 3 * query + 2)
        if MOMENTS:
            _store_moments(partial, moments, n, n_splits, slot, query, first, SPLITS)
        decided = total > 0.0
        for level in range(n_levels):
            wanted = tl.load(levels + level)
            low = (wanted - margin) * total - below
            high = (wanted + margin) * total - below
            zero = total * 0.0
            _, split, prior = _advance(split_sums, splits < n_splits - 1, high, zero, 0, zero)
            running = prior
            rank = split * span * POINTS
            for block in range(split * span, (split + 1) * span):
                rows = block * POINTS + lanes
                inside = rows < m
                distance = tl.zeros((POINTS,), tl.float64)
                for column in tl.static_range(K):
                    coordinate = tl.load(points + column * m + rows, mask=inside, other=0.0)
                    difference = coordinate - tl.load(queries + query * K + column)
                    distance += difference * difference
                weights = tl.exp(-distance * precision)
                if not PLAIN:
                    weights *= tl.load(scales + rows, mask=inside, other=0.0)
                weights = tl.where(inside, weights, 0.0)
                running, rank, prior = _advance(weights, lanes >= 0, high, running, rank, prior)
            rank = tl.where(total > 0.0, tl.minimum(rank, m), m)
            prior = tl.where(rank == m, first, prior)
            nothing = (high <= 0.0) & (total > 0.0)
            decided = decided & ((prior < low) | nothing)
            found = tl.where(nothing, float("-inf"), tl.load(scores + rank))
            tl.store(radius + query * n_levels + level, found)
        tl.store(exact + query, decided.to(tl.int8))
        if (not decided) & SETTLE:
            tl.store(unsettled + tl.atomic_add(counters + 1, 1), query)


@triton.jit(do_not_specialize=["n", "n_tiles", "last"])
@no_type_check
def find_bandwidths(
    left, right, grid, result, n, n_tiles, wanted, last, KP: tl.constexpr, DOUBLE: tl.constexpr,
):  # fmt: skip
    """The first of a `grid` of bandwidths at which the total weight of all points reaches `wanted`, else the last.

    This takes two passes over all points: every STEPth bandwidth first, then those before the first that is enough.
    """
    rows = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    columns = tl.arange(0, KP)
    tried = tl.arange(0, 8)
    valid = rows < n
    query = tl.load(left + rows[:, None] * KP + columns[None, :], mask=valid[:, None], other=0.0)
    high, low_half = _halves(query, DOUBLE)
    low = tl.zeros((QUERIES,), tl.int32)
    for stage in tl.static_range(2):
        step = 1 if stage else STEP
        total = tl.zeros((QUERIES, 8), tl.float32)
        for tile in range(n_tiles):
            points = tile * POINTS + tl.arange(0, POINTS)
            factor = tl.load(right + points[None, :] * KP + columns[:, None])
            exponents = _exponents(high, low_half, factor, DOUBLE)
            for g in tl.static_range(STEP):
                bandwidth = tl.load(grid + tl.minimum(low + (g + 1) * step - 1, last))
                precision = (1.0 / (bandwidth * bandwidth)).to(tl.float32)
                weight = tl.sum(tl.exp2(exponents * precision[:, None]), 1)
                total += tl.where((tried == g)[None, :], weight[:, None], 0.0)
        short = ((total.to(tl.float64) >= wanted) == 0) & (tried < STEP)[None, :]  # NaN too
        low = tl.minimum(low + step * tl.sum(short.to(tl.int32), 1), last)
    tl.store(result + rows, tl.load(grid + low), mask=valid)
