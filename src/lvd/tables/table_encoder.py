"""From a table to the feature matrix and the targets, the same way in fit and in predict.

`column_coding` codes single columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from lvd._typing import Bool, Float, Int, NDArray
from lvd._validation import InputError, Parameter, check_choice, check_texts
from lvd.models.coding import NEW_LEVEL
from lvd.store import register
from lvd.tables.column_coding import (
    Column,
    column_from_dict,
    column_to_dict,
    encode_column,
    features_of_missing,
    learn_column,
    learn_from,
    level_index,
)
from lvd.tables.column_values import RowNumbers, as_columns, check_columns, for_each_column, to_numbers
from lvd.tables.dates import DateOrder
from lvd.tables.reading import BATCH_ROWS

register(Column)
DAMAGED = "the description of the table's columns is damaged"

EXAMPLES = 5
"""How many unseen levels to name per column."""


class Encoder:
    """The interface of tables of features, frames and molecules, with defaults that suit most tables."""

    repeated: ClassVar[str] = "have the inputs of a training row"
    """How messages describe rows known from training."""
    batch_rows: ClassVar[int] = BATCH_ROWS
    case: ClassVar[str] = "row"
    """How messages call one row."""
    kept_in: ClassVar[str] = "rows"
    """The name under which the model's rows are saved."""
    added: ClassVar[tuple[str, ...]] = ()
    """Prediction columns that describe the nearest calibration row."""
    fixes_features: ClassVar[bool] = True
    """Whether the features determine the inputs, rather than the method's own model."""
    every_target: ClassVar[bool] = True
    """Whether a row needs all targets to be usable."""
    targets: tuple[str, ...]

    def usable(self, table: pa.Table, *, numbers: RowNumbers = None) -> Bool[NDArray, "n"]:
        """Which rows the model can read: all; `transform` raises for what it cannot code."""
        return np.ones(table.num_rows, dtype=bool)

    def unseen(self, table: pa.Table) -> dict[str, Bool[NDArray, "n"]]:
        """For each column with unseen levels, the rows that hold them."""
        return {}

    def filled(self, X: Any) -> Any:
        """The inputs with missing values filled in, if the encoder does that."""
        return X

    def target(self, table: pa.Table) -> Float[NDArray, "n *t"]:
        """The target as a vector, or several as a matrix; missing values are NaN."""
        return read_targets(table, self.targets)


