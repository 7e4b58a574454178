"""Weighted sums over rows, ``sum_j exp(-||u - u_j||^2 / h^2) v_j``, without a matrix of all weights.

Also the smallest bandwidth h at which the weights of a row sum to enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lvd._parallel import chunk_slices, in_chunks
from lvd._typing import Float, NDArray
from lvd.engine import fused

CHUNK_WEIGHTS = 2**24
FAR = 1e6
"""Squared distances from the centre from which on distances are no longer formed from products."""
MOST_TRAINING_ROWS = 4096
GRID = np.geomspace(1.0, 50.0, 40)
"""The candidate bandwidths."""
LEAST_LEVEL = 0.9
"""Lower levels use the bandwidths of this one: the few rows that suffice for a finite radius are noisy."""


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


@dataclass(frozen=True, eq=False)
class TrainingSample:
    """A sample of the training rows in scaled coordinates, from which bandwidths are chosen."""

    points: Float[Tensor, "r k"]

    @classmethod
    def of(cls, training: Float[Tensor, "n k"]) -> TrainingSample:
        """Every so many of the rows."""
        every = max(1, -(-len(training) // MOST_TRAINING_ROWS))
        return cls(training[::every].clone(memory_format=torch.contiguous_format))

    @cached_property
    def blocks(self) -> Any:
        """The rows as compiled sums take them."""
        from lvd.engine.compiled import make_blocks

        points = self.points.numpy()
        return make_blocks(points, np.median(points, axis=0))

    @cached_property
    def on_gpu(self) -> Any:
        """The rows as the fused GPU kernel reads them."""
        from lvd.engine.triton_engine import TrainingPoints

        return TrainingPoints(self.points, GRID)


def adaptive_bandwidths(
    queries: Float[Tensor, "n k"], sample: TrainingSample, *, n_calib: float, level: float, mass: float
) -> Float[Tensor, "n"]:
    """The smallest h >= 1 with ``(m / n) sum_j exp(-||u - u_j||^2 / h^2) >= mass level / (1 - level)``.

    Levels below 0.9 count as that. The sum runs over n training rows: it is the weight that m calibration rows like
    them are expected to have; below ``mass = 1`` the radius would be infinite in expectation. Calibration rows take
    no part, so that for a fixed centre this is a fixed kernel with its maximum at the centre: the local guarantee
    holds unchanged.
    """
    wanted = wanted_weight(len(sample.points), n_calib=n_calib, level=level, mass=mass)
    if queries.device.type == "cpu":
        return _by_compiled_sums(queries.numpy(), sample.blocks, wanted)
    if fused.fuses_on(queries.device, queries.shape[1]):
        return sample.on_gpu.bandwidths(queries, wanted)
    return _by_bisection(queries, sample.points, wanted)


def wanted_weight(n_sample: int, *, n_calib: float, level: float, mass: float) -> float:
    """The weight of a sample of training rows from which on a bandwidth is wide enough."""
    level = max(level, LEAST_LEVEL)
    return mass * level / (1.0 - level) * n_sample / n_calib


def _by_compiled_sums(queries: Float[NDArray, "n k"], blocks: Any, wanted: float) -> Float[Tensor, "n"]:
    from lvd.engine.compiled import smallest_bandwidths

    result, precisions = np.empty(len(queries)), GRID**-2.0
    in_chunks(
        lambda rows: smallest_bandwidths(queries[rows], blocks, precisions, wanted, GRID, result[rows]),
        len(queries),
        8 * blocks.n_rows,
    )
    return torch.from_numpy(result)


def _by_bisection(
    queries: Float[Tensor, "n k"], training: Float[Tensor, "r k"], wanted: float
) -> Float[Tensor, "n"]:
    """The same by sums over all training rows, half the grid at a time."""
    steps, rows = queries.new_tensor(GRID), WeightedRows(training, training.new_ones(len(training), 1))
    low = torch.zeros(len(queries), dtype=torch.int64, device=queries.device)
    high = torch.full_like(low, len(GRID) - 1)
    while bool((low < high).any()):
        middle = (low + high) // 2
        enough = rows.sums(queries, steps[middle])[:, 0] >= wanted
        low, high = torch.where(enough, low, middle + 1), torch.where(enough, middle, high)
        low = torch.minimum(low, high)
    return steps[high]
