"""The entry point of the engine: radii, effective sample sizes and local means of many queries in one pass, the
weighted sums from which bandwidths are chosen, and the quantiles of equally weighted scores.

The CPU starts with float32 differences and the error bound of :func:`lvd.engine.compiled.find_ranks`. Queries
that these leave undecided are repeated in float64, and those that depend on rounding itself, such as exact ties,
go to the oracle. So radii equal the oracle's bit for bit, at every number of rows. On a GPU with Triton,
:mod:`lvd.engine.triton_engine` does the same in fused kernels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lvd._parallel import chunk_slices, in_chunks
from lvd._typing import Bool, Float, Int, NDArray
from lvd._validation import check_choice
from lvd.engine import gpu
from lvd.engine.oracle import gaussian_weights, weighted_quantile

SINGLE_ROWS = 100_000
"""With more rows nearly every query ends up in float64, so it starts there."""
LANE_ROWS, LANE_QUERIES = 2048, 8
"""With at most this many rows and at least this many queries, the innermost loops run over queries."""
LARGEST_RATIO = 1e15
"""Likelihood ratios up to this size fit into float32 with room to spare."""
GPU_EXACT_ROWS = 32_768
"""Up to this many rows a GPU settles in float64 what float32 cannot decide, which at most doubles the time.
Above, where it may take a hundred times as long, it does so only on request, and otherwise returns the wider
candidate."""
GPU_TOLERANCE = 4e-6
"""The largest relative error of a cumulative weight allowed in float32 on a GPU; queries beyond it go to
float64."""
GPU_SELF_WEIGHT, LEAST_GPU_SELF_WEIGHT = 1e-6, 1e-12
"""The smallest own weight of a query that float32 can handle there: the smaller it is, the smaller the weights
that matter."""
CHUNK_WEIGHTS = 2**24
MOST_TRAINING_ROWS = 4096
FAR = 1e6
"""Squared distances from the centre from which on distances are no longer formed from products."""
GRID = np.geomspace(1.0, 50.0, 40)
"""The candidate bandwidths."""
LEAST_LEVEL = 0.9
"""Lower levels use the bandwidths of this level: the few rows that would make their radii finite are too noisy."""
QUANTILES = ("finite_sample", "percentile")
"""How :func:`conformal_quantile` takes a quantile."""
NONE, NO_VALUES = np.empty(0), np.empty((0, 0, 0))


@dataclass(frozen=True, eq=False)
class Queries:
    """Points in scaled coordinates, with masses and bandwidths where they differ from the defaults.

    By default the mass at +inf, the query's own, is 1, the mass at -inf is 0 and the bandwidth is 1.
    """

    points: Float[Tensor, "n k"]
    mass_above: Float[Tensor, "n"] | None = None
    mass_below: Float[Tensor, "n"] | None = None
    bandwidths: Float[Tensor, "n"] | None = None

    @cached_property
    def above(self) -> Float[Tensor, "n"]:
        """The masses at +inf."""
        return self.points.new_ones(len(self)) if self.mass_above is None else self.mass_above

    @cached_property
    def below(self) -> Float[Tensor, "n"]:
        """The masses at -inf."""
        return self.points.new_zeros(len(self)) if self.mass_below is None else self.mass_below

    @property
    def precisions(self) -> Float[Tensor, "n"]:
        """``1 / h^2``, not computed as a power, whose last digit depends on the length of the array."""
        return torch.ones_like(self.above) if self.bandwidths is None else 1.0 / self.bandwidths.square()

    def __getitem__(self, rows: Any) -> Queries:
        columns = (self.mass_above, self.mass_below, self.bandwidths)
        return Queries(self.points[rows], *(None if column is None else column[rows] for column in columns))

    def __len__(self) -> int:
        return self.points.shape[0]


@dataclass(frozen=True, eq=False)
class SortedRows:
    """Calibration rows sorted by score, ready for queries.

    Row i has weight ``w_i exp(-||u - u_i||^2 / h^2)``: `ratios` are the likelihood ratios w, None without shift,
    and h is the query's bandwidth, times the row's own if there are `bandwidths`. `order` holds the rows'
    original indices. `exact` makes a GPU settle all radii, whatever the number of rows; the CPU always does.
    """

    points: Float[Tensor, "m k"]
    scores: Float[Tensor, "m"]
    order: Int[Tensor, "m"]
    ratios: Float[Tensor, "m"] | None = None
    bandwidths: Float[Tensor, "m"] | None = None
    exact: bool = False

    @classmethod
    def of(
        cls,
        points: Float[Tensor, "m k"],
        scores: Float[Tensor, "m"],
        *,
        ratios: Float[Tensor, "m"] | None = None,
        bandwidths: Float[Tensor, "m"] | None = None,
        exact: bool = False,
    ) -> SortedRows:
        """Sort; ties keep their order."""
        order = torch.argsort(scores, stable=True)
        ratios, bandwidths = (None if column is None else column[order] for column in (ratios, bandwidths))
        return cls(points[order], scores[order], order, ratios, bandwidths, exact)

    def __len__(self) -> int:
        return self.scores.shape[0]

    def numbered(self, indices: Int[Tensor, "m"]) -> SortedRows:
        """The same rows, numbered by their `indices` in a larger set."""
        return replace(self, order=indices[self.order])

    @cached_property
    def weights(self) -> Float[Tensor, "m"]:
        """The likelihood ratios, 1 where there are none."""
        return torch.ones_like(self.scores) if self.ratios is None else self.ratios

    @cached_property
    def precisions(self) -> Float[Tensor, "m"] | None:
        """``1 / h^2`` of the rows' own bandwidths."""
        return None if self.bandwidths is None else 1.0 / self.bandwidths.square()

    @cached_property
    def ends(self) -> Float[Tensor, "e"]:
        """The scores, followed by +inf at rank m and -inf at rank -1."""
        return torch.cat([self.scores, self.scores.new_tensor([torch.inf, -torch.inf])])

    @cached_property
    def on_host(self) -> tuple[NDArray, NDArray, NDArray, NDArray | float]:
        """Points, scores, likelihood ratios and precisions in host memory, for the oracle."""
        points, scores, ratios = (part.cpu().numpy() for part in (self.points, self.scores, self.weights))
        return points, scores, ratios, 1.0 if self.precisions is None else self.precisions.cpu().numpy()

    @cached_property
    def single(self) -> Any:
        """The rows in float32 blocks, centred at the median of each coordinate, which an outlier does not move."""
        return self._blocks(np.median(self.points.numpy(), axis=0))

    @cached_property
    def double(self) -> Any:
        """The rows in float64 blocks."""
        return self._blocks(None)

    @cached_property
    def largest(self) -> Float[NDArray, "two"]:
        """The largest precision ``1 / h^2`` and likelihood ratio."""
        precision = 1.0 if self.precisions is None else float(self.precisions.max())
        return np.array([precision, 1.0 if self.ratios is None else float(self.ratios.max())])

    def _blocks(self, centre: Float[NDArray, "k"] | None) -> Any:
        from lvd.engine.compiled import make_blocks

        ratios = None if self.ratios is None else self.ratios.numpy()
        precisions = None if self.precisions is None else self.precisions.numpy()
        return make_blocks(self.points.numpy(), centre, ratios, precisions)

    @cached_property
    def on_gpu(self) -> Any:
        """The rows as a FusedCalibration for the fused GPU kernels, whose module needs Triton."""
        from lvd.engine.triton_engine import FusedCalibration, Limits

        least_own = max(GPU_SELF_WEIGHT * float(self.largest[1]), LEAST_GPU_SELF_WEIGHT)
        limits = Limits(GPU_TOLERANCE, least_own, self.exact or len(self) <= GPU_EXACT_ROWS)
        return FusedCalibration(self.points, self.scores, self.ratios, limits)


