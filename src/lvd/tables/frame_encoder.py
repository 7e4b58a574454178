"""Tables for methods fitted in Python on a frame: their rows are converted to such a frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from lvd._typing import Bool, NDArray
from lvd._validation import InputError
from lvd.models.frames import FrameColumns
from lvd.tables.column_coding import Column
from lvd.tables.column_values import RowNumbers, check_columns, for_each_column, to_numbers, to_texts
from lvd.tables.dates import to_moments
from lvd.tables.table_encoder import Encoder


@dataclass(frozen=True)
class FrameEncoder(Encoder):
    """The columns of the frame, which the method's own model reads, and the names of its targets.

    The method's support rule detects unseen levels.
    """

    smiles: ClassVar[None] = None
    feature_names: ClassVar[tuple[str, ...]] = ()
    fixes_features: ClassVar[bool] = False

    targets: tuple[str, ...]
    frame: FrameColumns
    as_matrix: bool = False
    """Whether the method was fitted on an array, with names made up for a report."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """Each column by name."""
        return tuple(
            Column(name, kind if kind != "text" else "category")
            for name, kind in zip(self.frame.names, self.frame.kinds, strict=True)
        )

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns that the model reads."""
        return self.frame.names

    @property
    def column_places(self) -> list[tuple[str, list[int]]]:
        """Each column's name with its index."""
        return self.frame.column_places

    def transform(self, table: pa.Table, *, numbers: RowNumbers = None) -> Any:
        """The rows as a frame with the types of `fit`."""
        check_columns(table, self.frame.names)
        kinds = dict(zip(self.frame.names, self.frame.kinds, strict=True))
        levels = dict(zip(self.frame.names, self.frame.categories, strict=True))

        def read(name: str) -> Any:
            if kinds[name] in ("number", "boolean"):
                array = to_numbers(table[name], boolean=kinds[name] == "boolean", numbers=numbers)
                return array.astype(bool) if kinds[name] == "boolean" and not np.isnan(array).any() else array
            if kinds[name] == "date":
                moments = to_moments(table[name], numbers=numbers)
                return (1e6 * np.nan_to_num(moments)).astype("datetime64[us]"), np.isnan(moments)
            if levels[name] and not isinstance(levels[name][0], str):
                return to_numbers(table[name], numbers=numbers)
            return np.array([text or None for text in to_texts(table[name]).to_pylist()], dtype=object)

        found = dict(zip(kinds, for_each_column(list(kinds), read), strict=True))
        if self.as_matrix:
            return np.column_stack(list(found.values()))
        return self.frame.frame(
            {name: _dated(one) if isinstance(one, tuple) else one for name, one in found.items()}
        )

    def to_dict(self) -> dict[str, Any]:
        """Empty: the method stores the frame's columns itself."""
        return {"frame": True}

    @classmethod
    def of_matrix(cls, n_columns: int, targets: tuple[str, ...]) -> FrameEncoder:
        """For a method fitted on an array, with columns ``x1``, ``x2``..."""
        names = tuple(f"x{number + 1}" for number in range(n_columns))
        return cls(targets, FrameColumns.of_numbers(names, targets), as_matrix=True)

    @classmethod
    def of(cls, columns: Any, folder: str) -> FrameEncoder:
        """From the columns stored with a method, if it was fitted on a frame."""
        if not isinstance(columns, FrameColumns):
            raise InputError(
                f"the model in {folder} was fitted on an array, whose columns have no names; fit it on a frame, or "
                "use it in Python, with lvd.load"
            )
        if set(columns.targets) & set(columns.names):
            raise InputError(
                f"the target of the model in {folder} has the name of an input; name y, and fit again"
            )
        return cls(columns.targets, columns)


def _dated(moments: tuple[NDArray, Bool[NDArray, "n"]]) -> NDArray:
    values, missing = moments
    return np.where(missing, np.datetime64("NaT"), values)
