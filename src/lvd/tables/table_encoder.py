"""From a table to the matrix of features and the targets, the same way in fit and in predict.

How single columns are coded is in `column_coding`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from lvd._typing import Bool, Float, NDArray
from lvd._validation import InputError, check_choice
from lvd.tables.column_coding import (
    Column,
    check_texts,
    column_from_dict,
    column_to_dict,
    encode_column,
    features_of_missing,
    learn_column,
    level_index,
    level_limit,
)
from lvd.tables.column_values import (
    as_table,
    check_columns,
    count,
    for_each_column,
    list_rows,
    to_numbers,
)
from lvd.tables.reading import BATCH_ROWS

DAMAGED = "the description of the table's columns is damaged"


@dataclass(frozen=True)
class TableEncoder:
    """What `fit` learned about a table: its targets, and how each other column becomes features.

    Numbers pass through, true and false become 1 and 0, and dates their parts. Text and categorical columns are
    one-hot coded with their categories in sorted order; where there are more than `MAX_CATEGORIES`, the frequent
    ones, and the others share one feature beside the frequency of each. Scaling is left to the model.

    Parameters
    ----------
    targets : tuple of str
        Names of the target columns.
    columns : tuple of Column
        The columns that features are made of, in the order of the features.
    fills : bool
        Whether medians stand for missing numbers; else they are NaN, for models that take them as they are.
    """

    repeated: ClassVar[str] = "have the inputs of a training row"
    """What is said of rows that are known from training."""
    batch_rows: ClassVar[int] = BATCH_ROWS
    drawn: ClassVar[None] = None
    case: ClassVar[str] = "row"
    """What rows with the same inputs are rows of."""
    kept_in: ClassVar[str] = "rows"
    """Under which name the model's rows are saved."""
    added: ClassVar[tuple[str, ...]] = ()
    """The columns of predictions that tell of the nearest cell."""
    every_target: ClassVar[bool] = True
    """Whether a row needs all targets to be of use."""

    targets: tuple[str, ...]
    columns: tuple[Column, ...]
    fills: bool = True

    @classmethod
    def fit(
        cls,
        table: pa.Table,
        *,
        target: str | Sequence[str],
        drop: Sequence[str] = (),
        impute: str | None = None,
    ) -> TableEncoder:
        """Learn the coding of all columns but `target` and `drop`, and check the targets.

        With ``impute="median"`` missing numbers are taken, and missing categories are a category of their own where
        this table has some; without it both are refused.
        """
        if impute is not None:
            check_choice(impute, "impute", ("median",))
        targets = name_targets(target)
        check_columns(table, [*targets, *drop])
        if both := [name for name in targets if name in drop]:
            raise InputError(f"column {both[0]!r} is the target and cannot be dropped; name another one")
        names = [name for name in table.column_names if name not in {*targets, *drop}]
        if not names:
            raise InputError(
                "no column is left to predict from besides the target and those dropped; keep one"
            )
        check_targets_vary(table, targets)
        limit = level_limit(table.select(names))
        columns = for_each_column(
            names,
            lambda name: learn_column(name, table[name], impute=impute is not None, limit=limit),
            may_drop=True,
        )
        return cls(targets, tuple(columns))

    @property
    def feature_names(self) -> list[str]:
        """Names of the features: the column, or ``column=category``."""
        return [name for column in self.columns for name in column.feature_names]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns that the model reads."""
        return tuple(column.name for column in self.columns)

    @property
    def column_types(self) -> dict[str, pa.DataType]:
        """What a CSV file's columns are to be read as; see `read_table` and `iter_batches`."""
        return {column.name: column.arrow_type for column in self.columns}

    def usable(self, table: pa.Table | pa.RecordBatch, *, first_row: int = 1) -> Bool[NDArray, "n"]:
        """All rows; :meth:`transform` refuses what it cannot code."""
        return np.ones(table.num_rows, dtype=bool)

    def skipping_invalid(self) -> TableEncoder:
        """Refused: there are no cells that the model alone can judge."""
        raise InputError("skip_invalid= is for models fitted with column=; leave it out")

    def unseen(self, table: pa.Table | pa.RecordBatch) -> dict[str, Bool[NDArray, "n"]]:
        """For each column with levels that fit has not seen, the rows that hold them."""
        table = as_table(table)
        masks = {
            column.name: ~level_index(column, table[column.name])[1]
            for column in self.columns
            if column.kind == "category"
        }
        return {name: mask for name, mask in masks.items() if mask.any()}

    def labels(self, table: pa.Table | pa.RecordBatch) -> None:
        """Rows of several columns have no names."""

    def searched(self, cells: Sequence[str]) -> None:
        """Rows of several columns keep no cells."""

    def transform(self, table: pa.Table | pa.RecordBatch, *, first_row: int = 1) -> Float[NDArray, "n p"]:
        """The features of a table, or of a batch that starts at row `first_row` of its table."""
        table = as_table(table)
        columns = {column.name: column for column in self.columns}
        check_columns(table, list(columns))
        blocks = for_each_column(
            list(columns), lambda name: encode_column(columns[name], table[name], first_row=first_row)
        )
        X = np.concatenate(blocks, axis=1)
        return self.filled(X) if self.fills else X

    def filled(self, X: Float[NDArray, "n p"]) -> Float[NDArray, "n p"]:
        """The features with those of the columns' medians in place of NaN."""
        return np.where(np.isnan(X), np.concatenate([features_of_missing(one) for one in self.columns]), X)

    def target(self, table: pa.Table | pa.RecordBatch, *, first_row: int = 1) -> Float[NDArray, "n *t"]:
        """The target as a vector, or several as the columns of a matrix."""
        return read_targets(table, self.targets, first_row=first_row)

    def to_dict(self) -> dict[str, Any]:
        """All there is to know, in types that JSON has."""
        columns = [column_to_dict(one) for one in self.columns]
        gaps = {} if self.fills else {"fills": False}  # what fills them is saved as it always was
        return {"targets": list(self.targets), "columns": columns} | gaps

    @classmethod
    def from_dict(cls, content: Any) -> TableEncoder:
        """The encoder that `to_dict` described; anything else is refused."""
        try:
            targets = check_texts(content["targets"])
            columns = tuple(column_from_dict(entry) for entry in content["columns"])
            fills = content.get("fills", True)  # as models of older versions do
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"{DAMAGED} ({error!r}); save the model again") from None
        names = [*targets, *(column.name for column in columns)]
        if not targets or not columns or len(set(names)) < len(names) or not isinstance(fills, bool):
            raise InputError(f"{DAMAGED}: a name is missing or repeated; save the model again")
        return cls(targets, columns, fills)


