"""From a table to the matrix of features and the targets, the same way in fit and in predict.

A column holds numbers, true/false values or categories: learned in fit, and coded as floats.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal, NoReturn, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lvd._typing import Bool, Float, NDArray
from lvd._validation import InputError, check_choice
from lvd.tables.column_values import (
    DATE,
    DATES_REFUSED,
    MISSING_MARKS,
    NUMBER,
    as_table,
    check_columns,
    count,
    first_text,
    for_each_column,
    is_text,
    list_rows,
    list_texts,
    parse_text,
    to_mask,
    to_numbers,
    to_texts,
)
from lvd.tables.reading import BATCH_ROWS

Kind: TypeAlias = Literal["number", "boolean", "category"]

MAX_CATEGORIES = 100
"""More distinct texts than this are not one-hot coded."""


DAMAGED = "the description of the table's columns is damaged"
PLAIN_NUMBERS = "write plain numbers, such as 1234.5, without separators, units and currency signs"
_SIGNS = re.compile(r"[$\u20ac\u00a3\u00a5\u20b9%,'\s_]")


@dataclass(frozen=True)
class Column:
    """How one column is coded: learned by `learn_column`, applied by `encode_column`.

    Parameters
    ----------
    name : str
        Name of the column in the table.
    kind : {"number", "boolean", "category"}
        Numbers and true/false values (1 and 0) give one feature, categories one feature each.
    categories : tuple of str
        The known texts, sorted; the empty text is missing.
    median : float, optional
        What a missing number is replaced with; without it a missing number is refused.
    """

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()
    median: float | None = None

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The column's name, or ``name=category`` for each category (``name=`` for missing)."""
        if self.kind == "category":
            return tuple(f"{self.name}={category}" for category in self.categories)
        return (self.name,)

    @property
    def arrow_type(self) -> pa.DataType:
        """The type that this column has when read from a text file."""
        return {"number": pa.float64(), "boolean": pa.bool_(), "category": pa.string()}[self.kind]


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
    batch_rows: ClassVar[int] = BATCH_ROWS
    drawn: ClassVar[None] = None

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
        check_columns(table, [*targets, *drop])
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

    def labels(self, table: pa.Table | pa.RecordBatch) -> list[str] | None:
        """Rows of several columns have no names."""
        return None

    def transform(self, table: pa.Table | pa.RecordBatch, *, first_row: int = 1) -> Float[NDArray, "n p"]:
        """The features of a table, or of a batch that starts at row `first_row` of its table."""
        table = as_table(table)
        columns = {column.name: column for column in self.columns}
        check_columns(table, list(columns))
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
            raise InputError(f"{DAMAGED} ({error!r}); save the model again") from None
        names = [*targets, *(column.name for column in columns)]
        if not targets or not columns or len(set(names)) < len(names):
            raise InputError(f"{DAMAGED}: a name is missing or repeated; save the model again")
        return cls(targets, columns)


def example_of_formatted(column: Column) -> str | None:
    """A category such as ``1,234`` or ``5%``, where half of the column's categories or more are such numbers."""
    known = [text for text in column.categories if text]
    found = [text for text in known if _is_formatted(text)]
    return found[0] if found and 2 * len(found) >= len(known) else None


def learn_column(name: str, values: pa.ChunkedArray, *, impute: bool) -> Column:
    """Decide how to code a column, from all its values.

    If `impute`, missing numbers will be replaced with the column's median, and missing categories are a
    category of their own; else both are refused. The values of a dictionary (categorical) column are
    categories even when they are integers.
    """
    if name == "" or name.startswith("__index_level_"):
        raise InputError("looks like a row index that was saved with the table")
    if is_text(values.type) or pa.types.is_dictionary(values.type):
        return Column(name, "category", categories=_learn_categories(values, impute=impute))
    array = to_numbers(values)
    _check_missing(np.isnan(array), impute)
    median = float(np.nanmedian(array)) if impute else None
    return Column(name, "boolean" if pa.types.is_boolean(values.type) else "number", median=median)


def encode_column(column: Column, values: pa.ChunkedArray, *, first_row: int = 1) -> Float[NDArray, "n k"]:
    """The features of a column's values, which start at row `first_row` of the table."""
    if column.kind == "category":
        return _one_hot(column.categories, values, first_row)
    array = to_numbers(values, text_as=column.arrow_type, first_row=first_row)
    missing = np.isnan(array)
    if column.kind == "boolean" and (other := ~missing & (array != 0) & (array != 1)).any():
        raise InputError(f"must be true or false (1 or 0), got other numbers ({list_rows(other, first_row)})")
    if missing.any():
        if column.median is None:
            _refuse_missing(missing, first_row)
        array = np.where(missing, column.median, array)
    return array[:, None]


