"""The columns of the frame a method was fitted on, stored with it so that new rows are read the same way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from lvd._validation import InputError
from lvd.models.coding import is_category, is_missing

FrameKind: TypeAlias = Literal["number", "boolean", "date", "category", "text"]
TYPES: dict[str, FrameKind] = {"b": "boolean", "M": "date", "i": "number", "u": "number", "f": "number"}


@dataclass(frozen=True, eq=False)
class FrameColumns:
    """Names, kinds and types of the columns, and the categories of the categorical ones.

    `targets` are the target names: the name of the series y or of its columns, else ``y``.
    """

    names: tuple[str, ...]
    kinds: tuple[FrameKind, ...]
    types: tuple[str, ...]
    categories: tuple[tuple[Any, ...], ...]
    targets: tuple[str, ...] = ("y",)

    @classmethod
    def of(cls, X: Any, y: Any) -> FrameColumns | None:
        """The columns of a pandas frame; None if they have no names of their own."""
        names = [str(name) for name in X.columns]
        if not all(isinstance(name, str) for name in X.columns) or len(set(names)) < len(names):
            return None
        columns = [X[name] for name in names]
        categories = tuple(
            tuple(column.cat.categories.tolist()) if _has_levels(column) else () for column in columns
        )
        types = tuple(str(column.dtype) for column in columns)
        return cls(tuple(names), tuple(map(_kind, columns)), types, categories, target_names(y))

    @classmethod
    def of_numbers(cls, names: tuple[str, ...], targets: tuple[str, ...]) -> FrameColumns:
        """The numeric columns."""
        kinds: list[FrameKind] = ["number"] * len(names)
        return cls(names, tuple(kinds), ("float64",) * len(names), ((),) * len(names), targets)

    @property
    def column_places(self) -> list[tuple[str, list[int]]]:
        """Each column's name with its index."""
        return [(name, [place]) for place, name in enumerate(self.names)]

    def read(self, X: Any) -> Any:
        """A dict of columns or a list of dicts as a frame; anything else unchanged."""
        if isinstance(X, Mapping):
            return self.frame({name: X[name] for name in self._check_names(X)})
        if isinstance(X, Sequence) and len(X) and all(isinstance(row, Mapping) for row in X):
            for row in X:
                self._check_names(row)
            return self.frame({name: [row[name] for row in X] for name in self.names})
        return X

    def frame(self, columns: Mapping[str, Any]) -> Any:
        """A frame with these columns, in the types of `fit` where the values allow it."""
        import pandas as pd  # the model was fitted on a pandas frame

        return pd.DataFrame({name: self._column(name, columns[name]) for name in self.names})

    def _check_names(self, given: Mapping[str, Any]) -> tuple[str, ...]:
        if lacking := [name for name in self.names if name not in given]:
            raise InputError(
                f"X has no column {', '.join(map(repr, lacking))}; give those of fit, missing cells as None"
            )
        return self.names

    def _column(self, name: str, values: Any) -> Any:
        import pandas as pd

        place = self.names.index(name)
        kind, dtype, levels = self.kinds[place], self.types[place], self.categories[place]
        series = pd.Series(values, name=name).reset_index(drop=True)
        if kind == "category":
            new = [one for one in pd.unique(series.dropna()) if one not in set(levels)]
            return pd.Series(pd.Categorical(series, categories=[*levels, *new]), name=name)
        try:
            if kind == "date":
                return pd.to_datetime(series)
            if kind == "text":
                return series.astype(object).where(series.notna(), None).astype(dtype)
            return series.astype(
                "float64" if series.isna().any() and not dtype.startswith("float") else dtype
            )
        except (TypeError, ValueError) as error:
            raise InputError(
                f"column {name!r} held {kind}s in fit, and holds something else ({error})"
            ) from None

    def _check_parameters(self) -> None:
        lengths = {len(part) for part in (self.names, self.kinds, self.types, self.categories)}
        if len(lengths) > 1 or not set(self.kinds) <= set(get_args(FrameKind)):
            raise InputError("the names and types of the columns do not belong together")


def _has_levels(column: Any) -> bool:
    return is_category(column) and hasattr(column, "cat")


def _kind(column: Any) -> FrameKind:
    if is_category(column):
        return "category"
    kind: FrameKind = TYPES.get(getattr(column.dtype, "kind", "O"), "text")
    if kind == "text" and all(_is_numeric(one) for one in column.tolist()):
        return "number"
    return kind


def _is_numeric(cell: Any) -> bool:
    return is_missing(cell) or isinstance(cell, int | float | np.number)


def target_names(y: Any) -> tuple[str, ...]:
    """The names of y's columns, else ``y``, or ``y1``, ``y2``... for several targets."""
    columns = getattr(y, "columns", None)
    if columns is not None:
        return tuple(map(str, columns))
    name = getattr(y, "name", None)
    if isinstance(name, str):
        return (name,)
    shape: Any = np.shape(y)
    return (
        ("y",) if len(shape) == 1 or shape[1] == 1 else tuple(f"y{number + 1}" for number in range(shape[1]))
    )
