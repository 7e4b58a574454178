"""The leave-one-out loss by compiled differences, for many rows on the CPU.

Weights are computed twice and never stored. That takes little more than half the time of tiles, but rounds
differently, so smaller problems, the paper's among them, still use tiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lvd._parallel import ChunkMap, chunk_slices
from lvd._typing import Float, Int, NDArray
from lvd.engine.compiled import add_neighbors, add_pulls, in_blocks, make_blocks

BLOCKS_AT_A_TIME = 8
BEYOND = 1e18
"""Coordinates of padding rows: far enough to have no weight, but finite, as 0 * inf would give NaN gradients."""


@dataclass(frozen=True)
class CompiledNeighborhood:
    """A batch and all projected rows, in float32 blocks."""

    points: Float[Tensor, "n k"]
    batch: Int[Tensor, "b"]
    run: ChunkMap
    blocks: Any
    queries: Float[NDArray, "q c"]

    @classmethod
    def of(cls, points: Float[Tensor, "n k"], batch: Int[Tensor, "b"], run: ChunkMap) -> CompiledNeighborhood:
        """Lay the rows out in blocks."""
        n, k = points.shape
        blocks = make_blocks(points.numpy(), np.zeros(k))
        if rest := n % blocks.points.shape[2]:
            blocks.points[-1, :, rest:] = BEYOND
        queries = np.zeros((len(batch), blocks.points.shape[1]), np.float32)
        queries[:, :k] = points.numpy()[batch.numpy()]
        return cls(points, batch, run, blocks, queries)

    def sums(self, y: Float[Tensor, "n"]) -> tuple[Float[Tensor, "b"], Float[Tensor, "b"]]:
        """Sums of weights times targets, and of weights, over all other rows."""
        parts = self._parts()
        sums, targets = np.zeros((len(parts), 2, len(self.batch))), self._in_blocks(y)

        def work(number: int) -> None:
            part, own, blocks = self._part(parts[number])
            add_neighbors(self.queries, own, blocks, targets[part], sums[number])

        self.run(work, range(len(parts)))
        numerator, denominator = torch.from_numpy(sums.sum(0)).float()
        return numerator, denominator

    def gradient(
        self,
        rows: Float[Tensor, "n h"],
        y: Float[Tensor, "n"],
        slope: Float[Tensor, "b"],
        offset: Float[Tensor, "b"],
    ) -> Float[Tensor, "k h"]:
        """The sum over pairs of ``weight (slope y + offset) (p_i - p_j) (z_i - z_j)^T``."""
        (n, k), parts, targets = self.points.shape, self._parts(), self._in_blocks(y)
        on_batch, width = np.zeros((len(parts), len(self.batch), k)), targets.shape[1]
        factors = slope.numpy(), offset.numpy()

        def work(number: int) -> Float[Tensor, "k h"]:
            part, own, blocks = self._part(parts[number])
            on_rows = np.zeros_like(blocks.points)
            add_pulls(self.queries, own, blocks, targets[part], *factors, on_batch[number], on_rows)
            some = rows[part.start * width : min(part.stop * width, n)]
            pull = on_rows[:, :k].transpose(1, 0, 2).reshape(k, -1)[:, : len(some)]
            return torch.from_numpy(pull) @ some

        on_columns = torch.stack(self.run(work, range(len(parts)))).sum(0)
        pulled = torch.from_numpy(on_batch.sum(0)).float()
        return pulled.T @ rows[self.batch] + on_columns

    def _in_blocks(self, y: Float[Tensor, "n"]) -> Float[NDArray, "b w"]:
        return in_blocks([y.numpy()], self.blocks)[0].astype(np.float32)

    def _parts(self) -> list[slice]:
        """Ranges of blocks, to be processed in parallel."""
        return chunk_slices(len(self.blocks.points), BLOCKS_AT_A_TIME)

    def _part(self, part: slice) -> tuple[slice, Int[NDArray, "q"], Any]:
        """A range, the queries' row numbers within it, and its blocks."""
        points, first = self.blocks.points[part], part.start * self.blocks.points.shape[2]
        n_rows = min(points.shape[0] * points.shape[2], self.blocks.n_rows - first)
        return part, self.batch.numpy() - first, self.blocks._replace(points=points, n_rows=n_rows)