def _learn_categories(values: pa.ChunkedArray, *, impute: bool) -> tuple[str, ...]:
    texts = to_texts(values)
    missing = to_mask(pc.equal(texts, ""))
    _check_missing(missing, impute)
    if is_text(values.type):
        _check_not_numbers(texts, missing)
    categories = sorted(pc.unique(texts).to_pylist())
    known = [category for category in categories if category]
    dates = [text for text in known if text not in MISSING_MARKS]
    if dates and pc.all(pc.match_substring_regex(pa.array(dates), DATE)).as_py():
        raise InputError(DATES_REFUSED)
    n_rows = int((~missing).sum())
    if len(known) > MAX_CATEGORIES or (len(known) >= 10 and len(known) > 0.9 * n_rows):
        if sum(map(_is_formatted, known)) >= 0.5 * len(known):
            example = next(filter(_is_formatted, known))
            raise InputError(f"holds numbers that are written like {example!r}; {PLAIN_NUMBERS}")
        raise InputError(
            f"{len(known)} distinct texts in {n_rows} rows, such as {first_text(texts, ~missing)}: "
            f"it looks like an identifier or free text (at most {MAX_CATEGORIES} texts can be categories)"
        )
    return tuple(categories)


def _check_not_numbers(texts: pa.ChunkedArray, missing: Bool[NDArray, "n"]) -> None:
    """Numbers with a few slips among them are not categories, nor are numbers that floats cannot hold."""
    trimmed = pc.utf8_trim_whitespace(texts)
    number = to_mask(pc.match_substring_regex(trimmed, NUMBER))
    other = ~number & ~missing
    if not (other & ~to_mask(pc.is_in(trimmed, pa.array(MISSING_MARKS)))).any():
        parse_text(texts, pa.float64())
    if other.any() and number.sum() >= other.sum():
        raise InputError(
            f"{count(number, 'number')} but {count(other, 'other value')}, like {first_text(texts, other)} "
            f"({list_rows(other, 1)}); correct them, leave missing ones empty, or store it as categorical"
        )


def _is_formatted(text: str) -> bool:
    """Whether only the signs between and beside its digits keep a text from being a number."""
    return (
        not re.match(NUMBER, text.strip())
        and re.fullmatch(r"[+-]?\d+(\.\d*)?", _SIGNS.sub("", text)) is not None
    )


def _check_missing(missing: Bool[NDArray, "n"], impute: bool) -> None:
    if missing.all():
        raise InputError("has no values at all")
    if missing.any() and not impute:
        _refuse_missing(missing, first_row=1)


def _refuse_missing(missing: Bool[NDArray, "n"], first_row: int) -> NoReturn:
    raise InputError(
        f"{count(missing, 'missing value')} ({list_rows(missing, first_row)}); "
        "fill them in, remove these rows, or fit with impute='median'"
    )


def _one_hot(categories: tuple[str, ...], values: pa.ChunkedArray, first_row: int) -> Float[NDArray, "n k"]:
    texts = to_texts(values)
    index = pc.fill_null(pc.index_in(texts, value_set=pa.array(categories, pa.string())), -1).to_numpy()
    if (unseen := index < 0).any():
        new = pc.unique(texts.filter(pa.array(unseen))).to_pylist()
        raise InputError(
            f"{count(unseen, 'value')} never seen in fit: {list_texts(new)} "
            f"({list_rows(unseen, first_row)}); known are {list_texts(categories)}"
        )
    return (index[:, None] == np.arange(len(categories))).astype(np.float64)


def with_medians(columns: Sequence[Column], train: pa.Table) -> tuple[Column, ...]:
    """The columns with the medians of these rows, where missing numbers are to be replaced at all."""
    by_name = {column.name: column for column in columns}

    def relearn(name: str) -> Column:
        if by_name[name].median is None:
            return by_name[name]
        return replace(by_name[name], median=learn_column(name, train[name], impute=True).median)

    return tuple(for_each_column(list(by_name), relearn, noun="training rows of column", may_drop=True))


def name_targets(target: str | Sequence[str]) -> tuple[str, ...]:
    """The names of the targets, of which there is at least one, and none twice."""
    targets = (target,) if isinstance(target, str) else tuple(target)
    if not targets or len(set(targets)) < len(targets):
        raise InputError(f"target must name at least one column, and each once, got {list(targets)}")
    return targets


def check_targets_vary(table: pa.Table, targets: Sequence[str]) -> None:
    """Each target has values in all rows, and not the same in every one."""
    for_each_column(targets, lambda name: _check_varies(_read_target(table, name)), noun="target")


def read_targets(
    table: pa.Table | pa.RecordBatch, targets: Sequence[str], *, first_row: int = 1
) -> Float[NDArray, "n *t"]:
    """The target as a vector, or several as the columns of a matrix; rows count from `first_row` on."""
    check_columns(table, targets)
    arrays = for_each_column(targets, lambda name: _read_target(table, name, first_row), noun="target")
    return arrays[0] if len(arrays) == 1 else np.stack(arrays, axis=1)


def _read_target(table: pa.Table | pa.RecordBatch, name: str, first_row: int = 1) -> Float[NDArray, "n"]:
    values = as_table(table)[name]
    if pa.types.is_boolean(values.type):  # as text they are refused, too
        raise InputError("must be a number, got true and false; write them as 1 and 0")
    array = to_numbers(values, first_row=first_row)
    missing = np.isnan(array)
    if missing.any():
        raise InputError(
            f"{count(missing, 'missing value')} ({list_rows(missing, first_row)}); remove these rows"
        )
    return array


def _check_varies(target: Float[NDArray, "n"]) -> None:
    if (target == target[0]).all():
        raise InputError(
            f"is {target[0]:g} in every row, so there is nothing to predict; choose another target"
        )


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
