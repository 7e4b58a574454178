"""The kernel's part of the graph: coordinates, adaptive bandwidths, and quantiles under local weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from lvd._typing import Float, NDArray
from lvd.calibration.bandwidth import GRID
from lvd.onnx.graph import DOUBLE, INTEGER, SINGLE, Graph, Node

BEYOND = 1e12
"""The squared distance of rows that only fill the last block up: their weights are 0."""
ROUNDING = 1e-10
"""Sums of weights err by less than this share of all weight, as rows with equal weights do in float64."""


def place_rows(kernel: Any, embeddings: Node) -> Node:
    """Coordinates in which the kernel is ``exp(-||u - v||^2)``, those of :meth:`MahalanobisKernel.coordinates`."""
    mean, factors = kernel._placed(np.empty((0, len(kernel.mean_))))
    scale = kernel._squared_distance_scale(len(kernel.components_)) ** -0.5
    return (embeddings - mean) @ (scale * factors.T)


def minus_distances(
    queries: Node, points: Float[NDArray, "m k"], precision: Node | None = None, n_more: int = 0
) -> Node:
    """``-||u - u_j||^2 / h^2`` of all rows and points as one product, and of `n_more` points far away."""
    centre = points.mean(axis=0)
    around = np.concatenate([points - centre, np.zeros((n_more, points.shape[1]))])
    squares = (around**2).sum(axis=1)
    squares[len(points) :] = BEYOND
    centred = queries - centre
    own = (centred * centred).reduce("Sum")
    left = queries.graph.join([centred * 2.0, -own, own * 0.0 - 1.0])
    left = left if precision is None else left * precision
    return left @ np.concatenate([around, np.ones((len(around), 1)), squares[:, None]], axis=1).T


def adaptive_precisions(queries: Node, sample: Float[NDArray, "r k"], wanted: float) -> Node:
    """``1 / h^2`` for the h of :func:`lvd.calibration.bandwidth.adaptive_bandwidths`, half the grid at a time.

    Weights are in float32, as they are there.
    """
    distances = minus_distances(queries, sample).cast(SINGLE)
    low = (distances.columns([0]) > 1.0).cast(INTEGER)  # none is: 0
    high = low + (len(GRID) - 1)
    for _ in range(int(np.ceil(np.log2(len(GRID))))):
        middle = (low + high) / 2
        precision = middle.looked_up((GRID**-2.0).astype(SINGLE))
        enough = (distances * precision).then("Exp").reduce("Sum") >= wanted
        high, low = enough.where(middle, high), enough.where(low, (middle + 1).at_most(high))
    return high.looked_up(GRID**-2.0)


def local_radii(
    queries: Node,
    points: Float[NDArray, "m k"],
    scores: Float[NDArray, "m"],
    levels: Float[NDArray, "l"],
    precision: Node | None,
) -> tuple[Node, Node]:
    """The weighted quantiles (n, l) of sorted scores, +inf where the weight does not suffice, and the effective
    number of rows (n, 1).

    Weights are summed in blocks of rows; in the block that reaches the level, row by row. A row's own weight, 1, is
    at +inf.
    """
    graph, n_rows = queries.graph, len(scores)
    width = int(np.ceil(np.sqrt(n_rows)))
    n_blocks = -(-n_rows // width)
    weights = minus_distances(queries, points, precision, n_blocks * width - n_rows).then("Exp")
    blocks = weights.shaped(0, n_blocks, width)
    reached = blocks.reduce("Sum", 2, keep=False) @ np.triu(np.ones((n_blocks, n_blocks)))
    total = reached.columns([n_blocks - 1])
    wanted = (total + 1.0) * ((1.0 - ROUNDING) * levels)  # equal weights reach a level that they meet exactly
    block = _number_short(reached.shaped(0, 1, n_blocks), wanted)
    inside = block.at_most(n_blocks - 1)
    chosen = graph.apply("GatherND", blocks, inside.shaped(0, len(levels), 1), batch_dims=1)
    before = graph.apply("GatherElements", graph.join([total * 0.0, reached]), inside, axis=1)
    sums = chosen @ np.triu(np.ones((width, width))) + before.shaped(0, len(levels), 1)
    rank = block * width + _number_short(sums, wanted)
    ends = np.append(scores, np.full((n_blocks + 1) * width + 1 - n_rows, np.inf))
    squares = weights.reduce("SumSquare")
    effective = (squares > 0.0).where(total * total / squares, 0.0)
    return rank.looked_up(ends), effective


def _number_short(sums: Node, wanted: Node) -> Node:
    """How many of the sums along the last axis do not reach what is wanted; all, where they are no numbers."""
    short = ~(sums >= wanted.then("Unsqueeze", sums.graph.constant([2], INTEGER)))
    return short.cast(INTEGER).reduce("Sum", 2, keep=False)


def kernel_means(
    queries: Node, points: Float[NDArray, "m k"], values: Float[NDArray, "m c"], bandwidth: float
) -> Node:
    """``sum_j K_h(u, u_j) v_j`` (n, c)."""
    graph: Graph = queries.graph
    distances = minus_distances(queries, points) * bandwidth**-2.0
    return distances.then("Exp") @ graph.constant(values, DOUBLE)