@dataclass(frozen=True)
class TableEncoder(Encoder):
    """What `fit` learned about a table: its targets, and how each other column becomes features.

    Numbers pass through, true and false become 1 and 0, and dates their parts. Text and categorical columns are
    one-hot coded with sorted categories; beyond `MAX_CATEGORIES` only the frequent ones are, and the others
    share one feature, next to each level's frequency. Scaling is left to the model.

    Parameters
    ----------
    targets : tuple of str
        Names of the target columns.
    columns : tuple of Column
        The columns that features are made from, in feature order.
    fills : bool
        Whether missing numbers are replaced by medians; otherwise they are NaN, for models that accept them.
    """

    smiles: ClassVar[None] = None
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
        date_format: DateOrder | None = None,
    ) -> TableEncoder:
        """Learn the coding of all columns except `target` and `drop`, and check the targets.

        With ``impute="median"`` missing numbers are accepted, and missing categories are a category of their
        own if this table has some; without it both are errors.
        """
        if impute is not None:
            check_choice(impute, "impute", ("median",))
        targets = name_targets(target)
        check_columns(table, [*targets, *drop])
        if both := [name for name in targets if name in drop]:
            raise InputError(f"column {both[0]!r} is the target and cannot be dropped; name another one")
        names = [name for name in table.column_names if name not in {*targets, *drop}]
        check_some_left(names, {})
        check_targets_vary(table, targets)
        columns = for_each_column(
            names,
            lambda name: learn_column(name, table[name], impute=impute is not None, date_format=date_format),
            may_drop=True,
        )
        return cls(targets, learn_from(columns, table))

    @property
    def feature_names(self) -> list[str]:
        """The feature names: the column, or ``column=category``."""
        return [name for column in self.columns for name in column.feature_names]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns that the model reads."""
        return tuple(column.name for column in self.columns)

    def unseen(self, table: pa.Table) -> dict[str, Bool[NDArray, "n"]]:
        """For each column with levels unseen in fit, the rows that hold them."""
        masks = {
            column.name: ~level_index(column, table[column.name])[1]
            for column in self.columns
            if column.kind == "category"
        }
        return {name: mask for name, mask in masks.items() if mask.any()}

    def transform(
        self, table: pa.Table, *, numbers: RowNumbers = None, rows: Int[NDArray, "k"] | None = None
    ) -> Float[NDArray, "n p"]:
        """The features of a table, or of the `rows` at these positions, whose numbers in the whole table are given.

        They are written column by column, so that there is no second copy of them.
        """
        places = self.feature_places()
        check_columns(table, [column.name for column, _ in places])
        own = {column.name: (column, slice(own[0], own[-1] + 1)) for column, own in places}
        X = np.empty((table.num_rows if rows is None else len(rows), sum(len(own) for _, own in places)))

        def encode(name: str) -> None:
            column, features = own[name]
            values = table[name] if rows is None else table[name].take(pa.array(rows))
            X[:, features] = encode_column(column, values, numbers=numbers)

        for_each_column(list(own), encode)
        return self.filled(X) if self.fills else X

    def read(self, X: Any) -> Any:
        """The features of a frame, a dict of columns or a list of dicts; an array already holds features.

        A level unseen in fit gets the features :data:`NEW_LEVEL`.
        """
        table = as_columns(X)
        if table is None:
            return X
        features = self.transform(table)
        masks = self.unseen(table)
        names = [column.name for column in self.columns if column.kind == "category"]
        for name, places in zip(names, self.level_groups, strict=True):
            if name in masks:
                features[np.ix_(masks[name], np.array(places))] = NEW_LEVEL
        return features

    @property
    def level_places(self) -> Int[NDArray, "k"]:
        """The indices of features that code levels."""
        return np.array([place for group in self.level_groups for place in group], dtype=np.int64)

    @property
    def level_groups(self) -> list[list[int]]:
        """For each column with levels, the features of which at least one is non-zero unless the level is new."""
        pairs = [pair for pair in self.feature_places() if pair[0].kind == "category"]
        # A level's frequency, which follows the rare flag, separates rare levels from unseen ones.
        counts = [len(column.categories) for column, _ in pairs]
        return [own[:n] + own[n + 1 : n + 2] for n, (_, own) in zip(counts, pairs, strict=True)]

    def feature_places(self) -> list[tuple[Column, list[int]]]:
        """Each column with the indices of its features."""
        ends = np.cumsum([len(column.feature_names) for column in self.columns]).tolist()
        starts = [0, *ends[:-1]]
        return [(column, [*range(*pair)]) for column, *pair in zip(self.columns, starts, ends, strict=True)]

    @property
    def column_places(self) -> list[tuple[str, list[int]]]:
        """Each column's name with the indices of its features."""
        return [(column.name, places) for column, places in self.feature_places()]

    def filled(self, X: Float[NDArray, "n p"]) -> Float[NDArray, "n p"]:
        """The features, with NaN replaced by those of the columns' medians."""
        missing = np.isnan(X)
        if not missing.any():
            return X
        return np.where(missing, np.concatenate([features_of_missing(one) for one in self.columns]), X)

    def to_dict(self) -> dict[str, Any]:
        """The complete encoder, in JSON types."""
        columns = [column_to_dict(one) for one in self.columns]
        gaps = {} if self.fills else {"fills": False}  # the fill is saved in its original format
        return {"targets": list(self.targets), "columns": columns} | gaps

    @classmethod
    def from_dict(cls, content: Any) -> TableEncoder:
        """Restore the output of `to_dict`; anything else is an error."""
        try:
            targets = check_texts(content["targets"])
            columns = tuple(column_from_dict(entry) for entry in content["columns"])
            fills = content.get("fills", True)  # as in models of older versions
            names = [*targets, *(column.name for column in columns)]
            if not targets or not columns or len(set(names)) < len(names) or not isinstance(fills, bool):
                raise ValueError("a name is missing or repeated")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"{DAMAGED} ({error!r}); save the model again") from None
        return cls(targets, columns, fills)


