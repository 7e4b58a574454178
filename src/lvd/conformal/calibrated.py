"""Localized conformal prediction with a calibrated level (Guan 2023): exactly marginal, no randomness.

Plain local quantiles need not cover marginally. Here each calibration row is asked, as the test row is, where
its own score stands among its localized neighbours, and the level of the local quantile is chosen so that these
standings are covered. Names follow the paper's Lemma: scores V ascending, ``V_{m+1} = +inf``; H the kernel matrix
of the calibration rows; h the test row's kernel values; ``id(i)`` the number of scores below ``V_i``. Likelihood
ratios w weigh the neighbours and the standings alike; without a shift all are 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from lvd._parallel import chunk_slices, workers
from lvd._typing import Float, Int, NDArray
from lvd.conformal.engine import SortedCalibration, similarities

CHUNK_ELEMENTS = 2**21


@dataclass(frozen=True)
class Standing:
    """What is computed once per calibration set: how much weight each row sees below its score, and in all.

    `below` is ``a_i = sum_{j <= id(i)} w_j H_ij``, `total` is ``b_i = sum_j w_j H_ij``; `n_below` is ``id(k)``
    for k up to m + 1.
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
        parts = run(partial(_stand, calibration, n_below), slices)
    below, total = (torch.cat(part) for part in zip(*parts, strict=True)) if parts else (scores, scores)
    return Standing(below, total, n_below)


def _stand(calibration: SortedCalibration, n_below: Int[Tensor, "_"], rows: slice) -> tuple[Tensor, Tensor]:
    cumulative = similarities(calibration.points[rows], calibration).mul_(calibration.weights).cumsum_(1)
    chosen = n_below[rows, None]
    below = torch.where(chosen > 0, cumulative.gather(1, (chosen - 1).clamp(min=0)), 0.0)[:, 0]
    return below, cumulative[:, -1].clone()


def radius(
    queries: Float[Tensor, "n k"],
    calibration: SortedCalibration,
    standing: Standing,
    levels: Float[NDArray, "l"],
    self_weights: Float[Tensor, "n"] | None = None,
) -> Float[Tensor, "n l"]:
    """The radius of each query at each level, O(m log m) a query; `self_weights` are its likelihood ratios."""
    scores = torch.cat([calibration.scores, calibration.scores.new_full((1,), torch.inf)])
    if calibration.n_rows == 0:
        return scores.new_full((len(queries), len(levels)), torch.inf)
    own = queries.new_ones(len(queries)) if self_weights is None else self_weights
    with workers() as run:
        slices = chunk_slices(len(queries), max(1, CHUNK_ELEMENTS // calibration.n_rows))
        ranks = run(lambda rows: _ranks(queries[rows], own[rows], calibration, standing, levels), slices)
    return scores[torch.cat(ranks)]


def _ranks(
    queries: Float[Tensor, "r k"],
    self_weights: Float[Tensor, "r"],
    calibration: SortedCalibration,
    standing: Standing,
    levels: Float[NDArray, "l"],
) -> Int[Tensor, "r l"]:
    """``k* = max{k : S(k) < level}``, counted from 0, so that m stands for +inf.

    S is a share of likelihood ratios: under a shift the test row is row i with a probability proportional to w_i.
    """
    h, own, weights = similarities(queries, calibration), self_weights[:, None], calibration.weights
    n_below = standing.n_below.expand(len(h), -1)
    prefix = torch.nn.functional.pad((h * weights).cumsum_(1), (1, 0))
    theta = prefix.gather(1, n_below).div_(own + prefix[:, -1:])
    h *= own
    total = standing.total + h
    low, high = standing.below / total, (standing.below + h).div_(total)
    first = high < theta[:, :-1]
    second = low >= theta[:, :-1]
    # The third set counts by scores: rows whose score lies below that of k are the first id(k) ones.
    by_score = torch.nn.functional.pad((weights * ~(first | second)).cumsum_(1), (1, 0)).gather(1, n_below)
    # A row is in one of the first two sets at most, so one sorted list holds the values of both.
    values = torch.where(first, high, low).masked_fill_(~(first | second), torch.inf)
    share = _mass_below(values, weights, theta).add_(by_score).div_(own + weights.sum())
    return torch.stack([(share < level).sum(1) - 1 for level in levels.tolist()], 1)


def _mass_below(
    values: Float[Tensor, "r m"], masses: Float[Tensor, "m"], thresholds: Float[Tensor, "r t"]
) -> Float[Tensor, "r t"]:
    """For each threshold of a row, the mass of its values that lie below."""
    ordered, places = values.sort(1)
    mass = torch.nn.functional.pad(masses[places].cumsum_(1), (1, 0))
    return mass.gather(1, torch.searchsorted(ordered, thresholds.contiguous()))
