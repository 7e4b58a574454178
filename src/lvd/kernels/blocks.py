"""Rows laid out in blocks, as :mod:`lvd.kernels.compiled` takes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lvd._typing import Float, NDArray
from lvd.kernels.compiled import BLOCK, STRETCH, STRIDE

ROUNDING = {np.dtype(np.float32): (2.0**-24, 2.0**-125), np.dtype(np.float64): (2.0**-53, 2.0**-1020)}
"""The unit roundoff, and below which a weight counts as 0."""


class Blocks(NamedTuple):
    """Rows in blocks: their coordinates, likelihood ratios and precisions ``1 / h^2``; the last two may be empty.

    Past the last row ratios are 0, and coordinates infinite where there are no ratios. A `centre` was taken off the
    coordinates. `unit` is the roundoff of their precision, and weights below `underflow` count as 0.
    """

    points: Float[NDArray, "b c w"]
    ratios: Float[NDArray, "_ w"]
    precisions: Float[NDArray, "_ w"]
    centre: Float[NDArray, "k"]
    centre_length: float
    n_rows: int
    unit: float
    underflow: float


def make_blocks(
    points: Float[NDArray, "m k"],
    centre: Float[NDArray, "k"] | None = None,
    ratios: Float[NDArray, "m"] | None = None,
    precisions: Float[NDArray, "m"] | None = None,
) -> Blocks:
    """Lay rows out in blocks: in float32 around a centre, near which it keeps more digits, else in float64."""
    n_rows, k = points.shape
    dtype, width = np.dtype(np.float64 if centre is None else np.float32), block_width(n_rows)
    centre = np.zeros(k) if centre is None else centre

    def lay_out(columns: Float[NDArray, "m c"], beyond: float) -> Float[NDArray, "b c w"]:
        padded = np.full((-(-n_rows // width) * width, columns.shape[1]), beyond, dtype)
        with np.errstate(over="ignore"):
            padded[:n_rows] = columns
        return np.ascontiguousarray(padded.reshape(-1, width, columns.shape[1]).transpose(0, 2, 1))

    empty = np.empty((0, width), dtype)
    laid = lay_out(np.pad(points - centre, ((0, 0), (0, -k % STRIDE))), np.inf)
    laid[:, k:] = 0.0
    weights, own = (
        empty if one is None else lay_out(one[:, None], 0.0)[:, 0] for one in (ratios, precisions)
    )
    length = math.hypot(*centre.tolist())
    return Blocks(laid, weights, own, centre, length, n_rows, *ROUNDING[dtype])


def in_blocks(columns: Sequence[Float[NDArray, "m"]], blocks: Blocks) -> Float[NDArray, "c b w"]:
    """Values of the rows laid out as these are, 0 past the last one."""
    n_blocks, _, width = blocks.points.shape
    laid = np.zeros((len(columns), n_blocks, width))
    for column, row in zip(columns, laid, strict=True):
        row.reshape(-1)[: blocks.n_rows] = column
    return laid


def block_width(n_rows: int) -> int:
    """How many rows a block holds: as many as there are, in whole stretches, or at most BLOCK."""
    return min(BLOCK, -(-n_rows // STRETCH) * STRETCH)
