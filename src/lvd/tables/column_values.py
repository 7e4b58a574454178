"""The values of one column as numbers or texts, and words for those that are refused.

Missing is, among numbers and true/false values, a null, NaN or one of `MISSING_MARKS`; among texts only a
null or the empty text, so that a category may be called "NA". Rows are counted from 1, without the header.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lvd._typing import Bool, Float, NDArray
from lvd._validation import InputError

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)

MISSING_MARKS = (
    *("", "NA", "N/A", "n/a", "<NA>", "#N/A", "#NA", "None", "null", "NULL"),
    *("nan", "NaN", "NAN", "-nan", "-NaN"),
)
"""Cells of a text file that stand for a missing number."""

NUMBER = r"(?i)^[+-]?(\d+\.?\d*(e[+-]?\d+)?|\.\d+(e[+-]?\d+)?|inf|infinity|nan)$"
DATE = (
    r"^(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2}))([T ]|$)"
    r"|^\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?$"
)
_BOOLEAN = r"(?i)^(true|false|0|1)$"

_INTEGER = r"^[+-]?\d+$"

EXACT = 2.0**53
"""Integers below this are floats without loss."""

DATES_REFUSED = (
    "holds dates or times; turn them into numbers first: year, month, weekday, hour, days since a start date"
)


def to_numbers(
    values: pa.ChunkedArray, *, text_as: pa.DataType | None = None, first_row: int = 1
) -> Float[NDArray, "n"]:
    """Values as float64, missing ones NaN, true and false 1 and 0; dates and infinite values are refused."""
    values = _decode(values)
    if pa.types.is_temporal(values.type):
        raise InputError(DATES_REFUSED)
    if is_text(values.type):
        values = parse_text(values, text_as or pa.float64(), first_row=first_row)
    try:
        array: NDArray = values.cast(pa.float64(), safe=False).to_numpy()
    except pa.ArrowException:
        raise InputError(f"has type {values.type}, which cannot be turned into numbers") from None
    if pa.types.is_integer(values.type):
        _refuse_inexact(values, np.abs(array) >= EXACT, first_row)
    if (infinite := np.isinf(array)).any():
        raise InputError(
            f"{count(infinite, 'infinite value')} ({list_rows(infinite, first_row)}); remove these rows"
        )
    return array


def to_texts(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values as text, missing ones empty."""
    try:
        return pc.fill_null(_decode(values).cast(pa.string()), "")
    except pa.ArrowException:
        raise InputError(f"has type {values.type}, which cannot be turned into text") from None


def parse_text(
    values: pa.Array | pa.ChunkedArray, arrow_type: pa.DataType, *, first_row: int = 1
) -> pa.Array | pa.ChunkedArray:
    """Text as float64 or bool, `MISSING_MARKS` as null; any other text is refused with its row.

    All commands read the cells of CSV files here.
    """
    text = pc.utf8_trim_whitespace(values.cast(pa.string()))
    text = pc.if_else(pc.is_in(text, pa.array(MISSING_MARKS)), pa.scalar(None, pa.string()), text)
    boolean = pa.types.is_boolean(arrow_type)
    try:
        parsed = text.cast(arrow_type)
    except pa.ArrowInvalid:
        wrong = to_mask(pc.invert(pc.match_substring_regex(text, _BOOLEAN if boolean else NUMBER)))
        raise InputError(
            f"must be {'true or false' if boolean else 'a number'}, got {first_text(text, wrong)} "
            f"({count(wrong, 'such value')}, {list_rows(wrong, first_row)}); correct the table"
        ) from None
    if not boolean and (large := to_mask(pc.greater_equal(pc.abs(parsed), EXACT))).any():
        _refuse_inexact(text, large & to_mask(pc.match_substring_regex(text, _INTEGER)), first_row)
    return parsed


def guess_types(table: pa.Table) -> pa.Table:
    """Columns of text as numbers, or as true and false, where all their cells can be read so."""

    def guess(values: pa.ChunkedArray) -> pa.ChunkedArray:
        for arrow_type in (pa.float64(), pa.bool_()):
            with suppress(InputError):
                return parse_text(values, arrow_type)
        return values

    return pa.table([guess(values) for values in table.columns], names=table.column_names)


def plain_types(rows: Rows) -> Rows:
    """Views of texts and bytes as texts and bytes: of views, Arrow cannot pick rows."""
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    if not any(arrow_type in plain for arrow_type in rows.schema.types):
        return rows
    fields = [field.with_type(plain.get(field.type, field.type)) for field in rows.schema]
    return rows.cast(pa.schema(fields, rows.schema.metadata))


def is_text(arrow_type: pa.DataType) -> bool:
    """Whether values of this type are texts."""
    return arrow_type in (pa.string(), pa.large_string(), pa.string_view())


def to_mask(condition: pa.Array | pa.ChunkedArray) -> Bool[NDArray, "n"]:
    """A condition as booleans; null is false."""
    return np.asarray(pc.fill_null(condition, False), dtype=bool)


def count(mask: Bool[NDArray, "n"], noun: str) -> str:
    """``1 value`` or ``3 values``: how often `mask` holds."""
    return f"{mask.sum()} {noun}{'s' if mask.sum() > 1 else ''}"


def list_rows(mask: Bool[NDArray, "n"], first_row: int) -> str:
    """``row 3`` or ``rows 3, 5, 8, ...``: where `mask` holds, five rows at most."""
    rows = np.flatnonzero(mask)
    listed = ", ".join(str(row + first_row) for row in rows[:5])
    return f"row{'s' if len(rows) > 1 else ''} {listed}{', ...' if len(rows) > 5 else ''}"


def list_texts(texts: Sequence[str]) -> str:
    """Five texts at most, in quotes, cut where they are long; the empty one is missing."""
    listed = [
        repr(text if len(text) <= 40 else f"{text[:37]}...") if text else "missing" for text in texts[:5]
    ]
    return ", ".join(listed) + (", ..." if len(texts) > 5 else "")


def first_text(texts: pa.Array | pa.ChunkedArray, mask: Bool[NDArray, "n"]) -> str:
    """The first text where `mask` holds, in quotes."""
    return list_texts([texts[int(mask.argmax())].as_py()])


def _refuse_inexact(values: pa.Array | pa.ChunkedArray, inexact: Bool[NDArray, "n"], first_row: int) -> None:
    if inexact.any():
        raise InputError(
            f"integers of 2^53 and beyond, such as {values[int(inexact.argmax())]}, lose digits "
            f"({list_rows(inexact, first_row)}); store them as floats, unless they are identifiers"
        )


def _decode(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values
