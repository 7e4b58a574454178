"""Weighted quantiles from the clusters of calibration rows that matter to a query; never narrower, mostly exact.

Queries are taken in groups of neighbours. What all far clusters together can weigh for a group is bounded by B;
the rows of the near ones are evaluated. With F_A their cumulative weight and S_A its total, the radius is the first
score with ``F_A >= level (own + S_A + B)``. It is exact where the score before fails even with all of B below it:
``F_A + B < level (own + S_A + B)``. A query for which that is not so is looked at again, with a far smaller B.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lvd._parallel import chunk_slices, workers
from lvd._typing import Bool, Float, Int, NDArray
from lvd.conformal import engine
from lvd.conformal.index import ROUNDING, Clusters, partition
from lvd.kernels.tiles import BLOCK, CPU_ELEMENTS, LEAST_EXPONENTS

MOST_QUERIES, GROUP_RADIUS = 32, 3.5
"""Groups of queries are small beside the distance of about 5 within which rows matter to each of them."""
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


@dataclass(frozen=True)
class Look:
    """How queries are looked at: in what precision, and what share of their certain weight may be left out."""

    dtype: torch.dtype
    share: float


FIRST, SECOND = Look(torch.float32, 5e-7), Look(torch.float64, 1e-10)


class Near(NamedTuple):
    """The clusters that matter to a group, a bound on what others weigh, and the weight there is for certain."""

    chosen: Int[Tensor, "s"]
    left_out: float
    certain: float


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

    def find_near(self, groups: Sequence[Int[Tensor, "_"]], share: float) -> list[Near]:
        """For each group the clusters without which at most `share` of any query's weight is missing."""
        balls = [_ball(self.queries[group]) for group in groups]
        own = torch.stack([self.own[group].sum(1).min() for group in groups])
        least, most = self.clusters.bounds(*map(torch.stack, zip(*balls, strict=True)))
        certain = own + least.sum(1)
        ascending = torch.from_numpy(np.sort(most.numpy(), axis=1))
        n_far = torch.searchsorted(ascending.cumsum(1), (share * certain)[:, None], right=True)
        limits = torch.where(n_far > 0, ascending.gather(1, (n_far - 1).clamp(min=0)), -1.0)
        # The heaviest cluster is always near.
        far = (most <= limits) & (most < ascending[:, -1:])
        left_out = torch.where(far, most, 0.0).sum(1) * ROUNDING
        chosen = [row.nonzero()[:, 0] for row in ~far]
        return list(map(Near, chosen, left_out.tolist(), certain.tolist()))

    def ranks(
        self, group: Int[Tensor, "g"], near: Near, look: Look, memory: Float[Tensor, "2 z"]
    ) -> tuple[Int[Tensor, "g l"], Bool[Tensor, "g"]]:
        """The ranks of the radii among all rows, from the near ones, and whether no other row could change them."""
        rows, order = _in_order(self.clusters.rows.index_select(0, near.chosen).flatten())
        weights, in_order = (part[: len(rows) * len(group)].view(len(rows), -1) for part in memory)
        shifted = self.queries[group] - self.clusters.centres[near.chosen, None]
        norms = shifted.square().sum(2, keepdim=True)
        left = torch.cat([2.0 * shifted, -norms, torch.ones_like(norms)], 2).to(look.dtype).mT
        tiles = weights.view(len(near.chosen), -1, len(group))
        for part in chunk_slices(len(tiles), max(1, CPU_ELEMENTS // tiles[0].numel())):
            torch.bmm(self.clusters.right(near.chosen[part], look.dtype), left[part], out=tiles[part])
            tiles[part].clamp_(min=LEAST_EXPONENTS[look.dtype]).exp_()
        torch.index_select(weights, 0, order, out=in_order)
        blocks, place = in_order.view(-1, BLOCK, len(group)), torch.arange(len(group))[:, None]
        squares = norms[..., 0] + self.clusters.radii[near.chosen, None].square()
        rank, decided = engine.crossing(
            blocks.sum(1).double().T,
            lambda block: blocks[block, :, place].double(),
            len(rows),
            self.levels,
            own=self.own[group],
            margin=self._margin(tiles.sum(1).double(), squares, self.own[group].sum(1), look.dtype),
            left_out=near.left_out,
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

        That is a few roundings of the two squared norms in an exponent, as in :func:`tiles.relative_error`.
        """
        mean = (weights * squares).sum(0) / (weights.sum(0) + own)
        growth = max(1.0, 0.25 * math.sqrt(self.queries.shape[1] + 2))
        bound = 2.0 + growth * (mean + self.calibration.prepared.largest_log_weight)
        rounding = self.calibration.n_rows * torch.finfo(torch.float64).eps
        return (torch.finfo(dtype).eps * bound + rounding)[:, None]


def pays(
    queries: Float[Tensor, "n k"], calibration: engine.SortedCalibration, own: Float[Tensor, "n 2"]
) -> bool:
    """Whether to search: it is asked for, clusters exist, or queries enough to build them and a local kernel."""
    leaves = calibration.leaves
    if leaves.search == "all" or calibration.floor > 0.0:
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
    # Clusters reach further than rows.
    return bool(near < WORTHWHILE / 2)


def radius(
    queries: Float[Tensor, "n k"],
    calibration: engine.SortedCalibration,
    levels: Float[NDArray, "l"],
    own: Float[Tensor, "n 2"],
) -> Float[Tensor, "n l"]:
    """The radii found by searching; what it leaves open is settled from all rows, where these settle all."""
    result, exact = search(queries, calibration, levels, own)
    if calibration.n_rows <= engine.EXACT_ROWS and not exact.all():
        result[~exact] = engine.radius_from_all_rows(queries[~exact], calibration, levels, own[~exact])
    return result


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
        memory = torch.empty(2, most_clusters * clusters.rows.shape[1] * MOST_QUERIES, dtype=look.dtype)
        for part in chunk_slices(len(groups), BATCH_GROUPS):
            for group, near in zip(groups[part], problem.find_near(groups[part], look.share), strict=True):
                if len(near.chosen) > most_clusters or near.certain < LEAST_WEIGHT:
                    wide[group] = True
                else:
                    rank, exact[group] = problem.ranks(group, near, look, memory)
                    result[group] = scores[rank]

    # Beside a very small own weight, weights matter that float32 does not have.
    _on_threads(work, queries, own.sum(1) >= calibration.least_own, FIRST)
    _on_threads(work, queries, ~exact & ~wide, SECOND)
    if wide.any():
        result[wide] = engine.radius_from_all_rows(queries[wide], calibration, levels, own[wide])
        exact[wide] = calibration.n_rows <= engine.EXACT_ROWS
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


def _ball(queries: Float[Tensor, "g k"]) -> tuple[Float[Tensor, "k"], Float[Tensor, ""]]:
    centre = queries.mean(0)
    return centre, (queries - centre).square().sum(1).max().sqrt() * ROUNDING


def _in_order(rows: Int[Tensor, "r"]) -> tuple[Int[Tensor, "r"], Int[Tensor, "r"]]:
    """The row numbers ascending, and where each stood: one fast sort of numbers that hold both."""
    keys = np.sort(((rows << POSITION_BITS) | torch.arange(len(rows))).numpy())
    return torch.from_numpy(keys >> POSITION_BITS), torch.from_numpy(keys & (2**POSITION_BITS - 1))
