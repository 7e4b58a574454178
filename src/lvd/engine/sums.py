"""Weighted sums over rows, ``sum_j exp(-||u - u_j||^2 / h^2) v_j``, never as a whole matrix of weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lvd._parallel import chunk_slices, in_chunks
from lvd._typing import Float, NDArray

CHUNK_WEIGHTS = 2**24
FAR = 1e6
"""Squared distances from the centre from which on distances are no longer formed from products."""


@dataclass(frozen=True, eq=False)
class WeightedRows:
    """Rows with values whose sums are asked for again and again."""

    points: Float[Tensor, "m k"]
    values: Float[Tensor, "m c"]

    def sums(
        self, queries: Float[Tensor, "n k"], bandwidths: Float[Tensor, "n"] | None = None
    ) -> Float[Tensor, "n c"]:
        """The sums in float64, by differences where points far out would disturb the others."""
        precisions = queries.new_ones(len(queries)) if bandwidths is None else bandwidths**-2.0
        if queries.device.type == "cpu":
            return self._sums_on_cpu(queries.numpy(), precisions.numpy())
        sums = []
        for rows in chunk_slices(len(queries), max(1, CHUNK_WEIGHTS // max(1, len(self.points)))):
            distances = squared_distances(queries[rows], self.points)
            sums.append(distances.mul_(-precisions[rows, None]).exp_() @ self.values)
        return torch.cat(sums)

    @cached_property
    def _blocks(self) -> Any:
        from lvd.engine.compiled import in_blocks, make_blocks

        blocks = make_blocks(self.points.numpy())
        return blocks, in_blocks(list(self.values.T.numpy()), blocks)

    def _sums_on_cpu(
        self, queries: Float[NDArray, "n k"], precisions: Float[NDArray, "n"]
    ) -> Float[Tensor, "n c"]:
        from lvd.engine.compiled import sums_over_blocks

        result = np.empty((len(queries), self.values.shape[1]))
        in_chunks(
            lambda rows: sums_over_blocks(queries[rows], precisions[rows], *self._blocks, result[rows]),
            len(queries),
            len(self.points),
        )
        return torch.from_numpy(result)


def squared_differences(a: Float[Tensor, "n k"], b: Float[Tensor, "m k"]) -> Float[Tensor, "n m"]:
    """The squares of all distances, by differences: exact to the last digits, however far points are out."""
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square_()


def squared_distances(a: Float[Tensor, "n k"], b: Float[Tensor, "m k"]) -> Float[Tensor, "n m"]:
    """The squares of all distances, on a GPU by products, which take a small part of the time of differences."""
    return squared_differences(a, b) if a.device.type == "cpu" else distances_by_products(a, b)


def distances_by_products(a: Float[Tensor, "n k"], b: Float[Tensor, "m k"]) -> Float[Tensor, "n m"]:
    """The squares of all distances; by products up to `FAR`, where they err by about 1e-9, else by differences."""
    centre = b.mean(0)
    left, right = a - centre, b - centre
    norms_left, norms_right = left.square().sum(1), right.square().sum(1)
    if not bool(torch.cat([norms_left, norms_right]).max() <= FAR):
        return squared_differences(a, b)
    return torch.addmm(norms_right[None], left, right.T, alpha=-2.0).add_(norms_left[:, None]).clamp_(min=0.0)


def weighted_sums(
    queries: Float[Tensor, "n k"],
    points: Float[Tensor, "m k"],
    values: Float[Tensor, "m c"],
    bandwidths: Float[Tensor, "n"] | None = None,
) -> Float[Tensor, "n c"]:
    """The sums over rows that are asked for once."""
    return WeightedRows(points, values).sums(queries, bandwidths)
