"""A column's values as numbers or texts, and the wording of errors about them.

In numbers and true/false values, missing means a null, NaN or one of `MISSING_MARKS`; in texts only a null or
the empty text, so that a category may be called "NA". Rows are counted from 1, without the header.

skrub's Cleaner (0.11) was tried on the same cells. It keeps currency, thousands and percentages as text, and reads
01/02/2024 as the second of January without asking, where lvd asks for the order.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lvd._typing import Bool, Float, Int, NDArray
from lvd._validation import InputError, Parameter, is_frame

Result = TypeVar("Result")
RowNumbers: TypeAlias = Int[NDArray, "n"] | None
"""The rows' numbers in their table, for messages; None if they are the whole table, counted from 1."""

MISSING_MARKS = (
    *("", "NA", "N/A", "n/a", "<NA>", "#N/A", "#NA", "None", "null", "NULL"),
    *("nan", "NaN", "NAN", "-nan", "-NaN"),
)
"""Cells of a text file that mean a missing number."""

NUMBER = r"(?i)^[+-]?(\d+\.?\d*(e[+-]?\d+)?|\.\d+(e[+-]?\d+)?|inf|infinity|nan)$"
_BOOLEAN = r"(?i)^(true|false|0|1)$"

_SIGN = r"[$\x{20ac}\x{00a3}\x{00a5}\x{20b9}]"
_WRITTEN = rf"^[+-]?{_SIGN}?\s?[+-]?(\d{{1,3}}(,\d{{3}})+|\d+)(\.\d*)?\s?({_SIGN}|%)?$"
"""Numbers with a currency or percent sign, and commas between groups of three digits."""
_INTEGER = r"^[+-]?\d+$"

EXACT = 2.0**53
"""Integers below this are exact as floats."""


def to_numbers(
    values: pa.ChunkedArray, *, boolean: bool = False, numbers: RowNumbers = None
) -> Float[NDArray, "n"]:
    """Values as float64: NaN if missing, 1 and 0 for true and false; dates and infinite values are errors.

    Texts must be numbers or, with `boolean`, true or false.
    """
    values = _decode(values)
    if pa.types.is_duration(values.type):
        values = in_seconds(values)
    if pa.types.is_temporal(values.type):
        raise InputError("holds dates or times, where numbers are needed; choose another column")
    if is_text(values.type):
        values = parse_text(values, boolean=boolean, numbers=numbers)
    try:
        array: NDArray = values.cast(pa.float64(), safe=False).to_numpy()
    except pa.ArrowException:
        raise InputError(f"has type {values.type}, which cannot be turned into numbers") from None
    inexact = np.abs(array) >= EXACT
    if pa.types.is_decimal(values.type):  # integers only; other types lose digits as floats do
        inexact[inexact] = [one == one.to_integral_value() for one in values.filter(inexact).to_pylist()]
    if pa.types.is_integer(values.type) or pa.types.is_decimal(values.type):
        _refuse_inexact(values, inexact, numbers)
    if (infinite := np.isinf(array)).any():
        raise InputError(
            f"{count(infinite, 'infinite value')} ({list_rows(infinite, numbers)}); remove these rows"
        )
    return array


