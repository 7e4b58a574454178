"""One column of a table: numbers, true/false values or categories, learned in fit and coded as floats."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lvd._typing import Bool, Float, NDArray
from lvd._validation import InputError
from lvd.tables.column_values import (
    DATE,
    DATES_REFUSED,
    MISSING_MARKS,
    NUMBER,
    count,
    first_text,
    is_text,
    list_rows,
    list_texts,
    parse_text,
    to_mask,
    to_numbers,
    to_texts,
)

Kind: TypeAlias = Literal["number", "boolean", "category"]
Result = TypeVar("Result")

MAX_CATEGORIES = 100
"""More distinct texts than this are not one-hot coded."""


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
        The known texts, sorted; the empty text stands for missing.
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


def example_of_formatted(column: Column) -> str | None:
    """A category such as ``1,234`` or ``5%``, where half of the column's categories or more are such numbers."""
    known = [text for text in column.categories if text]
    found = [text for text in known if _is_formatted(text)]
    return found[0] if found and 2 * len(found) >= len(known) else None


def for_each_column(
    names: Sequence[str], function: Callable[[str], Result], *, noun: str = "column", may_drop: bool = False
) -> list[Result]:
    """``[function(name) for name in names]``; all refusals stand in one error, each with its column."""
    results: list[Result] = []
    refused: dict[str, InputError] = {}
    for name in names:
        try:
            results.append(function(name))
        except InputError as error:
            refused[name] = error
    if refused:
        lines = [f"{noun} {name!r}: {error}" for name, error in refused.items()]
        lines[10:] = [f"and {len(lines) - 10} more"] if len(lines) > 10 else []
        if may_drop:
            lines.append("to leave out: " + " ".join(f"--drop {shlex.quote(name)}" for name in refused))
        raise InputError("\n".join(lines))
    return results


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
        "fill them in, remove these rows, or fit with --impute median"
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