class LocalSummary(NamedTuple):
    """The result for n queries; :meth:`LocalConformal.summary` has an example.

    Parameters
    ----------
    radius : the radii, (n,) for one level, (n, L) for a list; +inf where too few similar rows are known.
    n_effective : the effective sample size ``(sum w_i)^2 / sum w_i^2`` of the weights ``w_i``, (n,); 0 where all
        of them vanish. None if not requested.
    exact : whether the radii are certified to be those of exact weights, (n,). On the CPU all are; on a GPU all
        are up to 32,768 calibration rows, and above that with ``LocalConformal(exact=True)``. Otherwise a radius
        may be that of a level up to 1e-5 higher, never of a lower one.
    mean : the weighted mean ``sum w_i v_i / sum w_i`` of the values v, (n,); NaN where all weights vanish. None
        if no values were given.
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

    With `moments`, also Kish's effective sample size ``(sum w)^2 / sum w^2``, 0 where all weights vanish; with
    `values`, one per row in the order of scores, also the mean ``sum w v / sum w``.
    """
    if len(rows) == 0 or len(queries) == 0:
        return _of_nothing(queries, rows, levels)
    if queries.points.device.type == "cpu":
        return _on_cpu(queries, rows, levels, moments=moments, values=values)
    served = rows.bandwidths is None and (queries.bandwidths is None or rows.ratios is None)
    if served and gpu.fuses_on(queries.points.device, queries.points.shape[1]):
        return _on_gpu(queries, rows, levels, moments=moments, values=values)
    return _from_whole_weights(queries, rows, levels, values=values)


