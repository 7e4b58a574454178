"""Rows as the caller gives them: located points with, on request, likelihood ratios and groups."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from lvd._typing import ArrayLike, Float, Int, NDArray
from lvd._validation import InputError, check_positive, check_same_length, check_vector, to_numpy

Group = Hashable
ALL: Group = None
"""The one group of rows that came without groups."""
Indices: TypeAlias = Int[Tensor, "_"] | slice
"""Which rows: their numbers, or all of them."""


@dataclass(frozen=True)
class Rows:
    """Rows in order of arrival; `weights`, `groups` and `keys` are None where none were given."""

    points: Float[Tensor, "n k"]
    weights: Float[Tensor, "n"] | None
    groups: NDArray | None
    keys: NDArray | None = None

    @property
    def self_weights(self) -> Float[Tensor, "n"]:
        """The likelihood ratio of each row, 1 where none was given."""
        return self.points.new_ones(len(self.points)) if self.weights is None else self.weights

    def at(self, indices: Indices) -> tuple[Float[Tensor, "g k"], Float[Tensor, "g"] | None]:
        """Points of some of the rows and, where they were given, their likelihood ratios."""
        return self.points[indices], None if self.weights is None else self.weights[indices]

    def keys_at(self, indices: Indices) -> NDArray | None:
        """The keys of some of the rows."""
        if self.keys is None:
            return None
        return self.keys[indices if isinstance(indices, slice) else indices.cpu().numpy()]

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
        points = torch.cat([self.points, newer.points])
        weights = None if self.weights is None else torch.cat([self.weights, newer.self_weights])
        groups = None
        if self.groups is not None and newer.groups is not None:
            groups = _joined_labels(self.groups, newer.groups)
        return Rows(points, weights, groups)

    def newest(self, count: int) -> Rows:
        """The rows that came last."""
        return Rows(
            self.points[-count:],
            None if self.weights is None else self.weights[-count:],
            None if self.groups is None else self.groups[-count:],
        )


def _joined_labels(old: NDArray, new: NDArray) -> NDArray:
    if (old.dtype == object) != (new.dtype == object):
        kinds = ["text" if labels.dtype == object else "numbers" for labels in (old, new)]
        raise InputError(f"groups were {kinds[0]} so far, got {kinds[1]}; give labels of the same kind")
    return np.concatenate([old, new])


def check_rows_given(groups: ArrayLike | None, weights: ArrayLike | None, known: Rows) -> None:
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


def check_groups(groups: ArrayLike, n_rows: int) -> NDArray:
    """Labels of groups, all text or all numbers, one for each row."""
    array = to_numpy(groups)
    if array.ndim != 1:
        raise InputError(f"groups must be 1-d, one label for each row, got shape {array.shape}")
    check_same_length(rows=np.empty(n_rows), groups=array)
    if array.dtype.kind == "U":
        return array.astype(object)
    if array.dtype.kind in "biuf" and np.isfinite(array).all():
        return array
    if array.dtype.kind == "O" and all(type(label) is str for label in array):
        return array
    raise InputError(
        "groups must be all text or all numbers, without missing values; name rows of no group 'none', for instance"
    )


def check_keys(row_keys: ArrayLike, n_rows: int) -> NDArray:
    """Whole numbers, one for each row, as 64 bits each."""
    array = to_numpy(row_keys)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise InputError(
            f"row_keys must be whole numbers, one for each row, got {array.dtype} of shape {array.shape}"
        )
    check_same_length(rows=np.empty(n_rows), row_keys=array)
    return array.astype(np.uint64)


def check_weights(weights: ArrayLike, n_rows: int) -> Float[NDArray, "n"]:
    """Likelihood ratios, finite and above 0, one for each row."""
    array = check_vector(weights, "weights")
    check_same_length(rows=np.empty(n_rows), weights=array)
    if not (array > 0.0).all():
        raise InputError(f"weights must be likelihood ratios above 0, got {array.min():g}; remove such rows")
    return array


def check_max_weight(max_weight: float | None) -> float | None:
    """The largest likelihood ratio there can be, where it is known."""
    if max_weight is not None:
        check_positive(max_weight, "max_weight")
    return max_weight