def name_targets(target: str | Sequence[str]) -> tuple[str, ...]:
    """The names of the targets, of which there is at least one, and none twice."""
    targets = (target,) if isinstance(target, str) else tuple(target)
    if not targets or len(set(targets)) < len(targets):
        raise InputError(f"target must name at least one column, and each once, got {list(targets)}")
    return targets


def labelled_rows(
    table: pa.Table | pa.RecordBatch, targets: Sequence[str], *, every: bool = True, first_row: int = 1
) -> Bool[NDArray, "n"]:
    """Which rows have a value of every target, or of any."""
    check_columns(table, targets)
    arrays = for_each_column(targets, lambda name: _target_numbers(table, name, first_row), noun="target")
    known = ~np.isnan(np.stack(arrays))
    return known.all(axis=0) if every else known.any(axis=0)


def check_targets_vary(table: pa.Table, targets: Sequence[str]) -> None:
    """Each target has values, and not the same in every row."""
    for_each_column(targets, lambda name: _check_varies(_target_numbers(table, name, 1)), noun="target")


def read_targets(
    table: pa.Table | pa.RecordBatch, targets: Sequence[str], *, missing: bool = False, first_row: int = 1
) -> Float[NDArray, "n *t"]:
    """The target as a vector, or several as the columns of a matrix; rows count from `first_row` on.

    A missing value is an error, or, with `missing`, NaN.
    """
    check_columns(table, targets)
    read = _target_numbers if missing else _read_target
    arrays = for_each_column(targets, lambda name: read(table, name, first_row), noun="target")
    return arrays[0] if len(arrays) == 1 else np.stack(arrays, axis=1)


def _target_numbers(table: pa.Table | pa.RecordBatch, name: str, first_row: int) -> Float[NDArray, "n"]:
    values = as_table(table)[name]
    if pa.types.is_boolean(values.type):  # as text they are refused, too
        raise InputError("must be a number, got true and false; write them as 1 and 0")
    return to_numbers(values, first_row=first_row)


def _read_target(table: pa.Table | pa.RecordBatch, name: str, first_row: int) -> Float[NDArray, "n"]:
    array = _target_numbers(table, name, first_row)
    missing = np.isnan(array)
    if missing.any():
        raise InputError(
            f"{count(missing, 'missing value')} ({list_rows(missing, first_row)}); remove these rows"
        )
    return array


def _check_varies(values: Float[NDArray, "n"]) -> None:
    target = values[~np.isnan(values)]
    if not len(target):
        raise InputError("has no values at all; choose another target")
    if (target == target[0]).all():
        raise InputError(
            f"is {target[0]:g} in every row, so there is nothing to predict; choose another target"
        )
