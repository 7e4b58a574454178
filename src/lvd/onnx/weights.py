"""The kernel in the graph: coordinates, adaptive bandwidths, and quantiles under local weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lvd._typing import Float, NDArray
from lvd.engine.quantiles import GRID
from lvd.onnx.graph import DOUBLE, INTEGER, SINGLE, Node

BEYOND = 1e12
"""The squared distance of padding rows in the last block, whose weights are 0."""
SINGLE_ERROR, FAINT = 5e-6, 1e-12
"""The relative error bound of float32 sums of weights, valid for sums above the second number."""
ROUNDING = 1e-10
"""The relative error bound in float64."""
GUESSING = 8
"""The share of training rows, an eighth, used to guess bandwidths."""


def place_rows(kernel: Any, embeddings: Node) -> Node:
    """Coordinates in which the kernel is ``exp(-||u - v||^2)``, those of :meth:`MahalanobisKernel.coordinates`."""
    mean, factors = kernel._placed(np.empty((0, len(kernel.mean_))))
    scale = kernel._squared_distance_scale(len(kernel.components_)) ** -0.5
    return (embeddings - mean) @ (scale * factors.T)


def minus_distances(
    queries: Node, points: Float[NDArray, "m k"], precision: Node | None = None, n_more: int = 0
) -> Node:
    """``-||u - u_j||^2 / h^2`` for all rows and points as one product, padded with `n_more` points far away."""
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
    """``1 / h^2`` for the h of :func:`lvd.engine.quantiles.adaptive_bandwidths`, also from float32 weights.

    Part of the sample guesses the position in the grid; the full sample confirms it, or else searches.
    """
    first, last, steps = -(-len(sample) // GUESSING), len(GRID) - 1, (GRID**-2.0).astype(SINGLE)
    mixed = np.concatenate([sample[start::GUESSING] for start in range(GUESSING)])
    distances = minus_distances(queries, mixed).cast(SINGLE)
    part = distances.then("Slice", *(queries.graph.constant([one], INTEGER) for one in (0, first, 1)))

    def suffices(rows: Node, place: Node, share: float) -> Node:
        weights = (rows * place.looked_up(steps)).then("Exp")
        return weights.reduce("Sum") >= share * wanted

    def search(rows: Node, share: float) -> Node:
        low = (rows.columns([0]) > 1.0).cast(INTEGER)  # none: 0
        high = low + last
        for _ in range(int(np.ceil(np.log2(len(GRID))))):
            middle = (low + high) / 2
            enough = suffices(rows, middle, share)
            high, low = enough.where(middle, high), enough.where(low, (middle + 1).at_most(high))
        return high

    guess = search(part, first / len(sample))
    too_large = suffices(distances, (guess - 1).at_least(0), 1.0) & (guess > 0)
    too_small = ~suffices(distances, guess, 1.0) & (guess < last)
    wrong = too_large.then("Or", too_small)
    return queries.graph.amend(guess, wrong, lambda pick: search(pick(distances), 1.0)).looked_up(GRID**-2.0)


def local_radii(
    queries: Node,
    points: Float[NDArray, "m k"],
    scores: Float[NDArray, "m"],
    levels: Float[NDArray, "l"],
    precision: Node | None,
) -> tuple[Node, Node]:
    """The weighted quantiles (n, l) of sorted scores, +inf if the weight does not suffice, and the effective
    sample size (n, 1).

    Weights are float32, or float64 where rounding might decide. A row's own weight, 1, is at +inf.
    """
    width = int(np.ceil(np.sqrt(len(scores))))
    n_blocks, n_levels = -(-len(scores) // width), len(levels)
    distances = minus_distances(queries, points, precision, n_blocks * width - len(scores))
    ends = np.append(scores, np.full((n_blocks + 1) * width + 1 - len(scores), np.inf))
    either = np.concatenate([(1.0 - SINGLE_ERROR) * levels, (1.0 + SINGLE_ERROR) * levels])
    ranks, total, squares = _ranks(distances.cast(SINGLE), (n_blocks, width), either)
    least, most = (ranks.columns(np.arange(n_levels) + side) for side in (0, n_levels))
    doubtful = (most > least).cast(SINGLE).reduce("Max") > 0.0
    doubtful = doubtful.then("Or", total < FAINT)

    def again(pick: Callable[[Node], Node]) -> Node:
        # Equal weights reach a level they meet exactly.
        ranks, total, squares = _ranks(pick(distances), (n_blocks, width), (1.0 - ROUNDING) * levels)
        return queries.graph.join([ranks.looked_up(ends), _effective(total, squares)])

    answer = queries.graph.join([least.looked_up(ends), _effective(total, squares)])
    answer = queries.graph.amend(answer, doubtful, again)
    return answer.columns(np.arange(n_levels)), answer.columns([n_levels])


def _ranks(exponents: Node, shape: tuple[int, int], levels: Float[NDArray, "l"]) -> tuple[Node, Node, Node]:
    """The ranks (n, l) at which the weights reach the levels, the total weight, and its sum of squares, (n, 1).

    Weights are summed by blocks of rows, and row by row in the block that reaches the level.
    """
    graph, weights, (n_blocks, width) = exponents.graph, exponents.then("Exp"), shape
    blocks = weights.shaped(0, n_blocks, width)
    reached = blocks.reduce("Sum", 2, keep=False).cast(DOUBLE) @ np.triu(np.ones((n_blocks, n_blocks)))
    total = reached.columns([n_blocks - 1])
    wanted = (total + 1.0) * levels
    block = _number_short(reached.shaped(0, 1, n_blocks), wanted)
    inside = block.at_most(n_blocks - 1)
    chosen = graph.apply("GatherND", blocks, inside.shaped(0, len(levels), 1), batch_dims=1).cast(DOUBLE)
    before = graph.apply("GatherElements", graph.join([total * 0.0, reached]), inside, axis=1)
    sums = chosen @ np.triu(np.ones((width, width))) + before.shaped(0, len(levels), 1)
    squares = (weights * weights).reduce("Sum").cast(DOUBLE)
    return block * width + _number_short(sums, wanted), total, squares


def _effective(total: Node, squares: Node) -> Node:
    """The effective sample size of the weights."""
    return (squares > 0.0).where(total * total / squares, 0.0)


def _number_short(sums: Node, wanted: Node) -> Node:
    """How many of the sums along the last axis fall short of the target; all, if they are NaN."""
    short = ~(sums >= wanted.then("Unsqueeze", sums.graph.constant([2], INTEGER)))
    return short.cast(INTEGER).reduce("Sum", 2, keep=False)


def kernel_means(
    queries: Node, points: Float[NDArray, "m k"], values: Float[NDArray, "m c"], bandwidth: float
) -> Node:
    """``sum_j K_h(u, u_j) v_j`` (n, c), with float32 weights."""
    distances = minus_distances(queries, points) * bandwidth**-2.0
    return (distances.cast(SINGLE).then("Exp") @ values).cast(DOUBLE)
