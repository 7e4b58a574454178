"""From requests to answers, without HTTP: rows of several requests share one model call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from lvd._json import to_json
from lvd._validation import InputError
from lvd.serve.bodies import Asked, JsonRows, any_table, are_plain, plain_table, read_rows_of
from lvd.serve.refusals import RefusedError, refusal_of
from lvd.serve.served import Columns, Served
from lvd.tables.writing import to_csv, with_columns

JSON, CSV = "application/json", "text/csv; charset=utf-8"
MOST_EXPLAINED = 20
"""The most rows to explain at a time."""


class Reply(NamedTuple):
    """A response body and the number of its rows, of which `n_unknown` resemble no training row."""

    body: bytes
    version: str
    media_type: str = JSON
    n_rows: int = 0
    n_unknown: int = 0


Outcome: TypeAlias = Reply | RefusedError


def answer_all(served: Served, requests: Sequence[Asked], most_rows: int) -> list[Outcome]:
    """The answer or refusal for each request; requests do not affect each other."""
    if served.keeps_rows:
        return _answer_with_state(served, requests, most_rows)
    outcomes: dict[int, Outcome] = {}
    together: dict[Any, list[tuple[int, JsonRows]]] = {}
    for number, asked in enumerate(requests):
        if asked.path == "/observe":
            outcomes[number] = _catching(served.observe, pa.table({}))
            continue
        rows = _catching(read_rows_of, asked, served.needed, most_rows)
        if isinstance(rows, RefusedError):
            outcomes[number] = rows
        elif asked.path == "/predict" and isinstance(rows, list) and are_plain(rows, served.plain_kinds):
            together.setdefault(asked._replace(body=b""), []).append((number, rows))
        else:
            outcomes[number] = _catching(_answer, served, asked, rows)
    for asked, group in together.items():
        outcomes |= _answer_together(served, asked, group)
    return [outcomes[number] for number in range(len(requests))]


def _answer_together(
    served: Served, asked: Asked, group: Sequence[tuple[int, JsonRows]]
) -> dict[int, Outcome]:
    """Answer all these requests with one model call; if that fails, one by one."""
    try:
        table = plain_table([row for _, rows in group for row in rows], served.plain_kinds)
        columns = served.predict(table, asked.levels, asked.guarantee)
        ends = np.cumsum([0, *(len(rows) for _, rows in group)]).tolist()
        parts = [
            (table.slice(start, stop - start), {name: values[start:stop] for name, values in columns.items()})
            for start, stop in pairwise(ends)
        ]
        answers = [_reply_with(served, asked, *part) for part in parts]
    except Exception:  # answering them one by one shows whose rows are at fault
        return {number: _catching(_answer, served, asked, rows) for number, rows in group}
    return {number: answer for (number, _), answer in zip(group, answers, strict=True)}


def _answer_with_state(served: Served, requests: Sequence[Asked], most_rows: int) -> list[Outcome]:
    """Answer these requests and persist their changes at once; if one is refused, answer and persist each alone."""

    def answer(asked: Asked) -> Reply:
        return _answer(served, asked, read_rows_of(asked, _columns_for(served, asked), most_rows))

    def answer_alone(asked: Asked) -> Reply:
        with served.changing():
            return answer(asked)

    try:
        with served.changing():
            return [answer(asked) for asked in requests]
    except Exception:
        return [_catching(answer_alone, asked) for asked in requests]


def _columns_for(served: Served, asked: Asked) -> list[str]:
    return served.label_columns if asked.path == "/observe" else served.needed


def _answer(served: Served, asked: Asked, rows: JsonRows | pa.Table) -> Reply:
    """Answer a single request."""
    table = any_table(rows, _columns_for(served, asked)) if isinstance(rows, list) else rows
    if asked.path == "/observe":
        found: Any = served.observe(table)
        return Reply(_line({"model": served.version, **found}), served.version, n_rows=table.num_rows)
    if asked.path == "/explain":
        if table.num_rows > MOST_EXPLAINED:
            raise RefusedError(
                *(413, f"{table.num_rows:,} rows are too many to explain at a time", "body"),
                f"send at most {MOST_EXPLAINED}",
            )
        level = asked.levels[0] if asked.levels else None
        found = served.explain(table, level, asked.neighbors)
        return Reply(_line({"model": served.version, "rows": found}), served.version, n_rows=table.num_rows)
    return _reply_with(served, asked, table, served.predict(table, asked.levels, asked.guarantee))


def _reply_with(served: Served, asked: Asked, table: pa.Table, columns: Columns) -> Reply:
    n_unknown = int((columns["known"] == False).sum())  # noqa: E712  (missing is neither)
    if asked.to_csv:
        body, media_type = to_csv(with_columns(table, columns)), CSV
    else:
        values = zip(*(column.tolist() for column in columns.values()), strict=True)
        rows = [dict(zip(columns, one, strict=True)) for one in values]
        body, media_type = _line({"model": served.version, "rows": rows}), JSON
    return Reply(body, served.version, media_type, table.num_rows, n_unknown)


def _line(content: Any) -> bytes:
    return to_json(content).encode() + b"\n"


def _catching(work: Callable[..., Any], *given: Any) -> Any:
    """The result of `work`, or the refusal it raised."""
    try:
        return work(*given)
    except RefusedError as refusal:
        return refusal
    except InputError as error:
        return refusal_of(error)
    except Exception as error:
        return failure_of(error)


def failure_of(error: BaseException) -> RefusedError:
    """A refusal for a bug in lvd: where it happened, without any of the request's data."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f" in {trace.tb_frame.f_code.co_qualname}, line {trace.tb_lineno}"
    return RefusedError(
        *(500, f"the server failed ({type(error).__name__}{place})", "server"),
        "try again; if it persists, report it as a bug in lvd, with this sentence",
    )
