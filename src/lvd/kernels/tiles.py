"""Gaussian similarities ``exp(-||u - v||^2)`` in tiles that fit the cache, never as a whole matrix.

Points come in *scaled coordinates*, in which the kernel has this plain form. Both squared norms ride in one
matrix product of k + 2 = a columns: ``[2u, -|u|^2, 1] . [v, 1, -|v|^2] = -|u - v|^2``. A point's own weight w
rides there too: with ``log w - |v|^2`` the exponential is ``w exp(-||u - v||^2)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lvd._parallel import chunk_slices, workers
from lvd._typing import Bool, Float

FLOAT32_TOLERANCE = 4e-6
"""Largest relative error of a cumulative weight that float32 may cause; queries past it go to float64."""
FLOAT64_TOLERANCE = 1e-9
"""Largest relative error of a sum that products of float64 may cause; queries past it go by differences."""
BLOCK = 128
"""Points are padded to whole blocks; sums over blocks are what the quantile engine keeps."""
CPU_ELEMENTS, LEAST_QUERIES, MOST_QUERIES = 2**18, 128, 2048
"""A tile of 128 x 2048 float32 weights stays in the second-level cache; fewer points leave room for queries."""
GPU_ELEMENTS = 2**26
THREAD_ELEMENTS = 2**22
"""A thread of its own pays for this many weights; with fewer, threads wait for each other."""
FAINT = 1e-25
"""Sums of float32 weights below this are made again in float64, which has smaller weights."""
LEAST_SQUARED = {torch.float32: 1e-18, torch.float64: 1e-150}
"""Weights of less are 0 before they are squared, for the same reason as exponentials."""
LEAST_EXPONENTS = {torch.float32: -80.0, torch.float64: -700.0}
"""Exponentials of less count as 0: those that underflow take fifty times as long."""


@dataclass(frozen=True)
class TilePoints:
    """Points, and the same prepared for the product: centred and augmented, in float32 and float64.

    The centre is taken off first, because a product of float32 numbers loses digits far from the origin.
    """

    points: Float[Tensor, "m k"]
    log_weights: Float[Tensor, "m"] | None
    centre: Float[Tensor, "1 k"]
    single: Float[Tensor, "a p"]
    double: Float[Tensor, "a p"]
    largest_norm: float
    largest_log_weight: float
    n_points: int

    def right(self, dtype: torch.dtype) -> Float[Tensor, "a p"]:
        """The right factor in this precision; past the last point stand columns of weight 0."""
        return self.single if dtype == torch.float32 else self.double


class Chunk(NamedTuple):
    """Some queries, as row numbers, the precision in which they are computed, and memory for their tiles."""

    rows: Tensor
    dtype: torch.dtype
    buffer: Tensor


def prepare_points(points: Float[Tensor, "m k"], log_weights: Float[Tensor, "m"] | None = None) -> TilePoints:
    """The right factor of the product for `points` in scaled coordinates (float64), each with its own weight."""
    centre = points.mean(0, keepdim=True) if len(points) else points.new_zeros(1, points.shape[1])
    shifted = points - centre
    norms = shifted.square().sum(1, keepdim=True)
    exponents = -norms if log_weights is None else log_weights[:, None] - norms
    right = torch.cat([shifted, torch.ones_like(norms), exponents], 1).T
    right = torch.nn.functional.pad(right, (0, -len(points) % BLOCK)).contiguous()
    right[-1, len(points) :] = -torch.inf
    largest = float(norms.max().sqrt()) if len(points) else 0.0
    finite = points.new_zeros(1) if log_weights is None else log_weights[log_weights.isfinite()].abs()
    largest_log_weight = float(finite.max()) if len(finite) else 0.0
    single = right.float()
    return TilePoints(points, log_weights, centre, single, right, largest, largest_log_weight, len(points))


def left_factor(queries: Float[Tensor, "n k"], prepared: TilePoints) -> Float[Tensor, "n a"]:
    """The left factor of the product for `queries` in scaled coordinates (float64)."""
    shifted = queries - prepared.centre
    norms = shifted.square().sum(1, keepdim=True)
    return torch.cat([2.0 * shifted, -norms, torch.ones_like(norms)], 1)


def error_growth(n_products: int) -> float:
    """How many roundings of its terms a sum of so many products may err by."""
    return max(1.0, 0.25 * math.sqrt(n_products))


def relative_error(
    left: Float[Tensor, "n a"], prepared: TilePoints, dtype: torch.dtype
) -> Float[Tensor, "n"]:
    """A bound on the relative error of each query's cumulative weights when computed in `dtype`.

    The exponent errs by a few roundings of the squared norms and log-weights, which add up like the square root
    of the number of products in it. In float32 only points within distance 5 have weight beside that of the
    query itself; queries whose own weight is too small for this to be true are computed in float64, where weights
    end at about 26.
    """
    squared = -left[:, -2]
    single, end = dtype == torch.float32, -LEAST_EXPONENTS[dtype] + prepared.largest_log_weight
    reach = (squared.sqrt() + (5.0 if single else math.sqrt(end))).clamp(max=prepared.largest_norm)
    growth = error_growth(left.shape[1])
    return torch.finfo(dtype).eps * (2.0 + growth * (squared + reach.square() + prepared.largest_log_weight))


def float32_suffices(left: Float[Tensor, "n a"], prepared: TilePoints) -> Bool[Tensor, "n"]:
    """Which queries may be computed in float32."""
    return relative_error(left, prepared, torch.float32) <= FLOAT32_TOLERANCE


def weight_tiles(
    left: Float[Tensor, "n a"], prepared: TilePoints, chunk: Chunk
) -> Iterator[tuple[slice, Float[Tensor, "n t"]]]:
    """Similarities of all queries of a chunk to one stretch of points after the other.

    All tiles share the chunk's buffer, each overwrites the last: fresh memory costs more than the arithmetic.
    """
    may_underflow = _least_exponent(left, prepared) < LEAST_EXPONENTS[chunk.dtype]
    left, right = left.to(chunk.dtype), prepared.right(chunk.dtype)
    width = chunk.buffer.numel() // len(left) // BLOCK * BLOCK
    for columns in chunk_slices(right.shape[1], width):
        tile = chunk.buffer[: len(left) * (columns.stop - columns.start)].view(len(left), -1)
        torch.mm(left, right[:, columns], out=tile)
        yield columns, exp_without_underflow(tile) if may_underflow else tile.exp_()


def exp_without_underflow(exponents: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Exponentials in place; those that count as 0 are 0."""
    least = LEAST_EXPONENTS[exponents.dtype]
    weights = exponents.clamp_(min=least).exp_()
    return torch.threshold_(weights, 1.001 * math.exp(least), 0.0)


