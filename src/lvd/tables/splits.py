"""Splitting rows into a training, a calibration and a test part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from sklearn.utils import _safe_indexing

from lvd._typing import ArrayLike, Float, Int, NDArray, RandomState
from lvd._validation import InputError, seed_from, to_numpy
from lvd.calibration.calibration_rows import MOST_SET_ASIDE

Parts: TypeAlias = tuple[Int[NDArray, "a"], Int[NDArray, "b"], Int[NDArray, "c"]]
"""Row indices of the three parts."""

_LARGEST_SEED = 2**32 - 1


def three_way_split(
    X: ArrayLike,
    y: ArrayLike,
    *,
    sizes: Sequence[float] = (0.6, 0.2, 0.2),
    groups: ArrayLike | None = None,
    random_state: RandomState = None,
) -> tuple[Any, Any, Any, Any, Any, Any]:
    """``X_train, X_calib, X_test, y_train, y_calib, y_test``, each of the type that X or y has.

    With an integer `random_state` and no groups this is the split of the paper's experiments.

    Args:
        X: Inputs: array, data frame, tensor, or list (of texts, say).
        y: Targets, one for each row of X.
        sizes: Shares of the three parts; they add up to 1.
        groups: A label for each row; rows of one label stay together, and the shares are kept as nearly as
            whole groups allow.
        random_state: Seed or generator.
    """
    n = _n_rows(X, "X")
    if _n_rows(y, "y") != n:
        raise InputError(f"X has {n} rows and y has {len(y)}; they must describe the same rows")
    seed = seed_from(random_state)
    if groups is None:
        parts = split_indices(n, seed, sizes=sizes)
    else:
        labels = to_numpy(groups)
        if labels.shape != (n,):
            raise InputError(f"groups must hold one label for each of the {n} rows, got shape {labels.shape}")
        parts = split_group_indices(labels, seed, sizes=sizes)
    X_train, X_calib, X_test, y_train, y_calib, y_test = (
        _safe_indexing(array, part) for array in (X, y) for part in parts
    )
    return X_train, X_calib, X_test, y_train, y_calib, y_test


def usual_sizes(n_rows: int) -> tuple[float, float, float]:
    """60, 20 and 20% for training, calibration and test; for very many rows, no more calibration rows than help."""
    calibrate = min(0.2, MOST_SET_ASIDE / n_rows)
    return 0.8 - calibrate, calibrate, 0.2


def random_parts(n_rows: int, seed: int) -> Parts:
    """A random split of a table's rows."""
    return split_indices(n_rows, seed, sizes=usual_sizes(n_rows))


def split_indices(n: int, seed: int, *, sizes: Sequence[float] = (0.6, 0.2, 0.2)) -> Parts:
    """The paper's split: a permutation by a legacy generator, cut at the rounded shares of `n`."""
    first, second = _cuts(n, sizes)
    if not 0 < first < second < n:
        raise InputError(
            f"{n} rows cannot be split into parts of {', '.join(map(str, sizes))}: one would be empty; "
            "give more rows or other sizes"
        )
    train, calib, test = np.split(_generator(seed).permutation(n), [first, second])
    return train, calib, test


def split_group_indices(
    labels: NDArray, seed: int, *, sizes: Sequence[float] = (0.6, 0.2, 0.2), noun: str = "groups"
) -> Parts:
    """A split that keeps rows with equal labels together; `noun` names the labels in errors.

    The groups are shuffled and cut where the cumulative number of rows is nearest to the shares.
    """
    try:
        names, group_of_row = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise InputError(f"{noun} must hold labels of one kind, all text or all numbers ({error})") from None
    if len(names) < 3:
        raise InputError(
            f"{noun} must hold at least 3 different labels, one for each part, got {len(names)}; split at random "
            "instead"
        )
    rng = _generator(seed)
    order = rng.permutation(len(names))
    return _cut_groups(rng.permutation(len(labels)), group_of_row, order, sizes)


def split_time_indices(
    moments: Float[NDArray, "n"], seed: int, *, sizes: Sequence[float] = (0.6, 0.2, 0.2)
) -> Parts:
    """A split in time: no calibration row before a training row, and no test row before a calibration row.

    Rows of the same moment share a part, in random order.
    """
    names, group_of_row = np.unique(moments, return_inverse=True)
    if len(names) < 3:
        raise InputError(
            f"a split in time needs at least 3 different moments, one for each part, got {len(names)}"
        )
    rows = _generator(seed).permutation(len(moments))
    rows = rows[np.argsort(moments[rows], kind="stable")]
    return _cut_groups(rows, group_of_row, np.arange(len(names)), sizes)


def _cut_groups(
    rows: Int[NDArray, "n"], group_of_row: Int[NDArray, "n"], order: Int[NDArray, "g"], sizes: Sequence[float]
) -> Parts:
    """The rows in this order, each in the part of its group: groups in their `order` are cut where the
    cumulative number of rows is nearest to the shares, and no part is empty."""
    ends = np.cumsum(np.bincount(group_of_row)[order])
    first, second = (int(np.argmin(np.abs(ends - cut))) + 1 for cut in _cuts(len(rows), sizes))
    first = min(first, len(ends) - 2)
    second = min(max(second, first + 1), len(ends) - 1)
    part_of_group = np.empty(len(order), dtype=np.intp)
    part_of_group[order] = np.repeat([0, 1, 2], np.diff([0, first, second, len(order)]))
    part_of_row = part_of_group[group_of_row[rows]]
    return rows[part_of_row == 0], rows[part_of_row == 1], rows[part_of_row == 2]


def _cuts(n: int, sizes: Sequence[float]) -> tuple[int, int]:
    """Where the second and third parts begin."""
    shares = np.asarray(sizes, dtype=np.float64)
    if shares.shape != (3,) or not (shares > 0).all() or not np.isclose(shares.sum(), 1.0):
        raise InputError(f"sizes must be three positive shares that add up to 1, got {tuple(sizes)}")
    first, second, _ = np.round(np.cumsum(shares) * n).astype(int)
    return int(first), int(second)


def _generator(seed: int) -> np.random.RandomState:
    if not 0 <= seed <= _LARGEST_SEED:
        raise InputError(f"the seed of a split must lie between 0 and {_LARGEST_SEED}, got {seed}")
    return np.random.RandomState(seed)


def _n_rows(array: ArrayLike, name: str) -> int:
    try:
        return len(array)
    except TypeError:
        raise InputError(
            f"{name} must be an array, frame, tensor or list, got {type(array).__name__}"
        ) from None
