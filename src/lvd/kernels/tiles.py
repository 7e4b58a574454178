"""Gaussian similarities ``exp(-||u - v||^2)`` in tiles that fit the cache, never as a whole matrix.

Points come in *scaled coordinates*, in which the kernel has this plain form. Both squared norms ride in one
matrix product of k + 2 = a columns: ``[2u, -|u|^2, 1] . [v, 1, -|v|^2] = -|u - v|^2``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lvd._parallel import chunk_slices, run_in_turn, workers
from lvd._typing import Bool, Float

FLOAT32_TOLERANCE = 4e-6
"""Largest relative error of a cumulative weight that float32 may cause; queries past it go to float64."""
CPU_QUERIES, CPU_POINTS = 64, 2048
"""A tile of 64 x 2048 float32 weights stays in the second-level cache."""
GPU_ELEMENTS = 2**26


@dataclass(frozen=True)
class TilePoints:
    """Points prepared for the product: centred and augmented, in float32 and float64.

    The centre is taken off first, because a product of float32 numbers loses digits far from the origin.
    """

    centre: Float[Tensor, "1 k"]
    single: Float[Tensor, "a m"]
    double: Float[Tensor, "a m"]
    largest_norm: float

    @property
    def n_points(self) -> int:
        """How many points there are."""
        return self.single.shape[1]


class Chunk(NamedTuple):
    """Some queries, as row numbers, and the precision in which they are computed."""

    rows: Tensor
    dtype: torch.dtype


def prepare_points(points: Float[Tensor, "m k"]) -> TilePoints:
    """The right factor of the product for `points` in scaled coordinates (float64)."""
    centre = points.mean(0, keepdim=True) if len(points) else points.new_zeros(1, points.shape[1])
    shifted = points - centre
    norms = shifted.square().sum(1, keepdim=True)
    right = torch.cat([shifted, torch.ones_like(norms), -norms], 1).T.contiguous()
    largest = float(norms.max().sqrt()) if len(points) else 0.0
    return TilePoints(centre, right.float(), right, largest)


def left_factor(queries: Float[Tensor, "n k"], prepared: TilePoints) -> Float[Tensor, "n a"]:
    """The left factor of the product for `queries` in scaled coordinates (float64)."""
    shifted = queries - prepared.centre
    norms = shifted.square().sum(1, keepdim=True)
    return torch.cat([2.0 * shifted, -norms, torch.ones_like(norms)], 1)


def relative_error(
    left: Float[Tensor, "n a"], prepared: TilePoints, dtype: torch.dtype
) -> Float[Tensor, "n"]:
    """A bound on the relative error of each query's cumulative weights when computed in `dtype`.

    The exponent errs by a few roundings of the squared norms, which add up like the square root of the number
    of products in it; and only points within distance 5 have weight, beside the 1 of the query itself.
    """
    squared = -left[:, -2]
    reach = (squared.sqrt() + 5.0).clamp(max=prepared.largest_norm).square()
    growth = max(1.0, 0.25 * math.sqrt(left.shape[1]))
    return torch.finfo(dtype).eps * (2.0 + growth * (squared + reach))


def tile_weights(
    left: Float[Tensor, "n a"], prepared: TilePoints, columns: slice, dtype: torch.dtype
) -> Float[Tensor, "n t"]:
    """Similarities of all queries of a chunk to one stretch of points."""
    right = prepared.single if dtype == torch.float32 else prepared.double
    return torch.mm(left.to(dtype), right[:, columns]).exp_()


def float32_suffices(left: Float[Tensor, "n a"], prepared: TilePoints) -> Bool[Tensor, "n"]:
    """Which queries may be computed in float32."""
    return relative_error(left, prepared, torch.float32) <= FLOAT32_TOLERANCE


def point_slices(prepared: TilePoints) -> list[slice]:
    """Stretches of points, one tile wide."""
    on_cpu = prepared.single.device.type == "cpu"
    return chunk_slices(prepared.n_points, CPU_POINTS if on_cpu else GPU_ELEMENTS)


def run_chunks(
    work: Callable[[Chunk], None], chosen: Bool[Tensor, "n"], prepared: TilePoints, dtype: torch.dtype
) -> None:
    """Run `work` on the chosen queries in chunks: on threads on the CPU, in turn on an accelerator."""
    on_cpu = chosen.device.type == "cpu"
    size = CPU_QUERIES if on_cpu else max(1, GPU_ELEMENTS // max(1, prepared.n_points))
    chunks = [Chunk(rows, dtype) for rows in chosen.nonzero()[:, 0].split(size) if len(rows)]
    if not on_cpu:
        run_in_turn(work, chunks)
    elif chunks:
        with workers() as run:
            run(work, chunks)


def weighted_sums(
    queries: Float[Tensor, "n k"], prepared: TilePoints, values: Float[Tensor, "m c"]
) -> Float[Tensor, "n c"]:
    """``sum_j K(query, point_j) values_j`` in float64, from tiles of weights."""
    left = left_factor(queries, prepared)
    result = values.new_zeros(len(queries), values.shape[1])
    single = values.float()
    slices = point_slices(prepared)

    def work(chunk: Chunk) -> None:
        by_precision = single if chunk.dtype == torch.float32 else values
        total = result.new_zeros(len(chunk.rows), values.shape[1])
        for columns in slices:
            total += tile_weights(left[chunk.rows], prepared, columns, chunk.dtype) @ by_precision[columns]
        result[chunk.rows] = total

    fine = float32_suffices(left, prepared)
    run_chunks(work, fine, prepared, torch.float32)
    run_chunks(work, ~fine, prepared, torch.float64)
    return result


def effective_sample_size(queries: Float[Tensor, "n k"], points: Float[Tensor, "m k"]) -> Float[Tensor, "n"]:
    """Kish's ``(sum w)^2 / sum w^2`` of the weights of `points`; 0 where all weights vanish.

    ``w^2`` is the same kernel with coordinates stretched by the square root of two.
    """
    ones = points.new_ones(len(points), 1)
    stretch = math.sqrt(2.0)
    first = weighted_sums(queries, prepare_points(points), ones)[:, 0]
    second = weighted_sums(queries * stretch, prepare_points(points * stretch), ones)[:, 0]
    return torch.where(second > 0, first.square() / second.clamp(min=torch.finfo(second.dtype).tiny), 0.0)
