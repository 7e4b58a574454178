"""Sketch: the leave-one-out sums and the gradient of a step by compiled differences, to measure what they gain."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import no_type_check

import numpy as np
import torch
from numba import njit

from lvd._parallel import chunk_slices
from lvd.kernels.compiled import OPTIONS, Blocks, in_blocks, make_blocks, square_distances, weigh
from lvd.kernels.leave_one_out import LeaveOneOut


def compiled_gradient(
    problem: LeaveOneOut, components: torch.Tensor, batch: torch.Tensor, n_threads: int = 1
) -> torch.Tensor:
    """What :meth:`LeaveOneOut.loss_and_gradient` gives second."""
    points = (problem.rows @ components.T) * problem.scale**-0.5
    blocks = make_blocks(points.numpy(), np.zeros(points.shape[1]), np.ones(len(points)))
    blocks.points[np.isinf(blocks.points)] = 0.0  # past the last row, where weights are 0 already
    y = in_blocks([problem.y.numpy()], blocks)[0].astype(np.float32)
    queries, own = np.zeros((len(batch), blocks.points.shape[1]), np.float32), batch.numpy()
    queries[:, : points.shape[1]] = points[batch].numpy()
    width = y.shape[1]
    parts = chunk_slices(len(y), -(-len(y) // n_threads))
    sums, on_columns = np.zeros((len(parts), len(queries), 2)), np.zeros_like(blocks.points)
    on_batch = np.zeros((len(parts), *queries.shape))

    def over_parts(work: Callable[[int, slice, Blocks], None]) -> None:
        some = [blocks._replace(points=blocks.points[part], ratios=blocks.ratios[part]) for part in parts]
        with ThreadPoolExecutor(n_threads) as pool:
            list(pool.map(work, range(len(parts)), parts, some))

    over_parts(lambda i, part, some: add_weights(queries, own - part.start * width, some, y[part], sums[i]))
    numerator, denominator = torch.as_tensor(sums.sum(0), dtype=torch.float32).T
    predicted, denominator, clamped = problem._predict(batch, numerator, denominator)
    slope = -2.0 * (predicted - problem.y[batch]) / denominator
    offset = torch.where(clamped, 0.0, -slope * predicted)
    over_parts(
        lambda i, part, some: add_pulls(
            queries, own - part.start * width, some, y[part], slope.numpy(), offset.numpy(), on_batch[i],
            on_columns[part],
        )
    )  # fmt: skip
    k = components.shape[0]
    at_rows = on_columns.transpose(1, 0, 2).reshape(on_columns.shape[1], -1)[:k, : len(points)]
    at_batch = torch.as_tensor(on_batch.sum(0)[:, :k], dtype=torch.float32)
    gradient = at_batch.T @ problem.rows[batch] + torch.as_tensor(at_rows) @ problem.rows
    return gradient * (2.0 * problem.scale**-0.5)


@njit(**OPTIONS)
@no_type_check
def add_weights(queries, own, blocks, y, sums):
    """Add the sums of weights times targets, and of weights; `own` are the rows that do not count."""
    width = y.shape[1]
    weights, exponents = np.empty(width, queries.dtype), np.empty((2, width), queries.dtype)
    first = 0
    for block in range(len(y)):
        for i in range(len(queries)):
            if i % 2 == 0:
                first = min(i, len(queries) - 2)
                square_distances(queries[first:], blocks, block, exponents[0], exponents[1])
            weigh(exponents[i - first], queries.dtype.type(1), blocks, block, weights)
            if own[i] // width == block:
                weights[own[i] % width] = 0
            products, total = np.float32(0), np.float32(0)
            for j in range(width):
                products += weights[j] * y[block, j]
                total += weights[j]
            sums[i, 0] += products
            sums[i, 1] += total


@njit(**OPTIONS)
@no_type_check
def add_pulls(queries, own, blocks, y, slope, offset, on_batch, on_columns):  # noqa: PLR0917
    """Add how the loss pulls at the points of the batch and at those of all rows."""
    width = y.shape[1]
    weights, exponents = np.empty(width, queries.dtype), np.empty((2, width), queries.dtype)
    first = 0
    for block in range(len(y)):
        for i in range(len(queries)):
            if i % 2 == 0:
                first = min(i, len(queries) - 2)
                square_distances(queries[first:], blocks, block, exponents[0], exponents[1])
            weigh(exponents[i - first], queries.dtype.type(1), blocks, block, weights)
            if own[i] // width == block:
                weights[own[i] % width] = 0
            for j in range(width):
                weights[j] *= slope[i] * y[block, j] + offset[i]
            for d in range(len(queries[i])):
                pulled = np.float32(0)
                for j in range(width):
                    pull = weights[j] * (queries[i, d] - blocks.points[block, d, j])
                    pulled += pull
                    on_columns[block, d, j] -= pull
                on_batch[i, d] += pulled
