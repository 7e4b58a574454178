"""The one entry to local quantiles: radii, effective sample sizes and local means of many queries in one pass.

On the CPU float32 differences come first, with the error bound of :func:`lvd.kernels.compiled.find_ranks`. What
they cannot decide is settled by float64 differences, and what rounding itself decides, such as exact ties, by the
oracle: the radii are the oracle's to the bit, at every number of rows. On a GPU with Triton
:mod:`lvd.quantiles.triton_engine` does the same in fused kernels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lvd._parallel import chunk_slices, in_chunks
from lvd._typing import Bool, Float, Int, NDArray
from lvd.kernels import fused
from lvd.quantiles.oracle import gaussian_weights, weighted_quantile

SINGLE_ROWS = 100_000
"""With more rows nearly every query needs float64 in the end, so it starts there."""
FAINT = 1e-20
"""Where all weights together are less, their moments are computed in float64."""
FARTHEST = 500.0
"""Queries farther from the centre of the rows, in bandwidths, go to float64."""
LARGEST_RATIO = 1e15
"""Float32 holds likelihood ratios up to here with room to spare."""
GPU_EXACT_ROWS = 16_384
"""Up to this many rows a GPU settles what float32 cannot decide; above, it takes the wider candidate."""
GPU_TOLERANCE = 4e-6
"""Largest relative error of a cumulative weight that float32 may cause on a GPU; queries past it go to float64."""
GPU_SELF_WEIGHT, LEAST_GPU_SELF_WEIGHT = 1e-6, 1e-12
"""The smallest own weight of a query that float32 can do there: beside a smaller one, smaller weights matter."""
CHUNK_WEIGHTS = 2**24


@dataclass(frozen=True, eq=False)
class Queries:
    """Points in scaled coordinates, their masses at +inf and -inf, and, where they differ, their bandwidths."""

    points: Float[Tensor, "n k"]
    above: Float[Tensor, "n"]
    below: Float[Tensor, "n"]
    bandwidths: Float[Tensor, "n"] | None = None

    @classmethod
    def of(
        cls,
        points: Float[Tensor, "n k"],
        above: Float[Tensor, "n"] | None = None,
        below: Float[Tensor, "n"] | None = None,
        bandwidths: Float[Tensor, "n"] | None = None,
    ) -> Queries:
        """By default mass 1 at +inf, the query's own, and none at -inf."""
        above = points.new_ones(len(points)) if above is None else above
        return cls(points, above, torch.zeros_like(above) if below is None else below, bandwidths)

    @property
    def precisions(self) -> Float[Tensor, "n"]:
        """``1 / h^2``."""
        return torch.ones_like(self.above) if self.bandwidths is None else self.bandwidths**-2.0

    def __getitem__(self, rows: Any) -> Queries:
        bandwidths = None if self.bandwidths is None else self.bandwidths[rows]
        return Queries(self.points[rows], self.above[rows], self.below[rows], bandwidths)

    def __len__(self) -> int:
        return self.points.shape[0]


