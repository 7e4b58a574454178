"""Triton kernels of the leave-one-out loss: weights of a batch to all rows are computed twice and never stored.

The first pass sums the weights and the weighted targets of each batch row, the second the gradient at each
projected point. Distances come from three-term tf32 products, that is, in float32 precision.
"""

# ruff: noqa: PLR0917 (a kernel takes all its memory as arguments)

from __future__ import annotations

from dataclasses import dataclass
from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from lvd._typing import Float, Int

BATCH: tl.constexpr = tl.constexpr(64)
ROWS: tl.constexpr = tl.constexpr(64)
PROGRAMS_PER_PROCESSOR = 2


@triton.jit
@no_type_check
def _weights(chosen, own, others, rows, n):
    """Kernel weights of batch rows to a range of rows; a row's weight to itself is 0."""
    norms = tl.sum(own * own, 1)[:, None] + tl.sum(others * others, 0)[None, :]
    exponents = 2.0 * tl.dot(own, others, input_precision="tf32x3") - norms
    counts = (chosen[:, None] != rows[None, :]) & (rows < n)[None, :]
    return tl.where(counts, tl.exp(tl.minimum(exponents, 0.0)), 0.0)


@triton.jit(do_not_specialize=["n", "n_batch", "span"])
@no_type_check
def sum_weights(points, y, batch, partial, n, n_batch, span, K: tl.constexpr, KP: tl.constexpr):
    """Sums of weights times targets, and of weights, of each batch row over this program's rows."""
    places = tl.program_id(1) * BATCH + tl.arange(0, BATCH)
    columns = tl.arange(0, KP)
    known = places < n_batch
    chosen = tl.load(batch + places, mask=known, other=0).to(tl.int32)
    own = tl.load(
        points + chosen[:, None] * K + columns[None, :],
        mask=known[:, None] & (columns < K)[None, :],
        other=0.0,
    )
    numerator = tl.zeros((BATCH,), tl.float32)
    denominator = tl.zeros((BATCH,), tl.float32)
    start = tl.program_id(0) * span
    for first in range(start, tl.minimum(start + span, n), ROWS):
        rows = first + tl.arange(0, ROWS)
        inside = (rows < n)[None, :] & (columns < K)[:, None]
        others = tl.load(points + rows[None, :] * K + columns[:, None], mask=inside, other=0.0)
        weights = _weights(chosen, own, others, rows, n)
        targets = tl.load(y + rows, mask=rows < n, other=0.0)
        numerator += tl.sum(weights * targets[None, :], 1)
        denominator += tl.sum(weights, 1)
    cells = partial + 2 * tl.program_id(0) * n_batch + places
    tl.store(cells, numerator, mask=known)
    tl.store(cells + n_batch, denominator, mask=known)


@triton.jit(do_not_specialize=["n", "n_batch", "span"])
@no_type_check
def pull_points(
    points, y, batch, slope, offset, on_rows, on_batch, n, n_batch, span, K: tl.constexpr, KP: tl.constexpr
):
    """The gradient at the rows' projected points and, summed over this program's rows, at the batch's."""
    places = tl.program_id(1) * BATCH + tl.arange(0, BATCH)
    columns = tl.arange(0, KP)
    known = places < n_batch
    chosen = tl.load(batch + places, mask=known, other=0).to(tl.int32)
    in_batch = known[:, None] & (columns < K)[None, :]
    own = tl.load(points + chosen[:, None] * K + columns[None, :], mask=in_batch, other=0.0)
    # Past the batch both are 0, and so is the gradient.
    steepness = tl.load(slope + places, mask=known, other=0.0)
    constant = tl.load(offset + places, mask=known, other=0.0)
    pulled = tl.zeros((BATCH, KP), tl.float32)
    amount = tl.zeros((BATCH,), tl.float32)
    start = tl.program_id(0) * span
    for first in range(start, tl.minimum(start + span, n), ROWS):
        rows = first + tl.arange(0, ROWS)
        inside = (rows < n)[:, None] & (columns < K)[None, :]
        cells = rows[:, None] * K + columns[None, :]
        others = tl.load(points + cells, mask=inside, other=0.0)
        targets = tl.load(y + rows, mask=rows < n, other=0.0)
        weights = _weights(chosen, own, tl.trans(others), rows, n)
        pull = weights * (steepness[:, None] * targets[None, :] + constant[:, None])
        amount += tl.sum(pull, 1)
        pulled = tl.dot(pull, others, pulled, input_precision="tf32x3")
        on_them = tl.sum(pull, 0)[:, None] * others - tl.dot(tl.trans(pull), own, input_precision="tf32x3")
        tl.store(on_rows + tl.program_id(1) * n * K + cells, on_them, mask=inside)
    cells = (tl.program_id(0) * n_batch + places)[:, None] * K + columns[None, :]
    tl.store(on_batch + cells, amount[:, None] * own - pulled, mask=in_batch)


@dataclass(frozen=True)
class FusedNeighborhood:
    """A batch and all projected rows, on a GPU."""

    points: Float[Tensor, "n k"]
    batch: Int[Tensor, "b"]

    def sums(self, y: Float[Tensor, "n"]) -> tuple[Float[Tensor, "b"], Float[Tensor, "b"]]:
        """Sums of weights times targets, and of weights, over all other rows."""
        grid, sizes, meta = self._launch()
        partial = self.points.new_empty(grid[0], 2, len(self.batch))
        sum_weights[grid](self.points, y, self.batch, partial, *sizes, **meta)
        numerator, denominator = partial.sum(0)
        return numerator, denominator

    def gradient(
        self,
        rows: Float[Tensor, "n h"],
        y: Float[Tensor, "n"],
        slope: Float[Tensor, "b"],
        offset: Float[Tensor, "b"],
    ) -> Float[Tensor, "k h"]:
        """The sum over pairs of ``weight (slope y + offset) (p_i - p_j) (z_i - z_j)^T``."""
        grid, sizes, meta = self._launch()
        on_rows = self.points.new_empty(grid[1], *self.points.shape)
        on_batch = self.points.new_empty(grid[0], len(self.batch), self.points.shape[1])
        pull_points[grid](self.points, y, self.batch, slope, offset, on_rows, on_batch, *sizes, **meta)
        pull = on_rows[0] if grid[1] == 1 else on_rows.sum(0)
        pull.index_add_(0, self.batch, on_batch.sum(0))
        return pull.T @ rows

    def _launch(self) -> tuple[tuple[int, int], tuple[int, int, int], dict[str, int]]:
        (n, k), n_batch = self.points.shape, len(self.batch)
        properties = torch.cuda.get_device_properties(self.points.device) if self.points.is_cuda else None
        programs = PROGRAMS_PER_PROCESSOR * (properties.multi_processor_count if properties else 1)
        span = ROWS.value * triton.cdiv(n, ROWS.value * programs)
        grid = (triton.cdiv(n, span), triton.cdiv(n_batch, BATCH.value))
        width = max(16, triton.next_power_of_2(k))
        return grid, (n, n_batch, span), {"K": k, "KP": width, "num_warps": 4, "num_stages": 1}
