"""The rows of a request: JSON or CSV, checked before anything is computed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

import pyarrow as pa

from lvd._validation import InputError
from lvd.serve.refusals import RefusedError, refusal_of
from lvd.tables.column_values import check_names
from lvd.tables.reading import CsvBody, read_body

JsonRows: TypeAlias = list[dict[str, Any]]
MIXED = "give each column values of one type, null where one is missing"
SHAPE = 'send a list of rows such as [{"column": 1.5}], or one such row'


class Asked(NamedTuple):
    """A parsed request: path, body, and query options, None if omitted."""

    path: str
    body: bytes
    from_csv: bool = False
    to_csv: bool = False
    levels: tuple[float, ...] | None = None
    guarantee: str | None = None
    neighbors: int = 10


class PlainTypes(NamedTuple):
    """The JSON types that a column kind accepts unchanged, and the Arrow type they become."""

    python: frozenset[type]
    arrow: pa.DataType


_NONE = type(None)
PLAIN = {
    "number": PlainTypes(frozenset({int, float, _NONE}), pa.float64()),
    "boolean": PlainTypes(frozenset({bool, _NONE}), pa.bool_()),
    "category": PlainTypes(frozenset({str, _NONE}), pa.string()),
}
"""Column kinds whose values mean the same in any batch, so that rows may be answered together."""


def read_rows_of(asked: Asked, needed: Sequence[str], most: int) -> JsonRows | pa.Table:
    """The rows of a body: at least one, no more than the limit, all with the required columns."""
    if not asked.from_csv:
        return _read_json(asked.body, needed, most)
    try:
        table = read_body(CsvBody(asked.body))
        check_names(table.column_names, needed)
    except InputError as error:
        raise refusal_of(error) from None
    _check_count(table.num_rows, most)
    return table


def are_plain(rows: JsonRows, kinds: Mapping[str, str]) -> bool:
    """Whether all values have plain types of their column's kind."""
    for name, kind in kinds.items():
        plain = PLAIN[kind].python if kind in PLAIN else ()
        if not all(type(row[name]) in plain for row in rows):
            return False
    return True


def plain_table(rows: JsonRows, kinds: Mapping[str, str]) -> pa.Table:
    """Rows of plain values as a table."""
    return pa.table(
        {name: pa.array([row[name] for row in rows], PLAIN[kind].arrow) for name, kind in kinds.items()}
    )


def any_table(rows: JsonRows, needed: Sequence[str]) -> pa.Table:
    """Rows of any values as a table, with types inferred by Arrow."""
    columns = {}
    for name in needed:
        try:
            columns[name] = pa.array([row[name] for row in rows])
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise RefusedError(
                422, f"column {name!r} cannot be read ({error})", f"column {name!r}", MIXED
            ) from None
    return pa.table(columns)


def _read_json(body: bytes, needed: Sequence[str], most: int) -> JsonRows:
    try:
        rows = json.loads(body, parse_constant=_refuse_nonfinite)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"the body is not valid JSON ({error})", "body", SHAPE) from None
    rows = [rows] if isinstance(rows, dict) else rows
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise RefusedError(422, "the body holds no rows", "body", SHAPE)
    _check_count(len(rows), most)
    wanted = set(needed)
    for number, row in enumerate(rows, start=1):
        if not wanted <= row.keys():
            try:
                check_names(list(row), needed)
            except InputError as error:
                raise refusal_of(error, f"row {number}") from None
    return rows


def _check_count(n_rows: int, most: int) -> None:
    if n_rows > most:
        raise RefusedError(
            *(413, f"the body has {n_rows:,} rows, and may have {most:,}", "body"),
            "send them in several requests, or use lvd predict",
        )


def _refuse_nonfinite(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")