def in_seconds(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Moments and durations of any unit as float64 seconds; nanoseconds are rounded to microseconds, as in texts.

    For other units, Arrow's own conversion to microseconds would overflow.
    """
    if pa.types.is_date32(values.type):
        return pc.multiply(values.cast(pa.int32()).cast(pa.float64()), 86_400.0)
    unit = "ms" if pa.types.is_date64(values.type) else values.type.unit
    stored = values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64()).cast(pa.int64())
    if unit == "ns":
        stored, unit = pc.divide(stored, 1000), "us"
    return pc.divide(stored.cast(pa.float64(), safe=False), {"s": 1.0, "ms": 1e3, "us": 1e6}[unit])


def to_texts(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values as text, with missing ones empty."""
    try:
        return pc.fill_null(_decode(values).cast(pa.string()), "")
    except pa.ArrowException:
        raise InputError(f"has type {values.type}, which cannot be turned into text") from None


def group_labels(values: pa.ChunkedArray) -> NDArray:
    """Each row's group name: its cell as written in the table, so that 007 and 7 are different groups.

    A numeric cell is named by all its digits, without a point if it is an integer: 7 names 7.0.
    """
    coded = to_texts(values).dictionary_encode().combine_chunks()
    names = coded.dictionary.to_pylist()
    if pa.types.is_floating(_decode(values).type):
        names = [_number_name(float(text)) if text else "" for text in names]
    return np.array(names, dtype=object)[coded.indices.to_numpy()]


def _number_name(number: float) -> str:
    if math.isnan(number):
        return ""
    return str(int(number)) if number.is_integer() else repr(number)


def without_marks(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """The texts without surrounding spaces, with `MISSING_MARKS` as null."""
    trimmed = pc.utf8_trim_whitespace(texts.cast(pa.string()))
    return pc.if_else(pc.is_in(trimmed, pa.array(MISSING_MARKS)), pa.scalar(None, pa.string()), trimmed)


def are_numbers(texts: pa.Array | pa.ChunkedArray) -> Bool[NDArray, "n"]:
    """Which texts are plain numbers, ignoring surrounding spaces."""
    return to_mask(pc.match_substring_regex(pc.utf8_trim_whitespace(texts), NUMBER))


def parse_text(
    values: pa.ChunkedArray, *, boolean: bool = False, numbers: RowNumbers = None
) -> pa.ChunkedArray:
    """Parse text as float64 or bool, with `MISSING_MARKS` as null; any other text is an error that names its row.

    All commands read the cells of CSV files with this function.
    """
    text = without_marks(values)
    if not boolean:
        plain = without_signs(text)
        text = text if plain is None else plain
    try:
        parsed = text.cast(pa.bool_() if boolean else pa.float64())
    except pa.ArrowInvalid:
        wrong = to_mask(pc.invert(pc.match_substring_regex(text, _BOOLEAN if boolean else NUMBER)))
        raise InputError(
            f"must be {'true or false' if boolean else 'a number'}, got {first_text(text, wrong)} "
            f"({count(wrong, 'such value')}, {list_rows(wrong, numbers)}); correct the table"
        ) from None
    if not boolean and (large := to_mask(pc.greater_equal(pc.abs(parsed), EXACT))).any():
        _refuse_inexact(text, large & to_mask(pc.match_substring_regex(text, _INTEGER)), numbers)
    return parsed


def without_signs(texts: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Numbers such as ``$1,000.12`` or ``5%`` (5.0) as plain ones, if all are written this way; else None.

    Currency and percent signs must be the same in all texts, or absent from all.
    """
    if not to_mask(pc.match_substring_regex(texts, r"[,%$\x{20ac}\x{00a3}\x{00a5}\x{20b9}]")).any():
        return None
    known = texts.drop_null()
    if not pc.all(pc.match_substring_regex(known, _WRITTEN)).as_py():
        return None
    signs = pc.unique(pc.replace_substring_regex(known, r"[+\-\d.,\s]", ""))
    return None if len(signs) > 1 else pc.replace_substring_regex(texts, rf"{_SIGN}|[,%\s]", "")


def read_from_signs(cells: pa.Table) -> dict[str, str]:
    """The text columns that are numbers apart from their signs, each with an example."""
    found = {}
    for name in cells.column_names:
        if is_text(cells[name].type):
            texts = without_marks(cells[name])
            if without_signs(texts) is not None:
                found[name] = first_text(
                    texts, to_mask(pc.match_substring_regex(texts, _WRITTEN)) & ~are_numbers(texts)
                )
    return found


def guess_types(table: pa.Table) -> pa.Table:
    """Convert text columns to numbers, or to true and false, if all their cells allow it."""

    def guess(values: pa.ChunkedArray) -> pa.ChunkedArray:
        for boolean in (False, True):
            with suppress(InputError):
                return parse_text(values, boolean=boolean)
        return values

    return pa.table([guess(values) for values in table.columns], names=table.column_names)


def as_table(rows: pa.Table | pa.RecordBatch) -> pa.Table:
    """Rows as a table, with text and byte views converted: Arrow cannot select rows of views."""
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    if not any(arrow_type in plain for arrow_type in table.schema.types):
        return table
    fields = [field.with_type(plain.get(field.type, field.type)) for field in table.schema]
    return table.cast(pa.schema(fields, table.schema.metadata))


def as_columns(X: Any) -> pa.Table | None:
    """A pandas frame, a dict of columns or a list of dicts as a table; None for anything else."""
    if isinstance(X, pa.Table | pa.RecordBatch):
        return as_table(X)
    try:
        if is_frame(X):
            return as_table(pa.Table.from_pandas(X, preserve_index=False))
        if isinstance(X, Mapping):
            return as_table(pa.table({str(name): list(values) for name, values in X.items()}))
        if isinstance(X, Sequence) and len(X) and all(isinstance(row, Mapping) for row in X):
            names = dict.fromkeys(name for row in X for name in row)
            return as_table(pa.table({str(name): [row.get(name) for row in X] for name in names}))
    except (pa.ArrowException, TypeError) as error:
        raise InputError(
            f"X cannot be read as a table: {error}; give each column values of one type"
        ) from None
    return None


def is_text(arrow_type: pa.DataType) -> bool:
    """Whether values of this type are texts."""
    return arrow_type in (pa.string(), pa.large_string(), pa.string_view())


def holds_levels(arrow_type: pa.DataType) -> bool:
    """Whether values of this type are texts or categories (possibly integers)."""
    return is_text(arrow_type) or pa.types.is_dictionary(arrow_type)


def holds_numbers(arrow_type: pa.DataType) -> bool:
    """Whether values of this type are numbers, or true and false."""
    kinds = pa.types.is_floating, pa.types.is_integer, pa.types.is_decimal, pa.types.is_boolean
    return any(is_kind(arrow_type) for is_kind in kinds)


def for_each_column(
    names: Sequence[str], function: Callable[[str], Result], *, noun: str = "column", may_drop: bool = False
) -> list[Result]:
    """``[function(name) for name in names]``, with all errors collected in one, each with its column."""
    results: list[Result] = []
    refused: dict[str, InputError] = {}
    for name in names:
        try:
            results.append(function(name))
        except InputError as error:
            refused[name] = error
    if refused:
        lines: list[tuple[Any, ...]] = [(f"{noun} {name!r}: ", error) for name, error in refused.items()]
        lines[10:] = [(f"and {len(lines) - 10} more",)] if len(lines) > 10 else []
        if may_drop:
            lines.append(("to leave out: ", Parameter("drop", list(refused))))
        raise InputError(*lines[0], *chain.from_iterable(("\n", *line) for line in lines[1:]))
    return results


def check_columns(table: pa.Table, names: Sequence[str]) -> None:
    """Raise unless the table has columns with these names; the error suggests similar ones."""
    check_names(table.column_names, names)


def check_names(known: Sequence[str], names: Sequence[str]) -> None:
    """As :func:`check_columns`, from the column names only."""
    lacking = [name for name in names if name not in known]
    if not lacking:
        return
    similar = difflib.get_close_matches(lacking[0].casefold(), [name.casefold() for name in known], n=3)
    hints = [name for name in known if name.casefold() in similar]
    hint = f"did you mean {' or '.join(map(repr, hints))}?" if hints else f"it has {list_names(known)}"
    raise InputError(f"the table has no column {list_names(lacking)}; {hint}")


def list_names(names: Sequence[str]) -> str:
    """At most ten names, in quotes."""
    return ", ".join(map(repr, names[:10])) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def to_mask(condition: pa.Array | pa.ChunkedArray) -> Bool[NDArray, "n"]:
    """A condition as booleans; null is false."""
    return np.asarray(pc.fill_null(condition, False), dtype=bool)


def count(mask: Bool[NDArray, "n"], noun: str) -> str:
    """``1 value`` or ``3 values``: how often `mask` is true."""
    return f"{mask.sum()} {noun}{'s' if mask.sum() > 1 else ''}"


def list_rows(mask: Bool[NDArray, "n"], numbers: RowNumbers = None) -> str:
    """``row 3`` or ``rows 3, 5, 8, ...``: where `mask` is true, at most five rows."""
    rows = np.flatnonzero(mask) + 1 if numbers is None else numbers[mask]
    listed = ", ".join(map(str, rows[:5]))
    return f"row{'s' if len(rows) > 1 else ''} {listed}{', ...' if len(rows) > 5 else ''}"


def list_texts(texts: Sequence[str]) -> str:
    """At most five texts, quoted and shortened; the empty one is shown as missing."""
    listed = [
        repr(text if len(text) <= 40 else f"{text[:37]}...") if text else "missing" for text in texts[:5]
    ]
    return ", ".join(listed) + (", ..." if len(texts) > 5 else "")


def first_text(texts: pa.ChunkedArray, mask: Bool[NDArray, "n"]) -> str:
    """The first text where `mask` is true, in quotes."""
    return list_texts([texts[int(mask.argmax())].as_py()])


def _refuse_inexact(values: pa.ChunkedArray, inexact: Bool[NDArray, "n"], numbers: RowNumbers) -> None:
    if inexact.any():
        raise InputError(
            f"integers of 2^53 and beyond, such as {values[int(inexact.argmax())]}, lose digits "
            f"({list_rows(inexact, numbers)}); store them as floats, unless they are identifiers"
        )


def _decode(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values
