"""A bandwidth for each row: how far to look for enough calibration rows, told by the training rows alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lvd._parallel import in_chunks
from lvd._typing import Float
from lvd.kernels.sums import weighted_sums

MOST_TRAINING_ROWS = 4096
LARGEST = 50.0
STEPS = 40
"""Bandwidths are chosen from so many, in geometric steps from 1 to the largest."""


def adaptive_bandwidths(
    queries: Float[Tensor, "n k"],
    training: Float[Tensor, "r k"],
    *,
    n_calib: int,
    level: float,
    mass: float,
) -> Float[Tensor, "n"]:
    """The smallest h >= 1 with ``(m / n) sum_j exp(-||u - u_j||^2 / h^2) >= mass level / (1 - level)``.

    The sum runs over the n training rows: it is the weight that m calibration rows like them are expected to have;
    below ``mass = 1`` the radius would be infinite in expectation. Calibration rows take no part, so that for a
    fixed centre this is a fixed kernel with its maximum at the centre, and the local guarantee holds unchanged.
    """
    sample = training[:: max(1, -(-len(training) // MOST_TRAINING_ROWS))]
    wanted = mass * level / (1.0 - level) * len(sample) / n_calib
    grid = np.geomspace(1.0, LARGEST, STEPS)
    if queries.device.type == "cpu":
        return _by_compiled_sums(queries, sample, grid, wanted)
    return _by_bisection(queries, sample, grid, wanted)


def _by_compiled_sums(
    queries: Float[Tensor, "n k"], training: Float[Tensor, "r k"], grid: Any, wanted: float
) -> Float[Tensor, "n"]:
    from lvd.kernels import compiled

    blocks = compiled.make_blocks(training.numpy(), np.median(training.numpy(), axis=0))
    asked = queries.numpy()
    result = np.empty(len(queries))
    precisions = (grid**-2.0).astype(np.float32)
    in_chunks(
        lambda rows: compiled.smallest_bandwidths(
            asked[rows], blocks, precisions, wanted, grid, result[rows]
        ),
        len(queries),
        8 * len(training),
    )
    return torch.as_tensor(result)


def _by_bisection(
    queries: Float[Tensor, "n k"], training: Float[Tensor, "r k"], grid: Any, wanted: float
) -> Float[Tensor, "n"]:
    """The same by sums over all training rows, half the grid at a time."""
    steps, ones = queries.new_tensor(grid), training.new_ones(len(training), 1)
    low = torch.zeros(len(queries), dtype=torch.int64, device=queries.device)
    high = torch.full_like(low, len(grid) - 1)
    while bool((low < high).any()):
        middle = (low + high) // 2
        enough = weighted_sums(queries, training, ones, steps[middle])[:, 0] >= wanted
        low, high = torch.where(enough, low, middle + 1), torch.where(enough, middle, high)
        low = torch.minimum(low, high)
    return steps[high]
