"""CHR: conformal histogram regression (Sesia and Romano 2021), from the paper.

Each row has a histogram of y and nested intervals in it, each as short as its mass and the nesting allow; the
calibration rows determine how much mass is needed. Intervals are not randomized, which is also the default of
the authors' package.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from numba import njit

from experiments.arena.distributional import Quantiles, learn_distribution
from experiments.arena.rivals import ToIntervals
from experiments.arena.split import ArenaSplit
from lvd._typing import Float, NDArray
from lvd.engine import conformal_quantile

BINS = 500
"""This many bins of equal width are overlaid with equally many that hold equal numbers of training rows."""
STEPS = 1000
"""The masses of the nested intervals are multiples of one over this number."""
ROUNDING = 1e-9


def histogram_intervals(split: ArenaSplit, level: float) -> ToIntervals:
    """For each row, the interval of the smallest mass that suffices for `level` of the calibration rows."""
    ask = split.stages.once("distribution", lambda: learn_distribution(split))
    known = ask(split.X_calib)
    edges, start = bin_edges(split.y_train, known), max(round(level * STEPS), 1)
    scores = needed_steps(known.masses_below(edges), edges, start, split.y_calib)
    (found,) = conformal_quantile(scores, np.array([level]))

    def intervals(X: Float[NDArray, "n p"]) -> Float[NDArray, "n 2"]:
        if np.isinf(found):
            return np.tile([-np.inf, np.inf], (len(X), 1))
        ends = [nested_bins(row, edges, start)[int(found) - 1] for row in ask(X).masses_below(edges)]
        return edges[np.array(ends)]

    return intervals


def bin_edges(y_train: Float[NDArray, "n"], known: Quantiles) -> Float[NDArray, "b"]:
    """Edges from the lowest to the highest y of the distributions: evenly spaced, and denser where training
    rows are.

    The paper's bins have equal widths, which loses detail if a few values are far from the others.
    """
    lowest, highest = known.values[0, [0, -1]]
    orders = np.linspace(0.0, 1.0, BINS + 1)
    return np.unique([*np.linspace(lowest, highest, BINS + 1), *np.quantile(y_train, orders)])


def needed_steps(
    masses: Float[NDArray, "n b"], edges: Float[NDArray, "b"], start: int, y: Float[NDArray, "n"]
) -> Float[NDArray, "n"]:
    """The smallest step whose interval contains y, infinite if y is in no bin."""
    steps = np.full(len(y), np.inf)
    for place, (row, one) in enumerate(zip(masses, y, strict=True)):
        ends = edges[nested_bins(row, edges, start)]
        inside = (ends[:, 0] <= one) & (one <= ends[:, 1])
        if inside.any():
            steps[place] = inside.argmax() + 1
    return steps


@no_type_check
@njit(cache=True)
def nested_bins(below, edges, start):
    """For masses of 1 to `STEPS` steps, the first and last edge of nested intervals.

    `below` (b) is the mass below each of the `edges` (b), and the result has one row per step. The interval of
    `start` is the shortest of all with its mass. From there, each larger interval is the shortest around the
    previous one, and each smaller one the shortest inside it.
    """
    ends, last = np.empty((STEPS, 2), np.int64), len(edges) - 1
    first, end = shortest(below, edges, start / STEPS, (0, last), (0, last))
    ends[start - 1] = first, end
    for step in range(start + 1, STEPS + 1):
        first, end = shortest(below, edges, step / STEPS, (0, first), (end, last))
        ends[step - 1] = first, end
    first, end = ends[start - 1]
    for step in range(start - 1, 0, -1):
        first, end = shortest(below, edges, step / STEPS, (first, end), (first, end))
        ends[step - 1] = first, end
    return ends


@no_type_check
@njit(cache=True)
def shortest(below, edges, mass, firsts, lasts):
    """The edges of the shortest interval of at least this mass, starting and ending in these ranges of edges."""
    best, enough = (firsts[0], lasts[1]), mass - ROUNDING
    first = min(firsts[1], np.searchsorted(below, below[lasts[1]] - enough, side="right") - 1)
    while first >= firsts[0]:
        end = min(max(np.searchsorted(below, below[first] + enough), lasts[0]), lasts[1])
        if edges[end] - edges[first] <= edges[best[1]] - edges[best[0]]:
            best = first, end
        if end == lasts[0]:  # those that begin before are longer
            break
        first -= 1
    return best