@dataclass(frozen=True, eq=False)
class SortedRows:
    """Calibration rows in ascending order of their scores, ready for queries.

    A row i weighs ``w_i exp(-||u - u_i||^2 / h^2)``: `ratios` are the likelihood ratios w, None without shift, and
    h is the query's bandwidth times, with `bandwidths`, the row's own. `order` tells where each row was before.
    """

    points: Float[Tensor, "m k"]
    scores: Float[Tensor, "m"]
    order: Int[Tensor, "m"]
    ratios: Float[Tensor, "m"] | None = None
    bandwidths: Float[Tensor, "m"] | None = None

    @classmethod
    def of(
        cls,
        points: Float[Tensor, "m k"],
        scores: Float[Tensor, "m"],
        *,
        ratios: Float[Tensor, "m"] | None = None,
        bandwidths: Float[Tensor, "m"] | None = None,
    ) -> SortedRows:
        """Sort; ties keep their order."""
        order = torch.argsort(scores, stable=True)
        pick = (None if column is None else column[order] for column in (ratios, bandwidths))
        return cls(points[order], scores[order], order, *pick)

    def __len__(self) -> int:
        return self.scores.shape[0]

    def numbered(self, indices: Int[Tensor, "m"]) -> SortedRows:
        """The same rows, when they are those `indices` of a larger set."""
        return replace(self, order=indices[self.order])

    @cached_property
    def weights(self) -> Float[Tensor, "m"]:
        """The likelihood ratios, 1 where there are none."""
        return torch.ones_like(self.scores) if self.ratios is None else self.ratios

    @cached_property
    def ends(self) -> Float[Tensor, "e"]:
        """The scores, with +inf at rank m and -inf at rank -1, the last place."""
        return torch.cat([self.scores, self.scores.new_tensor([torch.inf, -torch.inf])])

    @cached_property
    def single(self) -> Any:
        """The rows in float32 blocks, their centre taken off first: float32 keeps more digits near the origin."""
        return self._blocks(np.float32, self.centre)

    @cached_property
    def double(self) -> Any:
        """The rows in float64 blocks."""
        return self._blocks(np.float64, np.zeros(self.points.shape[1]))

    @cached_property
    def centre(self) -> Float[NDArray, "k"]:
        """The median of each coordinate, which one row far out does not move."""
        return np.median(self.points.numpy(), axis=0)

    @cached_property
    def centre_length(self) -> float:
        """How far the centre is from the origin."""
        return float(np.linalg.norm(self.centre))

    @cached_property
    def largest_ratio(self) -> float:
        """The largest likelihood ratio."""
        return 1.0 if self.ratios is None else float(self.ratios.max())

    def _blocks(self, dtype: Any, centre: Float[NDArray, "k"]) -> Any:
        from lvd.kernels.compiled import make_blocks

        ratios = None if self.ratios is None else self.ratios.numpy()
        precisions = None if self.bandwidths is None else self.bandwidths.numpy() ** -2.0
        return make_blocks(self.points.numpy() - centre, ratios, precisions, dtype)

    @cached_property
    def on_gpu(self) -> Any:
        """The same rows as the fused GPU kernels read them, a FusedCalibration; its module needs Triton."""
        from lvd.quantiles.triton_engine import FusedCalibration, Limits

        least_own = max(GPU_SELF_WEIGHT * self.largest_ratio, LEAST_GPU_SELF_WEIGHT)
        limits = Limits(GPU_TOLERANCE, least_own, len(self) <= GPU_EXACT_ROWS)
        return FusedCalibration(self.points, self.scores, self.ratios, limits)


class LocalSummary(NamedTuple):
    """What the weights of n queries say; :meth:`LocalConformal.summary` has an example.

    Parameters
    ----------
    radius : the radii, (n,) for one level, (n, L) for a list of them; +inf where too little is known.
    n_effective : how many equally weighted calibration rows the weights ``w_i`` are worth,
        ``(sum w_i)^2 / sum w_i^2``, (n,); 0 where all of them vanish.
    exact : where the radii are certified to be those of exact weights, (n,). All are on the CPU, and on a GPU up to
        16,384 calibration rows. Elsewhere a radius may be that of a level higher by 1e-5, never of a lower one.
    mean : ``sum w_i v_i / sum w_i`` of the values v, (n,); NaN where all weights vanish, for there is none. None
        where no values were given.
    """

    radius: Any
    n_effective: Any
    exact: Any
    mean: Any = None


def local_quantile(
    queries: Queries,
    rows: SortedRows,
    levels: Float[NDArray, "l"],
    *,
    moments: bool = False,
    values: Float[Tensor, "m"] | None = None,
) -> LocalSummary:
    """The weighted quantile of the rows' scores for each query and level (the paper's Eq. 8).

    With `moments` also Kish's effective sample size ``(sum w)^2 / sum w^2``, 0 where all weights vanish, and with
    `values`, one for each row in the order of its score, the mean ``sum w v / sum w``.
    """
    if len(rows) == 0 or len(queries) == 0:
        return _of_nothing(queries, rows, levels)
    if queries.points.device.type == "cpu":
        return _on_cpu(queries, rows, levels, moments=moments, values=values)
    plain = queries.bandwidths is None and rows.bandwidths is None
    if plain and fused.fuses_on(queries.points.device, queries.points.shape[1]):
        return _on_gpu(queries, rows, levels, moments=moments, values=values)
    return _from_whole_weights(queries, rows, levels, values=values)


def similarities(queries: Queries, rows: SortedRows) -> Float[Tensor, "n m"]:
    """The kernel of all queries and rows as one float64 matrix, for what cannot be had from block sums."""
    distances = torch.cdist(
        queries.points, rows.points, compute_mode="donot_use_mm_for_euclid_dist"
    ).square_()
    if queries.bandwidths is not None:
        distances *= queries.precisions[:, None]
    if rows.bandwidths is not None:
        distances *= rows.bandwidths**-2.0
    return distances.neg_().exp_()


def _of_nothing(queries: Queries, rows: SortedRows, levels: Float[NDArray, "l"]) -> LocalSummary:
    exact = torch.ones(len(queries), dtype=torch.bool, device=queries.points.device)
    nothing = torch.zeros_like(queries.above)
    return LocalSummary(
        _by_oracle(queries, rows, levels), nothing, exact, torch.full_like(nothing, torch.nan)
    )


