"""Weighted sums over rows, ``sum_j exp(-||u - u_j||^2 / h^2) v_j``, never as a whole matrix of weights."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lvd._parallel import chunk_slices, in_chunks
from lvd._typing import Float

CHUNK_WEIGHTS = 2**24


def weighted_sums(
    queries: Float[Tensor, "n k"],
    points: Float[Tensor, "m k"],
    values: Float[Tensor, "m c"],
    bandwidths: Float[Tensor, "n"] | None = None,
) -> Float[Tensor, "n c"]:
    """The sums in float64, by differences, so that points far out do not disturb the others."""
    precisions = queries.new_ones(len(queries)) if bandwidths is None else bandwidths**-2.0
    if queries.device.type == "cpu":
        return _sums_on_cpu(queries, points, values, precisions)
    sums = []
    for rows in chunk_slices(len(queries), max(1, CHUNK_WEIGHTS // max(1, len(points)))):
        distances = torch.cdist(queries[rows], points, compute_mode="donot_use_mm_for_euclid_dist").square_()
        sums.append(distances.mul_(-precisions[rows, None]).exp_() @ values)
    return torch.cat(sums)


def _sums_on_cpu(
    queries: Float[Tensor, "n k"],
    points: Float[Tensor, "m k"],
    values: Float[Tensor, "m c"],
    precisions: Float[Tensor, "n"],
) -> Float[Tensor, "n c"]:
    from lvd.kernels import compiled

    blocks = compiled.make_blocks(points.numpy())
    laid = compiled.in_blocks(list(values.T.numpy()), blocks)
    asked, narrow, result = queries.numpy(), precisions.numpy(), np.empty((len(queries), values.shape[1]))
    in_chunks(
        lambda rows: compiled.sums_over_blocks(asked[rows], narrow[rows], blocks, laid, result[rows]),
        len(queries),
        len(points),
    )
    return torch.from_numpy(result)
