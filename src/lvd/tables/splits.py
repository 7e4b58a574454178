"""Which rows train, calibrate and test: at random, in time or by groups; and how a model recognises them later.

Arrays are split here, also where Arrow is not installed; :mod:`lvd.tables.inputs` reads a table's column for it.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np
from sklearn.utils import _safe_indexing

from lvd._typing import ArrayLike, Bool, Float, Int, NDArray, RandomState
from lvd._validation import InputError, Parameter, check_texts, row_digests, seed_from, to_numpy
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


@dataclass(frozen=True)
class RowSplit:
    """How rows are divided: at random, in time by a column, or by a column's groups, which stay together.

    Cells of a SMILES column may be divided by scaffold. In time, `gap` seconds before each later part are left
    out, in which earlier rows may contain information about later ones, and `n_gap` rows next to each held-out
    block.
    """

    kind: str = "random"
    column: str | None = None
    gap: float = 0.0
    n_gap: int = 0

    @classmethod
    def parse(cls, text: str) -> RowSplit:
        """Parse ``random``, ``scaffold``, ``time:COLUMN`` or ``group:COLUMN``."""
        kind, colon, column = text.partition(":")
        if (kind in ("random", "scaffold") and not colon) or (kind in ("time", "group") and column):
            return cls(kind, column or None)
        raise InputError(
            Parameter("split"),
            f" must be random, time:COLUMN, group:COLUMN, or, with a column of SMILES, scaffold; got {text!r}",
        )

    def __str__(self) -> str:
        return self.kind if self.column is None else f"{self.kind}:{self.column}"


AT_RANDOM = RowSplit()


@dataclass(frozen=True, eq=False)
class KeptRows:
    """What a model stores about its table if the seed alone does not determine the split.

    The numbers of the calibration and test rows, counting from 1. `n_added` rows came later, by update: their
    numbers continue after the last row of the table of fit. If a single column is read, `cells` are those of
    the calibration rows, so that neighbours can be shown without the table.
    """

    calibration: Int[NDArray, "m"]
    test: Int[NDArray, "k"]
    cells: tuple[str, ...] | None = None
    n_added: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The complete state, in JSON types."""
        rows: dict[str, Any] = {"calibration": self.calibration.tolist(), "test": self.test.tolist()}
        if self.n_added:
            rows["added"] = self.n_added
        return rows if self.cells is None else {**rows, "smiles": list(self.cells)}

    @classmethod
    def from_dict(cls, content: Any, n_rows: Any, *, of_cells: bool) -> KeptRows:
        """Restore the output of `to_dict` for a table of `n_rows`; anything else is an error."""
        try:
            added = content.get("added", 0)
            calibration = _row_numbers(content["calibration"], n_rows + added)
            test = _row_numbers(content["test"], n_rows)
            cells = check_texts(content["smiles"]) if of_cells else None
            if type(added) is not int or added < 0 or np.intersect1d(calibration, test).size:
                raise ValueError("the rows overlap, or a count is wrong")
            if cells is not None and len(cells) != len(calibration):
                raise ValueError(f"{len(cells)} cells of {len(calibration)} rows")
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"the list of the model's rows is damaged ({error!r}); fit again") from None
        return cls(calibration, test, cells, added)


def _row_numbers(values: Any, n_rows: Any) -> Int[NDArray, "m"]:
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise TypeError("row numbers must be integers")
    numbers = np.array(values, dtype=np.int64)
    if len(np.unique(numbers)) < len(numbers) or not ((numbers >= 1) & (numbers <= n_rows)).all():
        raise ValueError(f"row numbers must lie between 1 and {n_rows}, each once")
    return numbers


def row_ids(X: Any, y: Float[NDArray, "n *t"], places: Sequence[int] | None = None) -> Int[NDArray, "n t"]:
    """A digest of each row's inputs and one of each target; 0 for missing targets.

    The name, column order and format of a table make no difference, nor do columns that the model does not
    read. `places` are the indices of the targets among the model's, by default all of them.
    """
    inputs, columns = row_digests(X).tolist(), y.reshape(len(y), -1).T + 0.0  # -0.0 equals 0.0
    ids = [
        row_digests(list(zip(inputs, repeat(place), column.tolist(), strict=False)))
        for place, column in zip(range(len(columns)) if places is None else places, columns, strict=True)
    ]
    return np.where(np.isnan(columns), 0, np.stack(ids).view(np.int64)).T


def repeats_earlier(ids: Int[NDArray, "n t"]) -> Bool[NDArray, "n"]:
    """Which rows repeat the inputs and a target of an earlier one."""
    again = np.ones(ids.shape, dtype=bool)
    for number, column in enumerate(ids.T):
        again[np.unique(column, return_index=True)[1], number] = False
    return np.any(again & (ids != 0), axis=1)


@dataclass(frozen=True, eq=False)
class SeenRows:
    """The :func:`row_ids` of the training rows, and of the current calibration rows, in order."""

    train: Int[NDArray, "k t"]
    calibration: Int[NDArray, "m t"]

    def trained(self, ids: Int[NDArray, "n s"]) -> Bool[NDArray, "n"]:
        """Which rows are training rows."""
        return _holds(self.train, ids)

    def calibrated(self, ids: Int[NDArray, "n s"]) -> Bool[NDArray, "n"]:
        """Which rows are calibration rows."""
        return _holds(self.calibration, ids)

    def with_more(self, ids: Int[NDArray, "n t"], n_newest: int | None) -> SeenRows:
        """The state after these rows have joined the calibration rows, of which the newest are kept."""
        return replace(self, calibration=np.concatenate([self.calibration, ids])[-(n_newest or 0) :])

    def to_dict(self) -> dict[str, str]:
        """The complete state, in JSON types."""
        return {
            name: base64.b64encode(ids.astype("<i8").tobytes()).decode() for name, ids in vars(self).items()
        }

    @classmethod
    def from_dict(cls, content: Any, n_targets: int, n_calib: int) -> SeenRows:
        """Restore the output of `to_dict` for this many targets and calibration rows; anything else is an error."""
        try:
            train, calibration = (
                np.frombuffer(base64.b64decode(content[name], validate=True), "<i8").reshape(-1, n_targets)
                for name in ("train", "calibration")
            )
            if len(calibration) != n_calib:
                raise ValueError(f"{len(calibration)} of {n_calib} calibration rows")
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"the record of the model's rows is damaged ({error!r}); fit again") from None
        return cls(train, calibration)


def _holds(known: Int[NDArray, "m t"], ids: Int[NDArray, "n s"]) -> Bool[NDArray, "n"]:
    return np.any(np.isin(ids, known) & (ids != 0), axis=1)