def _on_cpu(
    queries: Queries,
    rows: SortedRows,
    levels: Float[NDArray, "l"],
    *,
    moments: bool,
    values: Float[Tensor, "m"] | None,
) -> LocalSummary:
    # Float32 keeps more digits of centred values.
    centre = np.nan if values is None else float(values.mean())
    centred = None if values is None else (values - centre).numpy()
    find = _Finder(queries, rows, levels, moments or values is not None, centred)
    rest: Any = slice(None)
    if len(rows) <= SINGLE_ROWS and rows.largest_ratio <= LARGEST_RATIO:
        find.search(rest, np.float32)
        rest = np.flatnonzero(~find.certain | find.faint)
    if isinstance(rest, slice) or len(rest):
        find.search(rest, np.float64)
    radius = torch.from_numpy(rows.ends.numpy()[find.ranks])
    if not find.certain.all():
        rest = np.flatnonzero(~find.certain)
        radius[rest] = _by_oracle(queries[rest], rows, levels)
    exact = torch.ones(len(queries), dtype=torch.bool)
    total, squares, products = find.moments.T
    if not find.wants_moments:
        return LocalSummary(radius, torch.from_numpy(total), exact, torch.from_numpy(total))
    with np.errstate(divide="ignore", invalid="ignore"):
        size, mean = np.where(squares == 0.0, 0.0, total**2 / squares), centre + products / total
    return LocalSummary(radius, torch.as_tensor(size), exact, torch.as_tensor(mean))


class _Finder:
    """Ranks of all queries, filled in by searches in float32 and float64."""

    def __init__(
        self,
        queries: Queries,
        rows: SortedRows,
        levels: Float[NDArray, "l"],
        moments: bool,
        values: Float[NDArray, "m"] | None,
    ) -> None:
        self.points, self.precisions = queries.points.numpy(), queries.precisions.numpy()
        self.masses = np.empty((len(queries), 2))
        self.masses[:, 0], self.masses[:, 1] = queries.above.numpy(), queries.below.numpy()
        self.rows, self.levels, self.wants_moments = rows, np.asarray(levels, np.float64), moments
        self.values = values
        self.ranks = np.empty((len(queries), len(levels)), np.int64)
        self.certain = np.zeros(len(queries), bool)
        self.moments = np.full((len(queries), 3), np.nan)

    @property
    def faint(self) -> Bool[NDArray, "n"]:
        """Where moments are wanted of weights that float32 hardly has; unknown moments are NaN."""
        return self.moments[:, 0] < FAINT * max(1.0, self.rows.largest_ratio)

    def search(self, chosen: Int[NDArray, "c"] | slice, dtype: Any) -> None:
        """Find the ranks of the chosen queries in this precision."""
        from lvd.kernels.compiled import BLOCK, find_ranks, widen

        single = dtype == np.float32
        blocks = self.rows.single if single else self.rows.double
        points, precisions = self.points[chosen], self.precisions[chosen]
        centred = points - self.rows.centre if single else points
        errors = _errors(points, centred, precisions, self.rows, single=single)
        queries = widen(centred, dtype)
        values = np.empty((0, BLOCK))
        if self.values is not None:
            values = np.zeros((len(blocks.points), BLOCK))
            values.reshape(-1)[: len(self.values)] = self.values
        n = len(points)
        ranks, certain = np.empty((n, len(self.levels)), np.int64), np.empty(n, bool)
        moments = np.empty((n, 3 * self.wants_moments))
        masses, narrow = self.masses[chosen], precisions.astype(dtype)

        def work(part: slice) -> None:
            find_ranks(
                queries[part], narrow[part], masses[part], errors[part], blocks, len(self.rows), self.levels,
                values, ranks[part], certain[part], moments[part],
            )  # fmt: skip

        in_chunks(work, n, len(self.rows))
        self.ranks[chosen], self.certain[chosen] = ranks, certain
        if self.wants_moments:
            self.moments[chosen] = moments


