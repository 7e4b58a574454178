"""Localized conformal prediction with a calibrated level (Guan 2023): exactly marginal, no randomness.

Plain local quantiles need not cover marginally. Here each calibration row is asked, as the test row is, where
its own score stands among its localized neighbours, and the level of the local quantile is chosen so that these
standings are covered. Names follow the paper's Lemma: scores V ascending, ``V_{m+1} = +inf``; H the kernel matrix
of the calibration rows; h the test row's kernel values; ``id(i)`` the number of scores below ``V_i``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from lvd._parallel import chunk_slices, workers
from lvd._typing import Float, Int, NDArray
from lvd.conformal.engine import SortedCalibration

CHUNK_ELEMENTS = 2**21


@dataclass(frozen=True)
class Standing:
    """What is computed once per calibration set: how much weight each row sees below its score, and in all.

    `below` is ``a_i = sum_{j <= id(i)} H_ij``, `total` is ``b_i = sum_j H_ij``; `n_below` is ``id(k)`` for k up to
    m + 1.
    """

    below: Float[Tensor, "m"]
    total: Float[Tensor, "m"]
    n_below: Int[Tensor, "_"]


def standing(calibration: SortedCalibration) -> Standing:
    """O(m^2) time, O(m) memory: the kernel matrix is streamed."""
    scores = calibration.scores
    m = len(scores)
    n_below = torch.cat([torch.searchsorted(scores, scores), torch.tensor([m], device=scores.device)])
    with workers() as run:
        slices = chunk_slices(m, max(1, CHUNK_ELEMENTS // max(1, m)))
        parts = run(partial(_stand, calibration.points, n_below), slices)
    below, total = (torch.cat(part) for part in zip(*parts, strict=True)) if parts else (scores, scores)
    return Standing(below, total, n_below)


def _stand(points: Float[Tensor, "m k"], n_below: Int[Tensor, "_"], rows: slice) -> tuple[Tensor, Tensor]:
    cumulative = _similarities(points[rows], points).cumsum(1)
    chosen = n_below[rows, None]
    below = torch.where(chosen > 0, cumulative.gather(1, (chosen - 1).clamp(min=0)), 0.0)[:, 0]
    return below, cumulative[:, -1]


def radius(
    queries: Float[Tensor, "n k"],
    calibration: SortedCalibration,
    standing: Standing,
    levels: Float[NDArray, "l"],
) -> Float[Tensor, "n l"]:
    """The radius of each query at each level, O(m log m) a query."""
    scores = torch.cat([calibration.scores, calibration.scores.new_full((1,), torch.inf)])
    if calibration.n_rows == 0:
        return scores.new_full((len(queries), len(levels)), torch.inf)
    with workers() as run:
        slices = chunk_slices(len(queries), max(1, CHUNK_ELEMENTS // calibration.n_rows))
        ranks = run(partial(_ranks, queries, calibration.points, standing, levels.tolist()), slices)
    return scores[torch.cat(ranks)]


def _ranks(
    queries: Float[Tensor, "n k"],
    points: Float[Tensor, "m k"],
    standing: Standing,
    levels: list[float],
    rows: slice,
) -> Int[Tensor, "r l"]:
    """``k* = max{k : S(k) < level}``, counted from 0, so that m stands for +inf."""
    h = _similarities(queries[rows], points)
    n_below = standing.n_below.expand(len(h), -1)
    prefix = torch.nn.functional.pad(h.cumsum(1), (1, 0))
    theta = prefix.gather(1, n_below) / (1.0 + prefix[:, -1:])
    high = (standing.below + h) / (standing.total + h)
    low = standing.below / (standing.total + h)
    own = theta[:, :-1]
    first = high < own
    second = low >= own
    third = ~(first | second)
    # The third set counts by scores: rows whose score lies below that of k are the first id(k) ones.
    by_score = torch.nn.functional.pad(third.cumsum(1), (1, 0)).gather(1, n_below)
    counts = _count_below(high, first, theta) + _count_below(low, second, theta) + by_score
    share = counts.double() / (points.shape[0] + 1)
    return torch.stack([(share < level).sum(1) - 1 for level in levels], 1)


def _count_below(
    values: Float[Tensor, "r m"], chosen: Tensor, thresholds: Float[Tensor, "r t"]
) -> Int[Tensor, "r t"]:
    """For each threshold of a row, how many of its chosen values lie below."""
    ordered = values.masked_fill(~chosen, torch.inf).sort(1).values
    return torch.searchsorted(ordered, thresholds.contiguous())


def _similarities(queries: Float[Tensor, "n k"], points: Float[Tensor, "m k"]) -> Float[Tensor, "n m"]:
    distances = torch.cdist(queries, points, compute_mode="donot_use_mm_for_euclid_dist")
    return distances.square_().neg_().exp_()