def similarities(queries: Queries, rows: SortedRows) -> Float[Tensor, "n m"]:
    """The kernel matrix of all queries and rows in float64, for what block sums cannot provide."""
    distances = squared_distances(queries.points, rows.points)
    if queries.bandwidths is not None:
        distances *= queries.precisions[:, None]
    if rows.precisions is not None:
        distances *= rows.precisions
    return distances.neg_().exp_()


def squared_differences(a: Float[Tensor, "n k"], b: Float[Tensor, "m k"]) -> Float[Tensor, "n m"]:
    """All squared distances from differences: accurate to the last digits, however far out points are."""
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square_()


def squared_distances(a: Float[Tensor, "n k"], b: Float[Tensor, "m k"]) -> Float[Tensor, "n m"]:
    """All squared distances; on a GPU from products, which are many times faster than differences."""
    return squared_differences(a, b) if a.device.type == "cpu" else distances_by_products(a, b)


def distances_by_products(a: Float[Tensor, "n k"], b: Float[Tensor, "m k"]) -> Float[Tensor, "n m"]:
    """All squared distances; from products up to `FAR`, with errors of about 1e-9, else from differences."""
    centre = b.mean(0)
    left, right = a - centre, b - centre
    norms_left, norms_right = left.square().sum(1), right.square().sum(1)
    if not bool(torch.cat([norms_left, norms_right]).max() <= FAR):
        return squared_differences(a, b)
    return torch.addmm(norms_right[None], left, right.T, alpha=-2.0).add_(norms_left[:, None]).clamp_(min=0.0)


def _of_nothing(queries: Queries, rows: SortedRows, levels: Float[NDArray, "l"]) -> LocalSummary:
    exact = torch.ones(len(queries), dtype=torch.bool, device=queries.points.device)
    nothing = torch.zeros_like(queries.above)
    return LocalSummary(_by_oracle(queries, rows, levels), nothing, exact, nothing + torch.nan)


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
    columns = 3 if moments or values is not None else 0
    in_single = len(rows) <= SINGLE_ROWS and rows.largest[1] <= LARGEST_RATIO
    blocks = rows.single if in_single else rows.double
    ranks, certain, sums = _ranks_of(queries, rows, blocks, levels, columns, centred)
    if in_single and not certain.all():
        rest = np.flatnonzero(~certain)
        again = _ranks_of(queries[rest], rows, rows.double, levels, columns, centred)
        ranks[rest], certain[rest], sums[rest] = again
    radius = torch.from_numpy(rows.ends.numpy()[ranks])
    if not certain.all():
        rest = np.flatnonzero(~certain)
        radius[rest], certain[rest] = _by_oracle(queries[rest], rows, levels), True
    exact = torch.from_numpy(certain)
    if not columns:
        return LocalSummary(radius, None, exact)
    total, squares, products = sums.T
    with np.errstate(divide="ignore", invalid="ignore"):
        size, mean = np.where(squares == 0.0, 0.0, total**2 / squares), centre + products / total
    return LocalSummary(radius, torch.from_numpy(size), exact, torch.from_numpy(mean))


