"""Calibration rows: points with optional likelihood ratios and groups, sorted by score within their groups, and
saved in their original order; and the distribution of scores that they give to a row."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from lvd._parallel import map_queries
from lvd._typing import ArrayLike, Float, Int, Labels, Levels, NDArray
from lvd._validation import (
    InputError,
    check_choice,
    check_levels,
    check_positive,
    check_same_length,
    check_vector,
    resolve_device,
    row_digests,
    to_numpy,
)
from lvd.engine import Queries, SortedRows, local_quantile, similarities
from lvd.engine.quantiles import QUANTILES, conformal_quantile
from lvd.kernels import Kernel, MahalanobisKernel


class CalibrationWarning(UserWarning):
    """The calibration set cannot provide what was requested."""


Group = Hashable
ALL: Group = None
"""The single group of rows without groups."""
Asked: TypeAlias = tuple[tuple[int, ...], float]
"""Score columns, and the level of the quantiles requested from them."""
MOST_SET_ASIDE = 50_000
"""Default cap on the rows set aside for calibration: more slow predictions down and hardly improve intervals."""
MOST_WEIGHT = 1e100
"""Up to this weight, sums of weights, their squares and products stay finite."""
Indices: TypeAlias = Int[Tensor, "_"] | slice
"""Row indices, or a slice for all rows."""


@dataclass(frozen=True)
class Rows:
    """Rows in order of arrival; `weights`, `groups` and `keys` are None if not given.

    `bandwidths` are those of queries, None if all are equal.
    """

    points: Float[Tensor, "n k"]
    weights: Float[Tensor, "n"] | None
    groups: NDArray | None
    keys: NDArray | None = None
    bandwidths: Float[Tensor, "n"] | None = None

    @classmethod
    def of(
        cls, points: Float[Tensor, "n k"], groups: Labels, weights: Labels, row_keys: Labels = None
    ) -> Rows:
        """The points with their checked groups, weights and keys."""
        n_rows = len(points)
        return cls(
            points,
            None if weights is None else points.new_tensor(_check_weights(weights, n_rows)),
            None if groups is None else _check_groups(groups, n_rows),
            None if row_keys is None else _check_keys(row_keys, n_rows),
        )

    def __getitem__(self, indices: Indices) -> Rows:
        """The selected rows."""
        if isinstance(indices, slice) and indices == slice(None):
            return self
        host = indices if isinstance(indices, slice) else indices.cpu().numpy()
        return Rows(
            self.points[indices],
            None if self.weights is None else self.weights[indices],
            None if self.groups is None else self.groups[host],
            None if self.keys is None else self.keys[host],
            None if self.bandwidths is None else self.bandwidths[indices],
        )

    @property
    def queries(self) -> Queries:
        """The rows as the engine expects them, with their weights at +inf."""
        return Queries(self.points, self.weights, bandwidths=self.bandwidths)

    def by_group(self) -> Iterator[tuple[Group, Int[Tensor, "g"]]]:
        """The indices of the rows of each group, in order of arrival."""
        if self.groups is None:
            yield ALL, torch.arange(len(self.points), device=self.points.device)
            return
        names, codes = np.unique(self.groups, return_inverse=True)
        for code, name in enumerate(names.tolist()):
            yield name, torch.as_tensor(np.flatnonzero(codes == code), device=self.points.device)

    def joined(self, newer: Rows) -> Rows:
        """These rows followed by the newer ones, which need weights and groups if these have them."""
        weights = groups = None
        if self.weights is not None and newer.weights is not None:
            weights = torch.cat([self.weights, newer.weights])
        if self.groups is not None and newer.groups is not None:
            groups = _joined_labels(self.groups, newer.groups)
        return Rows(torch.cat([self.points, newer.points]), weights, groups)

    def at_their_largest(self, known: Rows, max_weight: float | None) -> Rows:
        """The rows with the largest weight that a new case near them can have, as the local guarantee needs."""
        if self.weights is None or known.weights is None:
            return self
        largest = float(known.weights.max()) if max_weight is None else max_weight
        return replace(self, weights=self.weights.clamp(min=largest))


@dataclass(frozen=True, eq=False)
class Calibration:
    """All calibration rows in order of arrival, and sorted by each score column within each group."""

    rows: Rows
    scores: Float[Tensor, "m c"]
    groups: dict[Group, tuple[SortedRows, ...]]

    @classmethod
    def of(cls, rows: Rows, scores: Float[Tensor, "m c"], *, exact: bool = False) -> Calibration:
        """Sort the rows of each group; `exact` as in :class:`SortedRows`."""
        groups: dict[Group, tuple[SortedRows, ...]] = {}
        for group, indices in rows.by_group():
            some = rows[indices]
            groups[group] = tuple(
                SortedRows.of(some.points, column, ratios=some.weights, exact=exact).numbered(indices)
                for column in scores[indices].T.contiguous()
            )
        return cls(rows, scores, groups)

    def of_group(self, group: Group, column: int = 0) -> SortedRows:
        """The rows of a group, possibly none, sorted by a score column."""
        if group in self.groups:
            return self.groups[group][column]
        return SortedRows.of(self.rows.points[:0], self.scores[:0, column])

    def answer(
        self,
        queries: Rows,
        ask: Callable[[Group, SortedRows, Indices], tuple[Tensor, ...]],
        column: int = 0,
    ) -> tuple[Tensor, ...]:
        """The results of `ask` on each group's queries, reassembled in the order of the queries."""
        if queries.groups is None:
            return ask(ALL, self.groups[ALL][column], slice(None))
        results: tuple[Tensor, ...] = ()
        for group, indices in queries.by_group():
            found = ask(group, self.of_group(group, column), indices)
            if not results:
                results = tuple(part.new_empty(len(queries.points), *part.shape[1:]) for part in found)
            for whole, part in zip(results, found, strict=True):
                whole[indices] = part
        return results