def _least_exponent(left: Float[Tensor, "n a"], prepared: TilePoints) -> float:
    """No finite exponent of these queries is less: no point is further than over the centre."""
    furthest = float(left[:, -2].min().neg().clamp(min=0.0).sqrt()) + prepared.largest_norm
    return -(furthest**2) - prepared.largest_log_weight


def run_chunks(
    work: Callable[[Chunk], None], chosen: Bool[Tensor, "n"], prepared: TilePoints, dtype: torch.dtype
) -> None:
    """Run `work` on the chosen queries in chunks: on threads on the CPU, in turn on an accelerator."""
    on_cpu = chosen.device.type == "cpu"
    room = CPU_ELEMENTS if on_cpu else GPU_ELEMENTS
    n_rows = min(MOST_QUERIES, max(LEAST_QUERIES, room // max(BLOCK, prepared.single.shape[1])))
    pieces = [rows for rows in chosen.nonzero()[:, 0].split(n_rows) if len(rows)]

    def work_in_turn(mine: list[Tensor]) -> None:
        buffer = torch.empty(room, dtype=dtype, device=chosen.device)
        for rows in mine:
            work(Chunk(rows, dtype, buffer))

    n_threads = sum(map(len, pieces)) * prepared.n_points // THREAD_ELEMENTS if on_cpu else 1
    n_shares = max(1, min(torch.get_num_threads(), len(pieces), n_threads))
    with workers(n_shares) as run:
        run(work_in_turn, [pieces[i::n_shares] for i in range(n_shares)])


def weighted_sums(
    queries: Float[Tensor, "n k"],
    prepared: TilePoints,
    values: Float[Tensor, "m c"],
    *,
    squared: bool = False,
) -> Float[Tensor, "n c"]:
    """``sum_j K(query, point_j) values_j`` in float64, from tiles of weights; with `squared` of ``K^2``.

    Queries whose sums are all next to nothing are computed in float64, where weights vanish only below 1e-304.
    Where products of float64 lose too many digits, as beside a point far out, differences of coordinates do it.
    """
    left = left_factor(queries, prepared)
    result = values.new_zeros(len(queries), values.shape[1])
    padded = torch.nn.functional.pad(values, (0, 0, 0, -len(values) % BLOCK))
    by_precision = {torch.float32: padded.float(), torch.float64: padded}

    def add(chunk: Chunk, tiles: Iterator[tuple[slice, Tensor]]) -> None:
        total = result.new_zeros(len(chunk.rows), values.shape[1])
        for columns, tile in tiles:
            least = LEAST_SQUARED[chunk.dtype]
            weights = torch.threshold_(tile, least, 0.0).square_() if squared else tile
            total += weights @ by_precision[chunk.dtype][columns]
        result[chunk.rows] = total

    single, double = (
        relative_error(left, prepared, dtype) <= tolerance
        for dtype, tolerance in ((torch.float32, FLOAT32_TOLERANCE), (torch.float64, FLOAT64_TOLERANCE))
    )
    single &= double
    run_chunks(lambda c: add(c, weight_tiles(left[c.rows], prepared, c)), single, prepared, torch.float32)
    faint = result.abs().amax(1) <= FAINT * (values.abs().max() if values.numel() else 0.0)
    again = double & (~single | faint)
    run_chunks(lambda c: add(c, weight_tiles(left[c.rows], prepared, c)), again, prepared, torch.float64)
    run_chunks(lambda c: add(c, exact_tiles(queries[c.rows], prepared, c)), ~double, prepared, torch.float64)
    return result


def exact_tiles(
    queries: Float[Tensor, "n k"], prepared: TilePoints, chunk: Chunk
) -> Iterator[tuple[slice, Float[Tensor, "n t"]]]:
    """The similarities of :func:`weight_tiles` from differences of coordinates, in float64."""
    for columns in chunk_slices(prepared.n_points, chunk.buffer.numel() // len(queries)):
        points = prepared.points[columns]
        exponents = torch.cdist(queries, points, compute_mode="donot_use_mm_for_euclid_dist").square_().neg_()
        if prepared.log_weights is not None:
            exponents += prepared.log_weights[columns]
        yield columns, exp_without_underflow(exponents)


def effective_sample_size(
    queries: Float[Tensor, "n k"],
    points: Float[Tensor, "m k"],
    weights: Float[Tensor, "m"] | None = None,
    floor: float = 0.0,
) -> Float[Tensor, "n"]:
    """Kish's ``(sum w)^2 / sum w^2`` of ``w = weight ((1 - floor) K + floor)``; 0 where all of them vanish."""
    weights = points.new_ones(len(points)) if weights is None else weights
    both = torch.stack([weights, weights.square()], 1)
    prepared, rest = prepare_points(points), 1.0 - floor
    linear = weighted_sums(queries, prepared, both)
    squared = weighted_sums(queries, prepared, both[:, 1:], squared=True)[:, 0]
    first = rest * linear[:, 0] + floor * weights.sum()
    second = rest**2 * squared + 2.0 * floor * rest * linear[:, 1] + floor**2 * both[:, 1].sum()
    return torch.where(second > 0, first.square() / second.clamp(min=torch.finfo(second.dtype).tiny), 0.0)