def _errors(
    points: Float[NDArray, "n k"],
    centred: Float[NDArray, "n k"],
    precisions: Float[NDArray, "n"],
    rows: SortedRows,
    *,
    single: bool,
) -> Float[NDArray, "n 4"]:
    """How much weights may err by beside the oracle's; see :func:`lvd.kernels.compiled.find_ranks`.

    Let u be the unit roundoff and x the exponent of a weight. Summing k squares and the exponential cost
    ``(k + 9) u x + 4 u``. In float32 the coordinates are rounded too: a difference d of coordinates q and p errs by
    ``u (|q| + |p| + |d|)``, which makes ``4 u Q sqrt(x) <= 2 u Q (1 + x)`` for a query Q away from the centre,
    in bandwidths. Q counts what taking the centre off lost. Sums of m weights, in whatever order, err by ``m u`` of
    float64.
    """
    k, m = points.shape[1], len(rows)
    far: Any = 0.0
    unit, underflow = (2.0**-24, 2.0**-125) if single else (2.0**-53, 2.0**-1020)
    if single:
        with np.errstate(over="ignore"):
            lost = 2.0**-27 * (_lengths(points) + rows.centre_length)
            reach = _lengths(centred) + lost
            widest = 1.0 if rows.bandwidths is None else float(rows.bandwidths.min()) ** -1.0
            far = reach * np.sqrt(precisions) * widest
        # Past this, exponents of up to 87 err by more than the 1% that the bound leaves for its second order.
        far[far > FARTHEST] = np.inf
    errors = np.empty((len(points), 4))
    errors[:, 0] = unit * (16.0 + 2.0 * far)
    errors[:, 1] = 1.01 * unit * (2.0 * k + 10.0 + 2.0 * far)
    errors[:, 2] = (4.0 * m + 2048.0) * 2.0**-53
    errors[:, 3] = m * max(1.0, rows.largest_ratio) * underflow
    return errors


def _lengths(points: Float[NDArray, "n k"]) -> Float[NDArray, "n"]:
    return np.sqrt(np.einsum("ij,ij->i", points, points))


def _on_gpu(
    queries: Queries,
    rows: SortedRows,
    levels: Float[NDArray, "l"],
    *,
    moments: bool,
    values: Float[Tensor, "m"] | None,
) -> LocalSummary:
    """By the fused kernels; what they leave unsettled by the oracle."""
    unknown = torch.full_like(queries.above, torch.nan)
    # Float32 keeps more digits of centred values.
    centre = 0.0 if values is None else values.mean()
    given = torch.zeros_like(rows.scores) if moments and values is None else values
    given = None if given is None else given - centre
    answer = rows.on_gpu.answer(queries.points, levels, queries.above, queries.below, given)
    rest = answer.unsettled
    if len(rest):
        answer.radius[rest] = _by_oracle(queries[rest], rows, levels)
        answer.exact[rest] = True
    size, mean = (unknown if part is None else part for part in (answer.n_effective, answer.mean))
    return LocalSummary(answer.radius, size, answer.exact, unknown if values is None else mean + centre)


def _from_whole_weights(
    queries: Queries, rows: SortedRows, levels: Float[NDArray, "l"], *, values: Float[Tensor, "m"] | None
) -> LocalSummary:
    """In plain float64 operations, a chunk of queries at a time: for what no fused kernel serves."""
    wanted = torch.as_tensor(levels, device=rows.scores.device)
    parts = []
    for chunk in chunk_slices(len(queries), max(1, CHUNK_WEIGHTS // len(rows))):
        some = queries[chunk]
        weights = similarities(some, rows).mul_(rows.weights)
        cumulative = weights.cumsum(1).add_(some.below[:, None])
        total = cumulative[:, -1:] + some.above[:, None]
        ranks = torch.searchsorted(cumulative, wanted * total)
        ranks[some.below[:, None] >= wanted * total] = -1
        ranks[(total == 0.0).expand_as(ranks)] = len(rows)
        summed = weights.sum(1)
        size = torch.where(summed > 0.0, summed.square() / weights.square().sum(1), 0.0)
        mean = torch.full_like(size, torch.nan) if values is None else weights @ values / summed
        parts.append((rows.ends[ranks], size, mean))
    radius, size, mean = (torch.cat(part) for part in zip(*parts, strict=True))
    return LocalSummary(radius, size, torch.ones_like(size, dtype=torch.bool), mean)


def _by_oracle(queries: Queries, rows: SortedRows, levels: Float[NDArray, "l"]) -> Float[Tensor, "n l"]:
    """The few queries in which even float64 rounding could decide: exact ties, as in a constant kernel."""
    points, scores, ratios = (part.cpu().numpy() for part in (rows.points, rows.scores, rows.weights))
    own = 1.0 if rows.bandwidths is None else rows.bandwidths.cpu().numpy() ** -2.0
    result = rows.scores.new_empty(len(queries), len(levels))
    parts = (queries.points, queries.precisions, queries.above, queries.below)
    for i, (query, precision, above, below) in enumerate(
        zip(*(part.cpu().numpy() for part in parts), strict=True)
    ):
        weights = ratios * gaussian_weights(query, points, precision * own)
        for j, level in enumerate(levels.tolist()):
            result[i, j] = weighted_quantile(scores, weights, float(above), level, float(below))
    return result