def local_cdf(
    queries: Queries, rows: SortedRows, scores: Float[Tensor, "n"], below: Float[Tensor, "n"]
) -> Float[Tensor, "n"]:
    """``F(s) = (below w + sum_i w_i 1{V_i <= s}) / (w + sum_i w_i)``, w the query's own mass."""
    ranks = torch.searchsorted(rows.scores, scores.contiguous(), right=True)

    def sums(some: slice) -> Float[Tensor, "r 2"]:
        """The weight of the first `ranks` rows, and the total."""
        weights = similarities(queries[some], rows).mul_(rows.weights)
        reached = torch.arange(len(rows), device=ranks.device) < ranks[some, None]
        return torch.stack([(weights * reached).sum(1), weights.sum(1)], 1)

    reached, total = torch.cat(map_queries(sums, len(queries), len(rows))).T
    return (below * queries.above + reached) / (queries.above + total)


@dataclass(frozen=True, eq=False)
class LocalDistribution:
    """The score distributions of some rows: the calibration rows' signed scores, weighted by similarity.

    A row's own mass, whose score is unknown, is split between the two ends: half at -inf and half at +inf, or in
    the given shares. A row whose group has no calibration row has all its mass at the two ends.
    """

    calibration: Calibration
    rows: Rows

    def quantile(self, q: Levels) -> Float[NDArray, "n q"]:
        """The smallest score at which each row's distribution reaches q in (0, 1); -inf or +inf beyond the ends."""
        levels = check_levels(q, "q")

        def ask(_: Group, known: SortedRows, indices: Indices) -> tuple[Tensor]:
            queries = self.rows[indices].queries
            half = queries.above / 2.0
            split = Queries(queries.points, half, half, queries.bandwidths)
            return (local_quantile(split, known, levels).radius,)

        return self.calibration.answer(self.rows, ask)[0].cpu().numpy()

    def cdf(self, scores: ArrayLike, below: ArrayLike = 0.5) -> Float[NDArray, "n"]:
        """The distribution function at one score for each row.

        The share `below` of the row's own mass, a number or one per row, sits at -inf, the rest at +inf.
        """
        at, points = check_vector(scores, "scores"), self.rows.points
        check_same_length(rows=points, scores=at)
        given = points.new_tensor(at)
        shares = points.new_tensor(np.broadcast_to(to_numpy(below), at.shape).copy())

        def ask(_: Group, known: SortedRows, indices: Indices) -> tuple[Tensor]:
            return (local_cdf(self.rows[indices].queries, known, given[indices], shares[indices]),)

        return self.calibration.answer(self.rows, ask)[0].cpu().numpy()

    def places(self) -> Float[NDArray, "n j"]:
        """The positions of the masses: -inf, the calibration scores in order of arrival, +inf; (n, m + 2)."""
        scores = np.concatenate([[-np.inf], self.calibration.scores[:, 0].cpu().numpy(), [np.inf]])
        return np.tile(scores, (len(self.rows.points), 1))

    def masses(self) -> Float[NDArray, "n j"]:
        """The mass at each of the :meth:`places`, in shares of 1; a dense matrix."""
        n_places = len(self.calibration.scores) + 2

        def ask(_: Group, known: SortedRows, indices: Indices) -> tuple[Tensor]:
            queries = self.rows[indices].queries
            weights = similarities(queries, known).mul_(known.weights)
            result = weights.new_zeros(len(queries), n_places)
            result[:, [0, -1]] = queries.above[:, None] / 2.0
            result[:, known.order + 1] = weights
            return (result / (queries.above[:, None] + weights.sum(1, keepdim=True)),)

        return self.calibration.answer(self.rows, ask)[0].cpu().numpy()


