"""From a table to the matrix of features and the targets, the same way in fit and in predict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, get_args

import numpy as np
import pyarrow as pa

from lvd._typing import Bool, Float, NDArray
from lvd._validation import InputError, check_choice
from lvd.tables.columns import Column, Kind, encode_column, for_each_column, learn_column
from lvd.tables.targets import as_table, check_names, check_targets_vary, name_targets, read_targets


@dataclass(frozen=True)
class TableEncoder:
    """What `fit` learned about a table: its targets, and how each other column becomes features.

    Numbers pass through, true and false become 1 and 0, text and categorical columns are one-hot coded with
    their categories in sorted order. Scaling is left to the model.

    Parameters
    ----------
    targets : tuple of str
        Names of the target columns.
    columns : tuple of Column
        The columns that features are made of, in the order of the features.
    """

    repeated: ClassVar[str] = "have the inputs of a training row"
    """What is said of rows that are known from training."""

    targets: tuple[str, ...]
    columns: tuple[Column, ...]

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

        With ``impute="median"`` missing numbers are replaced with the median of their column, and missing
        categories are a category of their own where this table has some; without it both are refused.
        """
        if impute is not None:
            check_choice(impute, "impute", ("median",))
        targets = name_targets(target)
        check_names(table, [*targets, *drop])
        if both := [name for name in targets if name in drop]:
            raise InputError(f"column {both[0]!r} is the target and cannot be dropped; name another one")
        names = [name for name in table.column_names if name not in {*targets, *drop}]
        if not names:
            raise InputError(
                "no column is left to predict from besides the target and those dropped; keep one"
            )
        check_targets_vary(table, targets)
        columns = for_each_column(
            names, lambda name: learn_column(name, table[name], impute=impute is not None), may_drop=True
        )
        return cls(targets, tuple(columns))

    @property
    def feature_names(self) -> list[str]:
        """Names of the features: the column, or ``column=category``."""
        return [name for column in self.columns for name in column.feature_names]

    @property
    def column_types(self) -> dict[str, pa.DataType]:
        """What a CSV file's columns are to be read as; see `read_table` and `iter_batches`."""
        return {column.name: column.arrow_type for column in self.columns}

    def usable(self, table: pa.Table | pa.RecordBatch, *, first_row: int = 1) -> Bool[NDArray, "n"]:
        """All rows; :meth:`transform` refuses what it cannot code."""
        return np.ones(table.num_rows, dtype=bool)

    def transform(self, table: pa.Table | pa.RecordBatch, *, first_row: int = 1) -> Float[NDArray, "n p"]:
        """The features of a table, or of a batch that starts at row `first_row` of its table."""
        table = as_table(table)
        columns = {column.name: column for column in self.columns}
        check_names(table, list(columns))
        blocks = for_each_column(
            list(columns), lambda name: encode_column(columns[name], table[name], first_row=first_row)
        )
        return np.concatenate(blocks, axis=1)

    def target(self, table: pa.Table | pa.RecordBatch, *, first_row: int = 1) -> Float[NDArray, "n *t"]:
        """The target as a vector, or several as the columns of a matrix."""
        return read_targets(table, self.targets, first_row=first_row)

    def to_dict(self) -> dict[str, Any]:
        """All there is to know, in types that JSON has."""
        columns = [asdict(column) | {"categories": list(column.categories)} for column in self.columns]
        return {"targets": list(self.targets), "columns": columns}

    @classmethod
    def from_dict(cls, content: Any) -> TableEncoder:
        """The encoder that `to_dict` described; anything else is refused."""
        try:
            targets = check_texts(content["targets"])
            columns = tuple(_column_from_dict(entry) for entry in content["columns"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(
                f"the description of the table's columns is damaged ({error!r}); save it again"
            ) from None
        names = [*targets, *(column.name for column in columns)]
        if not targets or not columns or len(set(names)) < len(names):
            raise InputError(
                "the description of the table's columns lacks some or repeats one; save it again"
            )
        return cls(targets, columns)


def _column_from_dict(entry: Any) -> Column:
    (name,), categories = check_texts([entry["name"]]), check_texts(entry["categories"])
    kind, median = entry["kind"], entry["median"]
    if kind not in get_args(Kind) or (kind == "category") != bool(categories):
        raise ValueError(f"kind {kind!r} with {len(categories)} categories")
    if len(set(categories)) < len(categories):
        raise ValueError("repeated categories")
    if median is not None and not math.isfinite(median):
        raise ValueError(f"median {median!r}")
    return Column(name, kind, categories, None if median is None else float(median))


def check_texts(values: Any) -> tuple[str, ...]:
    """A list of texts out of JSON, as a tuple."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"{values!r} is not a list of texts")
    return tuple(values)
