"""Randomly localized conformal prediction (Hore and Barber 2023): marginal, and robustly local.

The centre of the weights is not the query but a point drawn from the kernel around it, so that query and
calibration rows play the same part. The draw belongs to the row: the same row and seed give the same centre,
whatever rows stand beside it. A row is known by a key, 64 bits.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from lvd._typing import Float, NDArray
from lvd._validation import row_digests


def draw_centres(
    queries: Float[Tensor, "n k"], seed: int, keys: NDArray | None = None
) -> Float[Tensor, "n k"]:
    """One centre per query, from the normal density proportional to the kernel ``exp(-||u||^2)``."""
    normals = ndtri(row_uniforms(queries, seed, queries.shape[1], keys))
    return queries + torch.as_tensor(normals * 0.5**0.5, device=queries.device)


def draw_shares(queries: Float[Tensor, "n k"], seed: int, keys: NDArray | None = None) -> Float[Tensor, "n"]:
    """One number in (0, 1) per query, independent of its centre."""
    return queries.new_tensor(row_uniforms(queries, seed, queries.shape[1] + 1, keys)[:, -1])


def row_uniforms(
    rows: Float[Tensor, "n k"], seed: int, count: int, keys: NDArray | None = None
) -> Float[NDArray, "n c"]:
    """Numbers in (0, 1) that depend on a row's key and the seed alone; the key is a digest of its content."""
    keys = row_digests(rows.cpu().numpy()) if keys is None else keys
    state = keys[:, None] ^ _mix(np.full((1, 1), seed, dtype=np.uint64))
    mixed = _mix(state + _mix(np.arange(1, count + 1, dtype=np.uint64))[None, :])
    return (np.right_shift(mixed, np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _mix(state: NDArray) -> NDArray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