class GlobalConformal:
    """Radii from equally weighted calibration scores, independent of the query.

    Parameters
    ----------
    quantile : ``"finite_sample"``: the ``ceil((m + 1) level)``-th smallest of m scores, +inf beyond the m-th.
        ``"percentile"``: numpy's plain percentile, without the guarantee, as in the paper's figures.
    """

    scores_: Float[NDArray, "m c"]

    def __init__(self, quantile: str = "finite_sample") -> None:
        self.quantile = quantile

    def conformalize(self, embeddings: ArrayLike, scores: ArrayLike) -> GlobalConformal:
        """Store the calibration scores, (m,) or several columns (m, c); the rows' positions are ignored."""
        check_choice(self.quantile, "quantile", QUANTILES)
        self.scores_ = check_score_columns(scores)
        return self

    def rescored(self, scores: ArrayLike) -> GlobalConformal:
        """A calibration with other scores."""
        return GlobalConformal(self.quantile).conformalize(np.empty((0, 0)), scores)

    def radii(self, embeddings: ArrayLike, asked: Sequence[Asked]) -> Float[NDArray, "n s l"]:
        """The radii of the columns at the requested levels, the same for all rows."""
        found = [
            [
                conformal_quantile(self.scores_[:, column], np.array([level]), quantile=self.quantile)[0]
                for column in columns
            ]
            for columns, level in asked
        ]
        radius = np.array(found).T
        return np.broadcast_to(radius, (len(embeddings), *radius.shape))

    def radius(self, embeddings: ArrayLike, confidence_level: Levels) -> Any:
        """Radii (n, L), the same for all rows."""
        return self.radii(embeddings, [((0,), level) for level in check_levels(confidence_level).tolist()])[
            :, 0
        ]


