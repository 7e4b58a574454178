"""Columns found by their names, and those that are targets."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lvd._typing import Float, NDArray
from lvd._validation import InputError
from lvd.tables.column_values import count, list_rows, to_numbers
from lvd.tables.columns import for_each_column


def check_names(table: pa.Table | pa.RecordBatch, names: Sequence[str]) -> None:
    """The table has columns of these names; an error suggests similar ones."""
    known = table.schema.names
    lacking = [name for name in names if name not in known]
    if not lacking:
        return
    similar = difflib.get_close_matches(lacking[0].casefold(), [name.casefold() for name in known], n=3)
    hints = [name for name in known if name.casefold() in similar]
    hint = f"did you mean {' or '.join(map(repr, hints))}?" if hints else f"it has {_shorten(known)}"
    raise InputError(f"the table has no column {_shorten(lacking)}; {hint}")


def name_targets(target: str | Sequence[str]) -> tuple[str, ...]:
    """The names of the targets, of which there is at least one, and none twice."""
    targets = (target,) if isinstance(target, str) else tuple(target)
    if not targets or len(set(targets)) < len(targets):
        raise InputError(f"target must name at least one column, and each once, got {list(targets)}")
    return targets


def check_targets_vary(table: pa.Table, targets: Sequence[str]) -> None:
    """Each target has values in all rows, and not the same in every one."""
    for_each_column(targets, lambda name: _check_varies(_read(table, name)), noun="target")


def read_targets(
    table: pa.Table | pa.RecordBatch, targets: Sequence[str], *, first_row: int = 1
) -> Float[NDArray, "n *t"]:
    """The target as a vector, or several as the columns of a matrix; rows count from `first_row` on."""
    check_names(table, targets)
    arrays = for_each_column(targets, lambda name: _read(table, name, first_row), noun="target")
    return arrays[0] if len(arrays) == 1 else np.stack(arrays, axis=1)


def _read(table: pa.Table | pa.RecordBatch, name: str, first_row: int = 1) -> Float[NDArray, "n"]:
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


def as_table(table: pa.Table | pa.RecordBatch) -> pa.Table:
    """A batch as a table."""
    return pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table


def _check_varies(target: Float[NDArray, "n"]) -> None:
    if (target == target[0]).all():
        raise InputError(
            f"is {target[0]:g} in every row, so there is nothing to predict; choose another target"
        )


def _shorten(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:10])) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
