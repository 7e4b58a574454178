"""Calibration rows: points with, on request, likelihood ratios and groups; sorted by score within their groups,
and saved as they came."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from lvd._typing import ArrayLike, Float, Int, Labels, Levels, NDArray
from lvd._validation import (
    InputError,
    check_choice,
    check_levels,
    check_positive,
    check_same_length,
    check_vector,
    resolve_device,
    to_numpy,
)
from lvd.engine import Queries, SortedRows
from lvd.engine.finite_sample import QUANTILES, conformal_quantile
from lvd.kernels import Kernel, MahalanobisKernel


class CalibrationWarning(UserWarning):
    """The calibration set cannot give what was asked of it."""


Group = Hashable
ALL: Group = None
"""The one group of rows that came without groups."""
Asked: TypeAlias = tuple[tuple[int, ...], float]
"""Columns of scores, and the level at which their quantiles are wanted."""
MOST_SET_ASIDE = 50_000
"""By default so many rows at most are set aside for calibration: more make predictions slower, and intervals hardly
better."""
MOST_WEIGHT = 1e100
"""Sums of so large weights, and of their squares and products, are numbers."""
Indices: TypeAlias = Int[Tensor, "_"] | slice
"""Which rows: their numbers, or all of them."""


@dataclass(frozen=True)
class Rows:
    """Rows in order of arrival; `weights`, `groups` and `keys` are None where none were given.

    `bandwidths` are those of queries, None where all have the same.
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
        """Points with what the caller says of them, checked."""
        n_rows = len(points)
        return cls(
            points,
            None if weights is None else points.new_tensor(_check_weights(weights, n_rows)),
            None if groups is None else _check_groups(groups, n_rows),
            None if row_keys is None else _check_keys(row_keys, n_rows),
        )

    def __getitem__(self, indices: Indices) -> Rows:
        """Some of the rows."""
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
        """The rows as the engine takes them, with their weights at infinity."""
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
        """These rows and the newer ones behind them, which have weights and groups if these do."""
        weights = groups = None
        if self.weights is not None and newer.weights is not None:
            weights = torch.cat([self.weights, newer.weights])
        if self.groups is not None and newer.groups is not None:
            groups = _joined_labels(self.groups, newer.groups)
        return Rows(torch.cat([self.points, newer.points]), weights, groups)

    def at_their_largest(self, known: Rows, max_weight: float | None) -> Rows:
        """The rows with the largest weight that a new case near them can have, for the local promise."""
        if self.weights is None or known.weights is None:
            return self
        largest = float(known.weights.max()) if max_weight is None else max_weight
        return replace(self, weights=self.weights.clamp(min=largest))


@dataclass(frozen=True, eq=False)
class Calibration:
    """All calibration rows in order of arrival, and for each group sorted by each column of scores."""

    rows: Rows
    scores: Float[Tensor, "m c"]
    groups: dict[Group, tuple[SortedRows, ...]]

    @classmethod
    def of(cls, rows: Rows, scores: Float[Tensor, "m c"], *, exact: bool = False) -> Calibration:
        """Sort the rows of each group; `exact` is that of :class:`SortedRows`."""
        groups: dict[Group, tuple[SortedRows, ...]] = {}
        for group, indices in rows.by_group():
            some = rows[indices]
            groups[group] = tuple(
                SortedRows.of(some.points, column, ratios=some.weights, exact=exact).numbered(indices)
                for column in scores[indices].T.contiguous()
            )
        return cls(rows, scores, groups)

    def of_group(self, group: Group, column: int = 0) -> SortedRows:
        """The rows of a group, which may be none, sorted by a column of scores."""
        if group in self.groups:
            return self.groups[group][column]
        return SortedRows.of(self.rows.points[:0], self.scores[:0, column])

    def answer(
        self,
        queries: Rows,
        ask: Callable[[Group, SortedRows, Indices], tuple[Tensor, ...]],
        column: int = 0,
    ) -> tuple[Tensor, ...]:
        """What `ask` gives for the queries of each group, by their indices, put together again."""
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


class GlobalConformal:
    """Radii from calibration scores that all count the same, wherever the query is.

    Parameters
    ----------
    quantile : ``"finite_sample"``: the ``ceil((m + 1) level)``-th smallest of m scores, +inf beyond the m-th.
        ``"percentile"``: numpy's plain percentile, without the guarantee, as the paper's figures were made.
    """

    scores_: Float[NDArray, "m c"]

    def __init__(self, quantile: str = "finite_sample") -> None:
        self.quantile = quantile

    def conformalize(self, embeddings: ArrayLike, scores: ArrayLike) -> GlobalConformal:
        """Take the calibration scores, (m,) or several columns (m, c); where the rows are does not matter."""
        check_choice(self.quantile, "quantile", QUANTILES)
        self.scores_ = check_score_columns(scores)
        return self

    def rescored(self, scores: ArrayLike) -> GlobalConformal:
        """A calibration by other scores."""
        return GlobalConformal(self.quantile).conformalize(np.empty((0, 0)), scores)

    def radii(self, embeddings: ArrayLike, asked: Sequence[Asked]) -> Float[NDArray, "n s l"]:
        """The radii of the columns at the levels that are asked, the same for all rows."""
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
    """Scores as columns: finite, one column where they are a vector."""
    if np.ndim(scores) != 2:
        return np.array(check_vector(scores, "scores"))[:, None]
    return np.stack([check_vector(column, "scores") for column in to_numpy(scores).T], axis=1)


def _joined_labels(old: NDArray, new: NDArray) -> NDArray:
    if (old.dtype == object) != (new.dtype == object):
        kinds = ["text" if labels.dtype == object else "numbers" for labels in (old, new)]
        raise InputError(f"groups were {kinds[0]} so far, got {kinds[1]}; give labels of the same kind")
    return np.concatenate([old, new])


def check_rows_given(groups: Labels, weights: Labels, known: Rows) -> None:
    """New rows come with groups and weights exactly when the calibration rows did."""
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
    """New rows have as many coordinates as the calibration rows: a kernel of the user's may have changed."""
    if points.shape[1] != known.points.shape[1]:
        raise InputError(
            f"kernel.coordinates must give {known.points.shape[1]} columns, as it did in conformalize, got "
            f"{points.shape[1]}; conformalize again"
        )


def _check_groups(groups: ArrayLike, n_rows: int) -> NDArray:
    """Labels of groups, all text or all numbers, one for each row."""
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
    """Whole numbers, one for each row, as 64 bits each."""
    array = to_numpy(row_keys)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise InputError(
            f"row_keys must be whole numbers, one for each row, got {array.dtype} of shape {array.shape}"
        )
    check_same_length(rows=np.empty(n_rows), row_keys=array)
    return array.astype(np.uint64)


def _check_weights(weights: ArrayLike, n_rows: int) -> Float[NDArray, "n"]:
    """Likelihood ratios, finite and above 0, one for each row."""
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
    """The rows, none of which may weigh more than `max_weight`."""
    largest = 0.0 if rows.weights is None else float(rows.weights.max())
    if max_weight is not None and largest > max_weight:
        raise InputError(
            f"weights must be at most max_weight={max_weight:g}, got {largest:g}; raise max_weight to the largest "
            "likelihood ratio there can be, on the scale of the weights"
        )
    return rows


def take_apart(conformal: Any) -> dict[str, Any]:
    """What is saved of a LocalConformal: the calibration rows as they came, and nothing that is made of them.

    Its parameters are those with which it was calibrated; a kernel that is still the same may belong to others too.
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
    """Make a loaded LocalConformal whole: its rows are sorted again."""
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