def drawn_rows(n_rows: int, most: int | None, seed: int, groups: Labels = None) -> Int[NDArray, "k"] | None:
    """Which rows calibrate where there are more than `most`, in their order; None if all do.

    They are drawn uniformly, whatever their scores, so that rows exchangeable with a new one stay so. With groups
    it is `most` of each: a query asks the rows of its own group alone, and small groups keep all of theirs.
    """
    if most is None or n_rows <= most:
        return None
    order = np.random.default_rng(seed).permutation(n_rows)
    if groups is None:
        return np.sort(order[:most])
    _, codes = np.unique(_check_groups(groups, n_rows)[order], return_inverse=True)
    together = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[together], codes[together])
    chosen = order[together[np.arange(n_rows) - starts < most]]
    return np.sort(chosen) if len(chosen) < n_rows else None


def check_score_columns(scores: ArrayLike) -> Float[NDArray, "m c"]:
    """The scores as finite columns; a vector becomes one column."""
    if np.ndim(scores) != 2:
        return np.array(check_vector(scores, "scores"))[:, None]
    return np.stack([check_vector(column, "scores") for column in to_numpy(scores).T], axis=1)


def _joined_labels(old: NDArray, new: NDArray) -> NDArray:
    if (old.dtype == object) != (new.dtype == object):
        kinds = ["text" if labels.dtype == object else "numbers" for labels in (old, new)]
        raise InputError(f"groups were {kinds[0]} so far, got {kinds[1]}; give labels of the same kind")
    return np.concatenate([old, new])


def check_rows_given(groups: Labels, weights: Labels, known: Rows) -> None:
    """Raise unless new rows have groups and weights exactly when the calibration rows do."""
    for name, given, had in (("groups", groups, known.groups), ("weights", weights, known.weights)):
        if given is None and had is not None:
            raise InputError(
                f"the calibration rows came with {name}: give {name}=, one for each of these rows"
            )
        if given is not None and had is None:
            raise InputError(
                f"the calibration rows came without {name}: leave {name}= out, or conformalize with them"
            )


def check_width(points: Float[Tensor, "n k"], known: Rows) -> None:
    """Raise unless new rows have as many coordinates as the calibration rows: a user's kernel may have changed."""
    if points.shape[1] != known.points.shape[1]:
        raise InputError(
            f"kernel.coordinates must give {known.points.shape[1]} columns, as it did in conformalize, got "
            f"{points.shape[1]}; conformalize again"
        )


def _check_groups(groups: ArrayLike, n_rows: int) -> NDArray:
    """Group labels, all text or all numbers, one per row."""
    array = to_numpy(groups)
    if array.ndim != 1:
        raise InputError(f"groups must be 1-d, one label for each row, got shape {array.shape}")
    check_same_length(rows=np.empty(n_rows), groups=array)
    if array.dtype.kind == "U":
        return array.astype(object)
    numbers = array.dtype.kind in "biuf" and bool(np.isfinite(array).all())
    if numbers or (array.dtype.kind == "O" and all(type(label) is str for label in array)):
        return array.copy()
    raise InputError(
        "groups must be all text or all numbers, without missing values; give rows without a group a label, such "
        "as 'none'"
    )


def _check_keys(row_keys: ArrayLike, n_rows: int) -> NDArray:
    """Integers, one per row, as 64 bits each."""
    array = to_numpy(row_keys)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise InputError(
            f"row_keys must be whole numbers, one for each row, got {array.dtype} of shape {array.shape}"
        )
    check_same_length(rows=np.empty(n_rows), row_keys=array)
    return array.astype(np.uint64)


def _check_weights(weights: ArrayLike, n_rows: int) -> Float[NDArray, "n"]:
    """Likelihood ratios, finite and above 0, one per row."""
    array = check_vector(weights, "weights")
    check_same_length(rows=np.empty(n_rows), weights=array)
    if not (array > 0.0).all():
        raise InputError(f"weights must be likelihood ratios above 0, got {array.min():g}; remove such rows")
    if array.max() > MOST_WEIGHT:
        raise InputError(
            f"weights must be at most {MOST_WEIGHT:g}, got {array.max():g}: their sums would overflow; divide "
            "all of them, those of calibration rows and of new ones, by one number"
        )
    return array