def _ranks_of(  # noqa: PLR0917
    queries: Queries,
    rows: SortedRows,
    blocks: Any,
    levels: Float[NDArray, "l"],
    n_moments: int,
    values: Float[NDArray, "m"] | None,
) -> tuple[Int[NDArray, "n l"], Bool[NDArray, "n"], Float[NDArray, "n _"]]:
    """The ranks in the precision of the blocks, whether each is certain, and the moments if requested."""
    from lvd.engine.compiled import find_ranks, find_ranks_among_few, in_blocks

    n, points = len(queries), queries.points.numpy()
    above = NONE if queries.mass_above is None else queries.mass_above.numpy()
    below = NONE if queries.mass_below is None else queries.mass_below.numpy()
    precisions = NONE if queries.bandwidths is None else queries.precisions.numpy()
    laid = NO_VALUES if values is None else in_blocks([values], blocks)
    ranks, certain, sums = np.empty((n, len(levels)), np.int64), np.empty(n, bool), np.empty((n, n_moments))

    few = len(rows) <= LANE_ROWS and n >= LANE_QUERIES and blocks.points.dtype == np.float32
    few = few and rows.bandwidths is None and not n_moments

    def work(part: slice) -> None:
        asked = points[part], above[part], below[part], precisions[part], blocks, rows.largest, levels
        if few:
            find_ranks_among_few(*asked, ranks[part], certain[part])
        else:
            find_ranks(*asked, laid, ranks[part], certain[part], sums[part])

    in_chunks(work, n, len(rows))
    return ranks, certain, sums


def _on_gpu(
    queries: Queries,
    rows: SortedRows,
    levels: Float[NDArray, "l"],
    *,
    moments: bool,
    values: Float[Tensor, "m"] | None,
) -> LocalSummary:
    """By the fused kernels; the oracle answers what they leave unsettled."""
    from lvd.engine.triton_engine import Given

    # Float32 keeps more digits of centred values.
    centre = 0.0 if values is None else values.mean()
    given = torch.zeros_like(rows.scores) if moments and values is None else values
    given = None if given is None else given - centre
    precisions = None if queries.bandwidths is None else queries.precisions
    masses = queries.mass_above, queries.mass_below
    answer = rows.on_gpu.answer(queries.points, levels, Given(*masses, precisions, given))
    rest = answer.unsettled
    if len(rest):
        answer.radius[rest] = _by_oracle(queries[rest], rows, levels)
        answer.exact[rest] = True
    mean = None if values is None else answer.mean + centre
    return LocalSummary(answer.radius, answer.n_effective, answer.exact, mean)


def _from_whole_weights(
    queries: Queries, rows: SortedRows, levels: Float[NDArray, "l"], *, values: Float[Tensor, "m"] | None
) -> LocalSummary:
    """By plain float64 operations on chunks of queries, where no fused kernel applies."""
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
    """For the few queries that even float64 rounding could decide: exact ties, as with a constant kernel."""
    points, scores, ratios, own = rows.on_host
    asked = [
        part.cpu().numpy() for part in (queries.points, queries.precisions, queries.above, queries.below)
    ]
    result = np.empty((len(queries), len(levels)))

    def work(part: slice) -> None:
        for i in range(part.start, part.stop):
            query, precision, above, below = (column[i] for column in asked)
            weights = ratios * gaussian_weights(query, points, precision * own)
            for j, level in enumerate(levels.tolist()):
                result[i, j] = weighted_quantile(scores, weights, float(above), level, float(below))

    in_chunks(work, len(queries), len(rows), together=1)
    return torch.as_tensor(result, device=rows.scores.device)


