"""The GPU engine: what :func:`lvd.engine.local_quantile` promises, in five launches.

Queries that float32 cannot decide are settled in float64 on the GPU, in the same sequence of launches; the host
only learns how many remain that depend on float64 rounding itself. A call of a known shape is replayed as a CUDA
graph, since for a thousand queries launching takes longer than computing; each graph owns its memory, so calls
take turns.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from lvd._progress import perhaps_compiling
from lvd._typing import Bool, Float, Int, NDArray
from lvd.engine import gpu
from lvd.engine import triton_kernels as kernels

WORKSPACE = 2**28
"""The most bytes of block sums kept at a time; queries beyond that are processed in turn."""
GRAPH_ELEMENTS, MOMENT_GRAPH_ELEMENTS, MOST_GRAPHS = 2**31, 2**28, 8
"""The most weights for which repeated calls of one shape are replayed, fewer with moments, which take more
memory; and the number of shapes remembered."""
LARGE_BLOCKS = 16_384
"""With at least this many blocks of 128 points, blocks are eight times as wide."""
PROGRAMS_PER_PROCESSOR, LEAST_SPAN = 24, 8
FEW_SPLITS, MOST_SPLITS, EXACT_SPLITS = 32, 512, 256
"""One kernel is compiled for few splits and one for many."""
TENSOR_CORE_GROWTH = 2.0
"""Three-term tf32 products lose one bit against float32: two mantissas of 11 bits, and no low-by-low term."""
FLOAT32_EPS, FLOAT64_EPS = 2.0**-23, 2.0**-52
FEW_FAR = 0.01
"""If float32 products are too inaccurate for a larger share of the points, products are float64."""
CHOICE_TOLERANCE = 1e-3
"""Relative errors of sums that do not matter for choosing a bandwidth, as neighbouring ones differ by a tenth."""
LOWEST = -1e30
"""An exponent of weight 0 that, unlike -inf, can be split in two."""


class Limits(NamedTuple):
    """When float32 may be used, and whether to settle what it cannot decide or else use the wider candidate."""

    tolerance: float
    least_own: float
    settle: bool


class Given(NamedTuple):
    """Optional inputs of queries: their masses at +inf (default 1) and -inf (default 0), ``1 / h^2`` (default 1),
    and a value for each row. Rows with their own scales have no bandwidths."""

    self_weights: Float[Tensor, "n"] | None = None
    below: Float[Tensor, "n"] | None = None
    precisions: Float[Tensor, "n"] | None = None
    values: Float[Tensor, "m"] | None = None

    def at(self, rows: slice) -> Given:
        """The inputs of some of the queries."""
        above, below, precisions = (None if column is None else column[rows] for column in self[:3])
        return Given(above, below, precisions, self.values)


class Answer(NamedTuple):
    """Radii (n, l) and, if requested, the effective sample size and the weighted mean of `values`.

    `exact` marks radii that no rounding could change. `unsettled` are the queries whose radius depends on float64
    rounding: the caller passes them to the oracle.
    """

    radius: Float[Tensor, "n l"]
    exact: Bool[Tensor, "n"]
    n_effective: Float[Tensor, "n"] | None
    mean: Float[Tensor, "n"] | None
    unsettled: Int[Tensor, "u"]


@dataclass(frozen=True)
class Cut:
    """How sums over all points are divided: into blocks of `tiles` x 128, and splits of `span` blocks."""

    tiles: int
    n_blocks: int
    span: int
    n_splits: int

    @staticmethod
    def of(n: int, n_points: int, processors: int) -> Cut:
        """For n queries: enough programs to fill the processors, each with a few blocks."""
        narrow = triton.cdiv(n_points, 128)
        tiles = 8 if narrow >= LARGE_BLOCKS else 1
        n_blocks = triton.cdiv(narrow, tiles)
        share = triton.cdiv(n_blocks * triton.cdiv(n, 64), PROGRAMS_PER_PROCESSOR * processors)
        span = max(LEAST_SPAN // tiles, share, triton.cdiv(n_blocks, MOST_SPLITS))
        return Cut(tiles, n_blocks, span, triton.cdiv(n_blocks, span))


class FusedCalibration:
    """Calibration points, sorted by score, as the kernels read them, with the graphs of shapes seen before.

    A row has weight ``scale K``; without `scales`, K.
    """

    def __init__(
        self,
        points: Float[Tensor, "m k"],
        scores: Float[Tensor, "m"],
        scales: Float[Tensor, "m"] | None,
        limits: Limits,
    ) -> None:
        self._given = (points, scores, scales, limits)
        self.limits = limits
        self.n_points, self.n_components = points.shape
        properties = torch.cuda.get_device_properties(points.device) if points.is_cuda else None
        self.processors = int(properties.multi_processor_count) if properties else 1
        self.width = max(16, triton.next_power_of_2(self.n_components + 2))
        self.centre = points.mean(0)
        self.stretch = points.new_full((1,), math.sqrt(math.log2(math.e)))
        log_weights = torch.zeros_like(scores) if scales is None else scales.log2()
        finite = log_weights[log_weights.isfinite()]
        self.largest_log_weight = math.log(2.0) * float(finite.abs().max()) if len(finite) else 0.0
        self.log_mass = math.log(self.n_points) + (
            math.log(2.0) * float(finite.max()) if len(finite) else 0.0
        )
        # The error of a sum of so many products, in roundings of its terms.
        self.growth = TENSOR_CORE_GROWTH * max(1.0, 0.25 * math.sqrt(self.n_components + 2))
        shifted = (points - self.centre) * self.stretch
        norms = shifted.norm(dim=1) / self.stretch
        self.largest_norm = float(norms.max())
        share_far = float((self._product_errors(norms) > limits.tolerance).double().mean())
        self.double = share_far > FEW_FAR and gpu.multiplies_float64(points.device)
        if not self.double:
            # Norms of the rounded coordinates, so that rounding moves points, not distances.
            shifted = shifted.float()
        squared = shifted.double().square().sum(1)
        padded = 1024 * triton.cdiv(self.n_points, 1024)
        self.right = shifted.new_zeros(padded, self.width)
        self.right[: self.n_points, : self.n_components] = shifted
        self.right[:, self.n_components] = 1.0
        self.right[:, self.n_components + 1] = LOWEST
        constants = log_weights - squared
        self.right[: self.n_points, self.n_components + 1] = (
            constants if self.double else constants.clamp(min=LOWEST)
        )
        self.columns = points.T.contiguous()
        self.plain = scales is None
        self.scales = torch.ones_like(scores) if scales is None else scales
        self.scores = torch.cat([scores, scores.new_full((1,), torch.inf)])
        # Differences are those of the oracle; its cumulative sum may round at each of m rows.
        self.exact_margin = FLOAT64_EPS * (self.n_points + 50.0 * self.n_components)
        self.n_blocks = self.cut(1).n_blocks
        self._turn = Lock()
        self._graphs: OrderedDict[tuple[Any, ...], _Replay | None] = OrderedDict()

    def __reduce__(self) -> tuple[type[FusedCalibration], tuple[Any, ...]]:
        """Graphs cannot be copied: a copy starts without any."""
        return FusedCalibration, self._given

    def _product_errors(self, norms: Float[Tensor, "m"]) -> Float[Tensor, "m"]:
        """The bound of :func:`kernels.prepare_queries` on the error of tf32 products, at queries of these norms."""
        reach = (norms + math.sqrt(max(1.0, self.log_mass))).clamp(max=self.largest_norm)
        products = norms.square() + reach.square() + self.largest_log_weight
        return FLOAT32_EPS * (4.0 + self.growth * products)

    def answer(self, queries: Float[Tensor, "n k"], levels: Float[NDArray, "l"], given: Given) -> Answer:
        """Radii at all levels and, with values, the rest of an Answer from the same pass."""
        most = max(64, WORKSPACE // (4 * self.n_blocks))
        with torch.cuda.device_of(queries):
            limit = GRAPH_ELEMENTS if given.values is None else MOMENT_GRAPH_ELEMENTS
            if len(queries) <= most and len(queries) * self.n_points <= limit:
                with self._turn:
                    return self._replay(queries, levels, given)
            on_device = torch.as_tensor(levels, device=queries.device)
            parts = []
            for start in range(0, len(queries), most):
                rows = slice(start, start + most)
                run = Launches(self, len(queries[rows]), on_device, moments=given.values is not None)
                run.take(given.at(rows))
                run.launch(queries[rows])
                parts.append(run.answer(start))
        return parts[0] if len(parts) == 1 else _join_answers(parts)

    def prepare(self, queries: Tensor, own: Tensor, left: Tensor, margins: Tensor, counters: Tensor) -> None:
        """Fill the queries' left factors and the bounds of their errors, and set the counters to 0."""
        kernels.prepare_queries[(triton.cdiv(len(queries), 64),)](
            queries, self.centre, self.stretch, own, left, margins, counters, len(queries), self.largest_norm,
            self.largest_log_weight, self.log_mass, self.growth, self.limits.tolerance, self.limits.least_own,
            K=self.n_components, KP=self.width, DOUBLE=self.double,
        )  # fmt: skip

    def cut(self, n: int) -> Cut:
        """How the work of n queries is divided."""
        return Cut.of(n, self.n_points, self.processors)

    def _replay(self, queries: Float[Tensor, "n k"], levels: Float[NDArray, "l"], given: Given) -> Answer:
        """Launch a shape the first time, capture it the second time, replay it from then on."""
        key = (len(queries), levels.tobytes(), *(part is None for part in given))
        replay = self._graphs.get(key)
        if replay is None:
            on_device = torch.as_tensor(levels, device=queries.device)
            run = Launches(self, len(queries), on_device, moments=given.values is not None)
            if key not in self._graphs:
                self._graphs[key] = None
                if len(self._graphs) > MOST_GRAPHS:
                    self._graphs.popitem(last=False)
                run.take(given)
                with perhaps_compiling():
                    run.launch(queries)
                return run.answer(0)
            replay = self._graphs[key] = _Replay(run, queries)
        self._graphs.move_to_end(key)
        return replay(queries, given)


