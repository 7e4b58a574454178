"""The page of a method that is at hand in Python, for rows given as arrays or a frame."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lvd._typing import ArrayLike
from lvd._validation import InputError, check_matrix, check_targets
from lvd.methods.lvd import LVDRegressor
from lvd.models.frames import FrameColumns, target_names
from lvd.page.content import make_report, only_target
from lvd.page.render import Origin, write_report
from lvd.tables.column_values import as_columns
from lvd.tables.frame_encoder import FrameEncoder
from lvd.tables.table_model import TableModel
from lvd.tables.verdict import Verdict


def report(
    regressor: LVDRegressor,
    X: ArrayLike,
    y: ArrayLike,
    path: str | os.PathLike[str],
    *,
    by: Sequence[str] | Mapping[str, ArrayLike] = (),
    target: str | None = None,
    confidence_level: float | None = None,
) -> Verdict:
    """Write the page of :meth:`LVDRegressor.report`, and give its verdict."""
    table, encoder = _as_table(regressor, X, y)
    model = TableModel.of(regressor, "memory", encoder)
    targets = _target_columns(y, model.encoder.targets)
    for name, values in [*targets.items(), *(by.items() if isinstance(by, Mapping) else ())]:
        if len(values) != table.num_rows:
            raise InputError(
                f"{name} has {len(values)} values and X has {table.num_rows} rows; give one for each"
            )
        if name in table.column_names:
            table = table.drop_columns([name])
        table = table.append_column(name, pa.array(values, from_pandas=True))
    content = make_report(
        *(model, table),
        target=only_target(model.encoder.targets if target is None else [target]),
        by=tuple(by),
        confidence_level=confidence_level,
    )
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    write_report(content, Origin(type(regressor).__name__, "X", today), Path(path))
    return content.verdict


def _as_table(regressor: LVDRegressor, X: Any, y: Any) -> tuple[pa.Table, FrameEncoder | None]:
    """The rows, and how the method reads them where it has no columns of its own."""
    columns = vars(regressor).get("columns_")
    if columns is not None:
        table = as_columns(X)
        if table is None:
            raise InputError(
                "the method was fitted on a frame; give X as a frame, a dict of columns or a list of dicts"
            )
        return table, None
    matrix = check_matrix(X, missing=True)
    names = tuple(f"x{number + 1}" for number in range(matrix.shape[1]))
    described = FrameColumns.of_numbers(names, target_names(y))
    table = pa.table([pa.array(column) for column in matrix.T], names=list(names))
    return table, FrameEncoder(described.targets, described, as_matrix=True)


def _target_columns(y: Any, names: Sequence[str]) -> dict[str, Any]:
    columns = check_targets(y, missing=np.ndim(y) > 1)
    if columns.shape[1] != len(names):
        raise InputError(f"y has {columns.shape[1]} target column(s), but the method predicts {len(names)}")
    return dict(zip(names, columns.T, strict=True))