@dataclass(frozen=True, eq=False)
class WeightedRows:
    """Rows with values, for repeated weighted sums."""

    points: Float[Tensor, "m k"]
    values: Float[Tensor, "m c"]

    def sums(
        self, queries: Float[Tensor, "n k"], bandwidths: Float[Tensor, "n"] | None = None
    ) -> Float[Tensor, "n c"]:
        """The sums in float64, from differences where outlying points would cost the others digits."""
        precisions = queries.new_ones(len(queries)) if bandwidths is None else bandwidths**-2.0
        if queries.device.type == "cpu":
            return self._sums_on_cpu(queries.numpy(), precisions.numpy())
        sums = []
        for rows in chunk_slices(len(queries), max(1, CHUNK_WEIGHTS // max(1, len(self.points)))):
            distances = squared_distances(queries[rows], self.points)
            sums.append(distances.mul_(-precisions[rows, None]).exp_() @ self.values)
        return torch.cat(sums)

    @cached_property
    def _blocks(self) -> Any:
        from lvd.engine.compiled import in_blocks, make_blocks

        blocks = make_blocks(self.points.numpy())
        return blocks, in_blocks(list(self.values.T.numpy()), blocks)

    def _sums_on_cpu(
        self, queries: Float[NDArray, "n k"], precisions: Float[NDArray, "n"]
    ) -> Float[Tensor, "n c"]:
        from lvd.engine.compiled import sums_over_blocks

        result = np.empty((len(queries), self.values.shape[1]))
        in_chunks(
            lambda rows: sums_over_blocks(queries[rows], precisions[rows], *self._blocks, result[rows]),
            len(queries),
            len(self.points),
        )
        return torch.from_numpy(result)


@dataclass(frozen=True, eq=False)
class TrainingSample:
    """A sample of the training rows in scaled coordinates, from which bandwidths are chosen."""

    points: Float[Tensor, "r k"]

    @classmethod
    def of(cls, training: Float[Tensor, "n k"]) -> TrainingSample:
        """An evenly spaced sample of the rows."""
        every = max(1, -(-len(training) // MOST_TRAINING_ROWS))
        return cls(training[::every].clone(memory_format=torch.contiguous_format))

    @cached_property
    def blocks(self) -> Any:
        """The rows as compiled sums take them."""
        from lvd.engine.compiled import make_blocks

        points = self.points.numpy()
        return make_blocks(points, np.median(points, axis=0))

    @cached_property
    def on_gpu(self) -> Any:
        """The rows as the fused GPU kernel reads them."""
        from lvd.engine.triton_engine import TrainingPoints

        return TrainingPoints(self.points, GRID)


def adaptive_bandwidths(
    queries: Float[Tensor, "n k"], sample: TrainingSample, *, n_calib: float, level: float, mass: float
) -> Float[Tensor, "n"]:
    """The smallest h >= 1 with ``(m / n) sum_j exp(-||u - u_j||^2 / h^2) >= mass level / (1 - level)``.

    Levels below 0.9 count as 0.9. The sum over n training rows, scaled, is the expected weight of m calibration
    rows; below ``mass = 1`` the radius would be infinite in expectation. Calibration rows are not used, so for a
    fixed centre this is a fixed kernel with its maximum at the centre, and the local guarantee holds unchanged.
    """
    wanted = wanted_weight(len(sample.points), n_calib=n_calib, level=level, mass=mass)
    if queries.device.type == "cpu":
        return _by_compiled_sums(queries.numpy(), sample.blocks, wanted)
    if gpu.fuses_on(queries.device, queries.shape[1]):
        return sample.on_gpu.bandwidths(queries, wanted)
    return _by_bisection(queries, sample.points, wanted)


def wanted_weight(n_sample: int, *, n_calib: float, level: float, mass: float) -> float:
    """The total weight of a sample of training rows at which a bandwidth is wide enough."""
    level = max(level, LEAST_LEVEL)
    return mass * level / (1.0 - level) * n_sample / n_calib


def _by_compiled_sums(queries: Float[NDArray, "n k"], blocks: Any, wanted: float) -> Float[Tensor, "n"]:
    from lvd.engine.compiled import smallest_bandwidths

    result, precisions = np.empty(len(queries)), GRID**-2.0
    in_chunks(
        lambda rows: smallest_bandwidths(queries[rows], blocks, precisions, wanted, GRID, result[rows]),
        len(queries),
        8 * blocks.n_rows,
    )
    return torch.from_numpy(result)


def _by_bisection(
    queries: Float[Tensor, "n k"], training: Float[Tensor, "r k"], wanted: float
) -> Float[Tensor, "n"]:
    """The same by bisecting the grid, with sums over all training rows."""
    steps, rows = queries.new_tensor(GRID), WeightedRows(training, training.new_ones(len(training), 1))
    low = torch.zeros(len(queries), dtype=torch.int64, device=queries.device)
    high = torch.full_like(low, len(GRID) - 1)
    while bool((low < high).any()):
        middle = (low + high) // 2
        enough = rows.sums(queries, steps[middle])[:, 0] >= wanted
        low, high = torch.where(enough, low, middle + 1), torch.where(enough, middle, high)
        low = torch.minimum(low, high)
    return steps[high]


def conformal_quantile(
    scores: Float[NDArray, "m *rest"], levels: Float[NDArray, "l"], *, quantile: str = "finite_sample"
) -> Float[NDArray, "l *rest"]:
    """The quantile of the scores along the first axis at each confidence level.

    ``"finite_sample"``: the ``ceil((m + 1) level)``-th smallest score, +inf when there are not as many. A new
    score, exchangeable with the m, is at most this large with a probability of at least `level`.
    ``"percentile"``: numpy's percentile, which interpolates and knows nothing of the new score, so that it
    falls short of the level; the paper's MADSplit and CQR figures use it.
    """
    check_choice(quantile, "quantile", QUANTILES)
    if quantile == "percentile":
        return np.percentile(scores, 100.0 * levels, axis=0)
    ranks = finite_sample_ranks(len(scores), levels)
    infinite = np.full((1, *scores.shape[1:]), np.inf)
    return np.concatenate([np.sort(scores, axis=0), infinite])[ranks - 1]


def finite_sample_ranks(n_scores: int, levels: Float[NDArray, "l"]) -> Int[NDArray, "l"]:
    """``ceil((m + 1) level)``, from 1 to m + 1, which means +inf."""
    return np.minimum(np.ceil((n_scores + 1) * levels), n_scores + 1).astype(np.int64)


def jackknife_plus_intervals(
    predictions: Float[NDArray, "m n *t"], residuals: Float[NDArray, "m *t"], levels: Float[NDArray, "l"]
) -> Float[NDArray, "n 2 l *t"]:
    """Jackknife+ and CV+ intervals (Barber, Candès, Ramdas and Tibshirani, Annals of Statistics 2021).

    `predictions` holds, for each of the m training rows, what the model fitted without it predicts for the n
    new rows, and `residuals` the absolute error of that model on it. With a = 1 - level, the lower end is the
    ``floor(a (m + 1))``-th smallest of prediction - residual and the upper end the
    ``ceil((1 - a)(m + 1))``-th smallest of prediction + residual; -inf and +inf when there are not as many.

    From level 1/2 on the median prediction is inside. Below, the two ends may cross, which means an
    empty set; keeping the median inside there too leaves nothing out and nests the intervals of all levels.
    """
    below = conformal_quantile(residuals[:, None] - predictions, levels)
    above = conformal_quantile(residuals[:, None] + predictions, levels)
    median = np.median(predictions, axis=0)
    return np.moveaxis(np.stack([np.minimum(-below, median), np.maximum(above, median)]), 2, 0)


def rows_missing(total_weight: float, level: float) -> int:
    """How many more calibration rows of weight 1 would make the radius finite.

    With weights summing to S, r such rows do when ``S + r >= level (S + r + 1)``.
    """
    count = max(0, math.ceil(level / (1.0 - level) - total_weight - 1e-9))
    while total_weight + count < level * (total_weight + count + 1.0):
        count += 1
    return count


def pinball(z: Float[NDArray, "n"], quantiles: Float[NDArray, "*_ k"], taus: Float[NDArray, "k"]) -> NDArray:
    """``max(tau (z - q), (tau - 1) (z - q))`` of each row and quantile."""
    rest = z[:, None] - quantiles
    return np.maximum(taus * rest, (taus - 1.0) * rest)