class Launches:
    """Buffers for n queries, and the launches that fill them."""

    def __init__(
        self, calibration: FusedCalibration, n: int, levels: Float[Tensor, "l"], *, moments: bool = False
    ) -> None:
        self.calibration, self.n, self.levels = calibration, n, levels
        self.cut = calibration.cut(n)
        self.exact_span = triton.cdiv(calibration.n_points, 128 * EXACT_SPLITS)
        self.exact_splits = triton.cdiv(calibration.n_points, 128 * self.exact_span)
        right, double = calibration.right, calibration.columns
        self.moments = moments
        self.values = right.new_zeros(len(right) if moments else 1, dtype=torch.float32)
        n_sums = 3 if self.moments else 1
        self.own = _usual_own(double, n)
        self.left = right.new_empty(n, calibration.width)
        self.margins = double.new_empty(n)
        self.sums = right.new_empty(self.cut.n_blocks, n, dtype=torch.float32)
        self.partial = double.new_empty(n_sums, self.cut.n_splits, n)
        self.exact_partial = double.new_empty(n_sums, self.exact_splits, n)
        self.radius = double.new_empty(n, len(levels))
        self.exact = torch.empty(n, dtype=torch.int8, device=double.device)
        self.averages = double.new_empty(2, n)
        self.pending = torch.empty(n, dtype=torch.int32, device=double.device)
        self.unsettled = torch.empty_like(self.pending)
        self.no_indices = torch.empty(0, dtype=torch.int64, device=double.device)
        self.counters = torch.empty(2, dtype=torch.int32, device=double.device)

    def take(self, given: Given) -> None:
        """Copy the given inputs; the others keep their defaults: 1 at +inf, 0 at -inf, and ``1 / h^2 = 1``."""
        for column, numbers in enumerate(given[:3]):
            if numbers is not None:
                self.own[:, column] = numbers
        if given.values is not None:
            self.values[: len(given.values)] = given.values

    def launch(self, queries: Float[Tensor, "n k"]) -> None:
        """Enqueue everything without waiting."""
        for stage in self.stages(queries.contiguous()).values():
            stage()

    def stages(self, queries: Float[Tensor, "n k"]) -> dict[str, Callable[[], object]]:
        """The launches by name, in order."""
        c, cut, n, n_levels, own = self.calibration, self.cut, self.n, len(self.levels), self.own
        query_tiles, programs = triton.cdiv(n, 64), 4 * c.processors
        narrow = {"KP": c.width, "TILES": cut.tiles, "MOMENTS": self.moments}
        exact = {"K": c.n_components, "PLAIN": c.plain, "MOMENTS": self.moments}
        splits, warps = (FEW_SPLITS, 1) if cut.n_splits <= FEW_SPLITS else (MOST_SPLITS, 4)
        return {
            "queries": lambda: c.prepare(queries, own, self.left, self.margins, self.counters),
            "block sums": lambda: kernels.block_sums[(query_tiles, cut.n_splits)](
                self.left, c.right, self.values, self.sums, self.partial, n, cut.n_blocks, cut.span,
                **narrow, DOUBLE=c.double, num_warps=4, num_stages=max(1, 48 // c.width),
            ),
            "crossing": lambda: kernels.locate[(n,)](
                self.left, c.right, self.sums, self.partial, self.margins, own, self.levels, c.scores,
                self.radius, self.exact, self.averages, self.pending, self.counters, n, c.n_points, n_levels,
                cut.n_blocks, cut.n_splits, cut.span, **narrow, SPLITS=splits, SETTLE=c.limits.settle,
                num_warps=warps,
            ),
            "float64 sums": lambda: kernels.exact_sums[(programs,)](
                queries, c.columns, c.scales, self.values, own, self.exact_partial, self.pending,
                self.counters, n, c.n_points, self.exact_splits, self.exact_span, **exact, num_warps=4,
            ),
            "float64 crossing": lambda: kernels.locate_exact[(4 * programs,)](
                queries, c.columns, c.scales, self.exact_partial, own, self.levels, c.scores,
                self.radius, self.exact, self.averages, self.pending, self.unsettled, self.counters, n,
                c.n_points, n_levels, self.exact_splits, self.exact_span, c.exact_margin,
                **exact, SPLITS=EXACT_SPLITS, SETTLE=c.limits.settle, num_warps=4,
            ),
        }  # fmt: skip

    def answer(self, offset: int) -> Answer:
        """A copy of the results; waits for the launches only if queries may be left to the caller."""
        n_effective, mean = self.averages.clone() if self.moments else (None, None)
        rest, radius, exact = self.no_indices, self.radius.clone(), self.exact.bool()
        if self.calibration.limits.settle and (n_unsettled := int(self.counters[1])):
            rest = self.unsettled[:n_unsettled].long() + offset
        return Answer(radius, exact, n_effective, mean, rest)


class _Replay:
    """A captured run: inputs are copied in and the answer is copied out; calls on other streams wait for that."""

    def __init__(self, run: Launches, queries: Float[Tensor, "n k"]) -> None:
        self.run, self.queries = run, queries.contiguous().clone()
        self.copied_out = torch.cuda.Event()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            run.launch(self.queries)

    def __call__(self, queries: Float[Tensor, "n k"], given: Given) -> Answer:
        self.copied_out.wait()
        self.queries.copy_(queries)
        self.run.take(given)
        self.graph.replay()
        answer = self.run.answer(0)
        self.copied_out.record()
        return answer


class TrainingPoints:
    """Training rows in the layout of the kernel that finds bandwidths, and the ascending candidates."""

    def __init__(self, points: Float[Tensor, "r k"], grid: Float[NDArray, "g"]) -> None:
        if len(grid) > kernels.STEP.value * (kernels.STEP.value + 1):
            raise ValueError(f"two passes cannot choose among {len(grid)} bandwidths")
        limits = Limits(CHOICE_TOLERANCE, 1.0, settle=False)
        self.rows = FusedCalibration(points, torch.zeros_like(points[:, 0]), None, limits)
        self.grid = torch.as_tensor(grid, device=points.device)
        self.counters = torch.empty(2, dtype=torch.int32, device=points.device)
        self.own = points.new_ones(0, 3)
        self._used = False

    def bandwidths(self, queries: Float[Tensor, "n k"], wanted: float) -> Float[Tensor, "n"]:
        """The smallest of the grid at which the weights of all training rows sum to at least `wanted`."""
        n, rows, given = len(queries), self.rows, queries.contiguous()
        margins, result, left = given.new_empty(n), given.new_empty(n), rows.right.new_empty(n, rows.width)
        if len(self.own) < n:
            self.own = _usual_own(given, n)
        first_use, self._used = nullcontext() if self._used else perhaps_compiling(), True
        with torch.cuda.device_of(queries), first_use:
            rows.prepare(given, self.own, left, margins, self.counters)
            kernels.find_bandwidths[(triton.cdiv(n, 64),)](
                left, rows.right, self.grid, result, n, triton.cdiv(rows.n_points, 128), wanted,
                len(self.grid) - 1, KP=rows.width, DOUBLE=rows.double, num_warps=4,
                num_stages=max(1, 48 // rows.width),
            )  # fmt: skip
        return result


def _join_answers(parts: list[Answer]) -> Answer:
    """The answers for consecutive parts of the queries, joined."""
    fields: list[Any] = [None if each[0] is None else torch.cat(each) for each in zip(*parts, strict=True)]
    return Answer(*fields)


def _usual_own(like: Float[Tensor, "_ _"], n: int) -> Float[Tensor, "n 3"]:
    """The defaults of n queries: mass 1 at +inf, none at -inf, and ``1 / h^2 = 1``."""
    return like.new_tensor([1.0, 0.0, 1.0]).repeat(n, 1)
