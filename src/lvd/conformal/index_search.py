"""Weighted quantiles from the clusters of calibration rows that matter to a query; never narrower, mostly exact.

Queries are taken in groups of neighbours. What all clusters far from a group can weigh for one of its queries is
bounded by B; the rows of the near ones are evaluated. With F_A their cumulative weight and S_A its total, the
radius is the first score with ``F_A >= level (own + S_A + B)``. It is exact where the score before fails even with
all of B below it: ``F_A + B < level (own + S_A + B)``. A query for which that is not so is looked at again, with a
far smaller B.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lvd._parallel import chunk_slices, workers
from lvd._typing import Bool, Float, Int, NDArray
from lvd.conformal import engine
from lvd.conformal.index import MOST_NORM, ROUNDING, Clusters, partition
from lvd.kernels.tiles import BLOCK, CPU_ELEMENTS, LEAST_EXPONENTS, error_growth

MOST_QUERIES, GROUP_RADIUS = 48, 6.0
"""Larger groups share more of what is done once for each, but rows that matter to one query are weighed for all."""
WORTHWHILE = 0.25
"""A group that needs more than this share of the clusters is left to the engine, which need not collect rows."""
BATCH_GROUPS = 32
"""So many groups are held against the clusters at a time."""
LEAST_WEIGHT = 1e-200
"""With less weight in all, a query is left to the engine."""
INDEX_ROWS = 500_000
"""From so many calibration rows on, rows too far from a query to matter may be skipped without being asked to."""
LEAST_QUERIES, READY_QUERIES, SAMPLE_QUERIES, SAMPLE_ROWS = 4096, 512, 16, 4096
"""Clusters are built for so many queries at once, for fewer where the leaves are known, if a sample of queries and
rows says that most rows are far."""
POSITION_BITS = 31
TRUSTED_ERROR = 0.1
"""Of an exponent: what weighs much is then known to weigh much."""
BAG = 16
"""So many weights are added in their own precision, which loses little over so few; bags are added in float64."""


@dataclass(frozen=True)
class Look:
    """How queries are looked at: in what precision, and what share of their certain weight may be left out."""

    dtype: torch.dtype
    share: float


FIRST, SECOND = Look(torch.float32, 5e-7), Look(torch.float64, 1e-10)


class Near(NamedTuple):
    """The clusters that matter to a group, a bound on what others weigh, and the weight there is for certain."""

    chosen: Int[Tensor, "s"]
    left_out: Float[Tensor, "g"]
    certain: Float[Tensor, "g"]


@dataclass(frozen=True)
class Search:
    """Queries, with their masses at +inf and at -inf, and the rows among which to look."""

    queries: Float[Tensor, "n k"]
    own: Float[Tensor, "n 2"]
    levels: Float[Tensor, "l"]
    calibration: engine.SortedCalibration

    @property
    def clusters(self) -> Clusters:
        """The clusters of the calibration rows."""
        return self.calibration.clusters

    def find_near(self, groups: Sequence[Int[Tensor, "_"]], share: float) -> Iterator[Near]:
        """For each group the clusters without which at most `share` of any query's weight is missing.

        At most half of that is in clusters far from the ball of the group, which are set aside first; the rest is
        in those of the others that are far from each of its queries.
        """
        padded = torch.nn.utils.rnn.pad_sequence(list(groups), batch_first=True, padding_value=-1)
        members = torch.where(padded < 0, padded[:, :1], padded)
        points, own = self.queries[members], self.own[members].sum(2).amin(1)
        centres = points.mean(1)
        radii = (points - centres[:, None]).square().sum(2).amax(1).sqrt() * ROUNDING
        least, most = self.clusters.ball_bounds(centres, radii)
        limits = (own + least.sum(1)) * (share / 2.0 / most.shape[1])
        # The heaviest cluster is always near.
        close = (most > limits[:, None]) | (most == most.amax(1, keepdim=True))
        left_out = torch.where(close, 0.0, most).sum(1).tolist()
        for group, mask, beyond in zip(groups, close, left_out, strict=True):
            yield self._nearest(group, mask.nonzero()[:, 0], beyond, share)

    def _nearest(self, group: Int[Tensor, "g"], close: Int[Tensor, "s"], beyond: float, share: float) -> Near:
        """Of the clusters close to a group those without which more than `share` of a query's weight is missing."""
        least, most = self.clusters.point_bounds(self.queries[group], close)
        certain = self.own[group].sum(1) + least.sum(0)
        shares, order = (most / certain).amax(1).sort()
        n_far = min(int((shares.cumsum(0) <= share - beyond / certain.min()).sum()), len(close) - 1)
        left_out = most[order[:n_far]].sum(0).add_(beyond).mul_(ROUNDING)
        return Near(close[order[n_far:].sort().values], left_out, certain)

    def ranks(
        self, group: Int[Tensor, "g"], near: Near, look: Look, memory: Float[Tensor, "z"]
    ) -> tuple[Int[Tensor, "g l"], Bool[Tensor, "g"]]:
        """The ranks of the radii among all rows, from the near ones, and whether no other row could change them."""
        rows, order = _in_order(self.clusters.rows.index_select(0, near.chosen).flatten())
        shifted = (self.queries[group].T - self.clusters.centres[near.chosen, :, None]).to(look.dtype)
        norms = shifted.square().sum(1, keepdim=True)
        left = torch.cat([shifted, -norms, torch.ones_like(norms)], 1)
        weights = memory[: len(rows) * len(group)].view(len(rows), -1)
        tiles = weights.view(len(near.chosen), -1, len(group))
        masses = self.queries.new_empty(len(tiles), len(group))
        for part in chunk_slices(len(tiles), max(1, CPU_ELEMENTS // tiles[0].numel())):
            torch.bmm(self.clusters.right(near.chosen[part], look.dtype), left[part], out=tiles[part])
            masses[part] = tiles[part].clamp_(min=LEAST_EXPONENTS[look.dtype]).exp_().sum(1)
        bags, place = torch.arange(0, len(rows), BAG), torch.arange(len(group))[:, None, None]
        sums = torch.nn.functional.embedding_bag(order, weights, bags, mode="sum").double()
        blocks, own = order.view(-1, BLOCK), self.own[group]
        squares = norms[:, 0] + self.clusters.radii[near.chosen, None].square()
        rank, decided = engine.crossing(
            sums.view(-1, BLOCK // BAG, len(group)).sum(1).T,
            lambda block: weights[blocks[block], place].double(),
            len(rows),
            self.levels,
            own=own,
            margin=self._margin(masses, squares, own.sum(1), look.dtype),
            left_out=near.left_out[:, None],
        )
        n_rows = self.calibration.n_rows
        return torch.cat([rows, rows.new_tensor([n_rows, n_rows + 1])])[rank], decided.all(1)

    def _margin(
        self,
        weights: Float[Tensor, "s g"],
        squares: Float[Tensor, "s g"],
        own: Float[Tensor, "g"],
        dtype: torch.dtype,
    ) -> Float[Tensor, "g 1"]:
        """The relative error of cumulative weights: the mean, by weight, of what the exponents may err by.

        That is a few roundings of the squared norms in an exponent, as in :func:`tiles.relative_error`, and those
        of the sum of a bag. Weights that err too much to say what the mean is have no bound.
        """
        growth = error_growth(self.queries.shape[1] + 2)
        log_weight, eps = self.calibration.prepared.largest_log_weight, torch.finfo(dtype).eps
        mean = (weights * squares).sum(0) / (weights.sum(0) + own)
        bound = eps * (8.0 + growth * (mean + log_weight))
        rounding = self.calibration.n_rows * torch.finfo(torch.float64).eps
        trusted = eps * growth * (squares.amax(0) + log_weight) < TRUSTED_ERROR
        return torch.where(trusted, bound + rounding, torch.inf)[:, None]


def pays(
    queries: Float[Tensor, "n k"], calibration: engine.SortedCalibration, own: Float[Tensor, "n 2"]
) -> bool:
    """Whether to search: it is asked for, clusters exist, or queries enough to build them and a local kernel."""
    leaves = calibration.leaves
    near_enough = calibration.can_be_clustered and bool(queries.abs().max() < MOST_NORM)
    if leaves.search == "all" or calibration.floor > 0.0 or not near_enough:
        return False
    if leaves.search == "index":
        return True
    if calibration.n_rows < INDEX_ROWS:
        return False
    if "clusters" in vars(calibration):
        return True
    if len(queries) < (READY_QUERIES if leaves.found else LEAST_QUERIES):
        return False
    some = torch.linspace(0, len(queries) - 1, SAMPLE_QUERIES).long()
    rows = torch.linspace(0, calibration.n_rows - 1, SAMPLE_ROWS).long()
    squared = torch.cdist(queries[some], calibration.points[rows]).square_()
    scale = calibration.n_rows / len(rows)
    weights = (calibration.weights[rows] * squared.neg_().exp_()).mul_(scale).sort().values
    certain = own[some].sum(1, keepdim=True) + weights.sum(1, keepdim=True)
    near = (weights.cumsum(1) > FIRST.share * certain).double().mean()
    # Clusters reach further than rows, and groups further than queries.
    return bool(near < WORTHWHILE / 4)


def settled_search(
    queries: Float[Tensor, "n k"],
    calibration: engine.SortedCalibration,
    levels: Float[NDArray, "l"],
    own: Float[Tensor, "n 2"],
) -> tuple[Float[Tensor, "n l"], Bool[Tensor, "n"]]:
    """What :func:`search` finds; what it leaves open is taken from all rows, where these settle all."""
    result, exact = search(queries, calibration, levels, own)
    if calibration.n_rows <= engine.EXACT_ROWS and not exact.all():
        result[~exact], exact[~exact] = engine.from_all_rows(
            queries[~exact], calibration, levels, own[~exact]
        )
    return result, exact


def search(
    queries: Float[Tensor, "n k"],
    calibration: engine.SortedCalibration,
    levels: Float[NDArray, "l"],
    own: Float[Tensor, "n 2"],
) -> tuple[Float[Tensor, "n l"], Bool[Tensor, "n"]]:
    """Radii that are never too narrow, and for which queries they are certified to be exact.

    `own` holds each query's mass at +inf and at -inf. The kernel must be without a floor, which gives weight to
    rows however far.
    """
    scores = torch.cat([calibration.scores, calibration.scores.new_tensor([torch.inf, -torch.inf])])
    result = queries.new_full((len(queries), len(levels)), torch.inf)
    exact = torch.zeros(len(queries), dtype=torch.bool)
    wide = torch.zeros(len(queries), dtype=torch.bool)
    problem, clusters = Search(queries, own, torch.as_tensor(levels), calibration), calibration.clusters
    most_clusters = math.ceil(WORTHWHILE * len(clusters.masses))

    def work(groups: Sequence[Int[Tensor, "_"]], look: Look) -> None:
        memory = torch.empty(most_clusters * clusters.rows.shape[1] * MOST_QUERIES, dtype=look.dtype)
        for part in chunk_slices(len(groups), BATCH_GROUPS):
            for group, near in zip(groups[part], problem.find_near(groups[part], look.share), strict=True):
                if len(near.chosen) > most_clusters or near.certain.min() < LEAST_WEIGHT:
                    wide[group] = True
                else:
                    rank, exact[group] = problem.ranks(group, near, look, memory)
                    result[group] = scores[rank]

    # Beside a very small own weight, weights matter that float32 does not have.
    _on_threads(work, queries, own.sum(1) >= calibration.least_own, FIRST)
    _on_threads(work, queries, ~exact & ~wide, SECOND)
    if wide.any():
        result[wide], exact[wide] = engine.from_all_rows(queries[wide], calibration, levels, own[wide])
    return result, exact


def _on_threads(
    work: Callable[[Sequence[Int[Tensor, "_"]], Look], None],
    queries: Float[Tensor, "n k"],
    asked: Bool[Tensor, "n"],
    look: Look,
) -> None:
    """Share groups of neighbours, among the queries that are asked for, between threads."""
    chosen = asked.nonzero()[:, 0]
    if len(chosen) == 0:
        return
    n_threads = torch.get_num_threads()
    with workers(n_threads) as run:
        sets = partition(queries[chosen], MOST_QUERIES, GROUP_RADIUS, regular=False)
        groups = [chosen[group] for group in sets]
        n_shares = min(n_threads, len(groups))
        run(lambda mine: work(mine, look), [groups[i::n_shares] for i in range(n_shares)])


def _in_order(rows: Int[Tensor, "r"]) -> tuple[Int[Tensor, "r"], Int[Tensor, "r"]]:
    """The row numbers ascending, and where each stood: one fast sort of numbers that hold both."""
    keys = np.sort(((rows << POSITION_BITS) | torch.arange(len(rows))).numpy())
    return torch.from_numpy(keys >> POSITION_BITS), torch.from_numpy(keys & (2**POSITION_BITS - 1))