def check_largest(rows: Rows, max_weight: float | None) -> Rows:
    """Return the rows, or raise if one weighs more than `max_weight`."""
    largest = 0.0 if rows.weights is None else float(rows.weights.max())
    if max_weight is not None and largest > max_weight:
        raise InputError(
            f"weights must be at most max_weight={max_weight:g}, got {largest:g}; raise max_weight to the largest "
            "likelihood ratio there can be, on the scale of the weights"
        )
    return rows


def take_apart(conformal: Any) -> dict[str, Any]:
    """The state of a LocalConformal to save: the calibration rows in their original order, without derived data.

    The parameters are those of the calibration; a kernel that has not changed since is shared with other objects.
    """
    attributes = {name: value for name, value in vars(conformal).items() if not name.startswith("_")}
    if "calibration_" in attributes:
        settings, mine = conformal._settings, vars(conformal.kernel)
        attributes |= settings._asdict()
        if all(value is mine.get(name) for name, value in vars(settings.kernel).items()):
            attributes["kernel"] = conformal.kernel
        rows, scores = conformal.calibration_.rows, conformal.calibration_.scores
        attributes["calibration_"] = {
            "points": rows.points,
            "scores": scores,
            "weights": rows.weights,
            "groups": rows.groups,
        }
    return attributes


def put_together(conformal: Any) -> None:
    """Restore a loaded LocalConformal by sorting its rows again."""
    if not isinstance(conformal.kernel, Kernel):
        raise InputError("a LocalConformal needs a kernel of lvd.kernels")
    saved = vars(conformal).pop("calibration_", None)
    if saved is None:
        return
    conformal._check_parameters()
    conformal._settings = conformal._frozen()
    device = resolve_device(conformal.kernel.device)
    points, scores = saved["points"].to(device), saved["scores"].to(device)
    if points.ndim != 2 or scores.ndim != 2 or len(points) != len(scores) or not scores.numel():
        raise InputError("the calibration rows must have coordinates (m, k) and scores (m, c)")
    kernel = conformal.kernel
    width = len(kernel.components_) if isinstance(kernel, MahalanobisKernel) else None
    for known in (width, kernel.train_points_.shape[1] if kernel.knows_training_rows else None):
        if known not in {None, points.shape[1]}:
            raise InputError("the calibration rows do not have the kernel's coordinates")
    if {points.dtype, scores.dtype} != {torch.float64} or not bool(torch.isfinite(scores).all()):
        raise InputError("the calibration rows must have coordinates in float64 and finite scores")
    check_positive(vars(conformal).setdefault("rows_expected_", len(scores)), "rows_expected_", integer=True)
    if vars(conformal).setdefault("max_weight_", None) is not None:
        check_positive(conformal.max_weight_, "max_weight")
    conformal._take(Rows.of(points, saved.get("groups"), saved.get("weights")), scores)


def draw_shares(queries: Float[Tensor, "n k"], seed: int, keys: NDArray | None = None) -> Float[Tensor, "n"]:
    """One uniform number in (0, 1) per query, independent of its centre."""
    return queries.new_tensor(row_uniforms(queries, seed, queries.shape[1] + 1, keys)[:, -1])


def row_uniforms(
    rows: Float[Tensor, "n k"], seed: int, count: int, keys: NDArray | None = None
) -> Float[NDArray, "n c"]:
    """Uniform numbers in (0, 1) determined by a row's 64-bit key, by default its digest, and the seed."""
    keys = row_digests(rows.cpu().numpy()) if keys is None else keys
    state = keys[:, None] ^ _mix(np.full((1, 1), seed, dtype=np.uint64))
    mixed = _mix(state + _mix(np.arange(1, count + 1, dtype=np.uint64))[None, :])
    return (np.right_shift(mixed, np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _mix(state: NDArray) -> NDArray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