register(TableEncoder)


def name_targets(target: str | Sequence[str]) -> tuple[str, ...]:
    """The names of the targets, checked to be at least one and distinct."""
    targets = (target,) if isinstance(target, str) else tuple(target)
    if not targets or len(set(targets)) < len(targets):
        raise InputError(
            Parameter("target"), f" must name at least one column, and each once, got {list(targets)}"
        )
    return targets


def read_targets(
    table: pa.Table, targets: Sequence[str], *, numbers: RowNumbers = None
) -> Float[NDArray, "n *t"]:
    """The target as a vector, or several as a matrix; missing values are NaN."""
    check_columns(table, targets)

    def read(name: str) -> Float[NDArray, "n"]:
        if pa.types.is_boolean(table[name].type):  # as text they are errors, too
            raise InputError("must be a number, got true and false; write them as 1 and 0")
        return to_numbers(table[name], numbers=numbers)

    arrays = for_each_column(targets, read, noun="target")
    return arrays[0] if len(arrays) == 1 else np.stack(arrays, axis=1)


def labelled_rows(
    table: pa.Table, targets: Sequence[str], *, every: bool = True, numbers: RowNumbers = None
) -> Bool[NDArray, "n"]:
    """Which rows have a value for every target, or for any."""
    known = ~np.isnan(read_targets(table, targets, numbers=numbers).reshape(-1, len(targets)))
    enough = np.all if every else np.any
    return enough(known, axis=1)


def check_targets_vary(table: pa.Table, targets: Sequence[str]) -> None:
    """Raise unless each target has values that vary."""
    columns = dict(zip(targets, read_targets(table, targets).reshape(-1, len(targets)).T, strict=True))

    def check(name: str) -> None:
        known = columns[name][~np.isnan(columns[name])]
        if not len(known):
            raise InputError("has no values at all; choose another target")
        if (known == known[0]).all():
            raise InputError(
                f"is {known[0]:g} in every row, so there is nothing to predict; choose another target"
            )

    for_each_column(targets, check, noun="target")


def check_some_left(names: Sequence[str], useless: dict[str, str]) -> None:
    """Raise unless at least one column is an input."""
    if not names:
        raise InputError("no column is left to predict from besides the target and those dropped; keep one")
    if len(useless) == len(names):
        listed = ", ".join(f"{name!r} ({what})" for name, what in list(useless.items())[:10])
        raise InputError(
            f"no column is left to predict from: {listed}; to use one nevertheless: ",
            Parameter("keep", list(useless)[:1]),
        )


@dataclass(frozen=True)
class Unseen:
    """How many rows are of a group without calibration rows, or hold a level that no training row has.

    `levels` names the columns of such levels, each with a few of them.
    """

    n_groups: int = 0
    n_levels: int = 0
    levels: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __add__(self, other: Unseen) -> Unseen:
        levels = {
            name: tuple(dict.fromkeys((*self.levels.get(name, ()), *other.levels.get(name, ()))))[:EXAMPLES]
            for name in {**self.levels, **other.levels}
        }
        return Unseen(self.n_groups + other.n_groups, self.n_levels + other.n_levels, levels)


def check_names_free(inputs: Sequence[str], targets: Sequence[str], more: Sequence[str] = ()) -> None:
    """Raise if a required column has the name of one that :meth:`TableModel.predict` adds, at any level."""
    suffix = f"_({'|'.join(map(re.escape, targets))})" if len(targets) > 1 else ""
    predicted = rf"(y_pred|n_effective|(lower|upper)_[\d.]+){suffix}|above_-?[\d.]+(e[+-]?\d+)?(_p_value)?"
    added = re.compile(rf"{'|'.join(['known', *more])}|{predicted}")
    for noun, names in (("target", targets), ("column", inputs)):
        for name in filter(added.fullmatch, names):
            raise InputError(
                f"{noun} {name!r} has the name of a column that predictions are written to; rename it in the table",
                *((", or leave it out with ", Parameter("drop", [name])) if noun == "column" else ()),
            )
