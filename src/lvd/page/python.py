"""The page from Python: for a method, or for intervals given as arrays."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from lvd._typing import ArrayLike, Bool, Float, Levels, NDArray
from lvd._validation import (
    InputError,
    check_levels,
    check_matrix,
    check_same_length,
    check_targets,
    check_vector,
    present_rows,
    to_numpy,
)
from lvd.intervals import check_intervals, check_levels_of
from lvd.methods import IntervalRegressor, LVDRegressor
from lvd.methods.conformal import ConformalMethod
from lvd.models.coding import InputCoding
from lvd.models.frames import FrameColumns, target_names
from lvd.page.content import assemble, make_report, only_target
from lvd.page.evaluation import CURVE_LEVELS, PROMISED, Description, evaluate_arrays, levels_of_curve
from lvd.page.groups import column_numbers
from lvd.page.render import Origin, write_report
from lvd.page.rivals import make_methods
from lvd.page.row_details import has_texts
from lvd.tables.column_values import as_columns, check_columns, to_texts
from lvd.tables.frame_encoder import FrameEncoder
from lvd.tables.reports import Verdict
from lvd.tables.table_model import TableModel

By: TypeAlias = Sequence[str] | Mapping[str, ArrayLike]
GIVEN = (
    "These intervals were given as arrays. What they promise is for the method to say that made them; this page "
    "measures what they do."
)
HINDSIGHT = "from the errors of these very rows, which favours it"


def report(
    y: ArrayLike,
    y_pred: ArrayLike,
    intervals: ArrayLike,
    *,
    X: ArrayLike | None = None,
    by: By = (),
    path: str | os.PathLike[str] = "report.html",
    confidence_level: Levels = 0.9,
    name: str = "The intervals",
) -> Verdict:
    """Write the page of ``lvd report`` for intervals of any method, given as arrays, and give its verdict.

    `y` are true values that the method has not seen, `y_pred` its predictions, and `intervals` have shape (n, 2),
    as from crepes, or (n, 2, L) at L levels, as from MAPIE: then `confidence_level` lists the levels, and the
    page is about the first but shows the coverage at each. With `X`, an array or a frame, the page looks for
    features where the intervals fail; `by` names or gives columns by whose values the coverage is shown. `name`
    is the method's name on the page.

    Examples
    --------
    >>> import numpy as np, lvd, tempfile, pathlib
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(300, 2))
    >>> y = X[:, 0] + rng.normal(size=300)
    >>> intervals = np.column_stack([X[:, 0] - 1.645, X[:, 0] + 1.645])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     verdict = lvd.report(y, X[:, 0], intervals, X=X, path=pathlib.Path(folder) / "report.html")
    >>> verdict.kind
    'holds, but no better than one width for all'
    """
    true, centre, found = check_vector(y), check_vector(y_pred, "y_pred"), check_intervals(intervals)
    check_same_length(y=true, y_pred=centre, intervals=found)
    described = Description(name, "not told", GIVEN, "given as arrays", HINDSIGHT, None)
    answers: dict[str, Any] = {"y": true, "y_pred": centre, "all_intervals": np.asarray(found, np.float64)}
    levels = check_levels_of(found, confidence_level)
    return _write(path, described, GivenRows.of(X, by, len(true)), target_names(y)[0], levels, **answers)


def report_method(
    method: IntervalRegressor,
    X: ArrayLike,
    y: ArrayLike,
    path: str | os.PathLike[str],
    *,
    by: By = (),
    target: str | None = None,
    confidence_level: float | None = None,
) -> Verdict:
    """Write the page of :meth:`IntervalRegressor.report`, and give its verdict."""
    if isinstance(method, LVDRegressor):
        return _report_local(method, X, y, path, by=by, target=target, confidence_level=confidence_level)
    names = method.columns_.targets if "columns_" in vars(method) else target_names(y)
    targets, chosen = _target_columns(y, names), only_target(names if target is None else [target])
    if chosen not in targets:
        raise InputError(f"target must be one of {', '.join(map(repr, names))}, got {chosen!r}")
    place, true = list(names).index(chosen), np.asarray(targets[chosen])
    given = check_levels(method.confidence_level if confidence_level is None else confidence_level)[:1]
    curve = levels_of_curve(method) if isinstance(method, ConformalMethod) else CURVE_LEVELS
    levels = np.array([*given, *(one for one in curve if one != given[0])])
    y_pred, intervals = map(to_numpy, method.predict_interval(X, levels.tolist()))
    check_same_length(X=y_pred, y=true)
    if not method.single_target_:
        y_pred, intervals = y_pred[:, place], intervals[..., place]
    rows = GivenRows.of(X, by, len(true))
    known = ~np.isnan(true)
    answers: dict[str, Any] = {"y": true[known], "y_pred": y_pred[known], "all_intervals": intervals[known]}
    calibration = None
    if isinstance(method, ConformalMethod):
        columns = method.y_calib_[:, place], method.residuals_calib_[:, place]
        calibration = columns[0][present_rows(columns[0])], columns[1][present_rows(columns[1])]
    return _write(
        *(path, _describe_method(method), rows.some(known), chosen, levels),
        calibration=calibration,
        y_range=method._bounds,
        **answers,
    )


@dataclass(frozen=True, eq=False)
class GivenRows:
    """Rows given with intervals: a table, its `columns` to examine one by one, the names of those `by` whose
    values rows are grouped, and the rows as numbers, which identify them."""

    table: pa.Table
    columns: tuple[str, ...]
    by: tuple[str, ...]
    numbers: Float[NDArray, "n p"] | None

    @classmethod
    def of(cls, X: Any, by: By, n_rows: int) -> GivenRows:
        """The rows of an array, a frame, a dict of columns or a list of dicts; with None, only the columns of
        `by`."""
        table, numbers = pa.table({}), None
        if X is not None:
            found = as_columns(X)
            table = matrix_table(X) if found is None else found
            check_same_length(y=range(n_rows), X=range(table.num_rows))
            table = table.select([name for name in table.column_names if has_texts(table[name])])
            inputs = np.array([_numbers_or_texts(column) for column in table.columns], dtype=object).T
            numbers = InputCoding.of(inputs)(inputs)
        columns = tuple(table.column_names)
        return cls(
            append_columns(table, by if isinstance(by, Mapping) else {}, n_rows), columns, tuple(by), numbers
        )

    def some(self, rows: Bool[NDArray, "n"]) -> GivenRows:
        """The marked rows."""
        numbers = None if self.numbers is None else self.numbers[rows]
        return replace(self, table=self.table.filter(pa.array(rows)), numbers=numbers)


def _numbers_or_texts(column: pa.ChunkedArray) -> list[Any]:
    numbers = column_numbers(column)
    return to_texts(column).to_pylist() if numbers is None else numbers.tolist()


def matrix_table(X: ArrayLike) -> pa.Table:
    """An array as a table with the columns x1, x2..."""
    matrix = check_matrix(X, missing=True)
    names = [f"x{number + 1}" for number in range(matrix.shape[1])]
    return pa.table([pa.array(column) for column in matrix.T], names=names)


def append_columns(table: pa.Table, columns: Mapping[str, Any], n_rows: int) -> pa.Table:
    """The table with these columns added, or replacing those of the same name."""
    for name, values in columns.items():
        if len(values) != n_rows:
            raise InputError(f"{name} has {len(values)} values and X has {n_rows} rows; give one for each")
        if name in table.column_names:
            table = table.drop_columns([name])
        table = table.append_column(name, pa.array(values, from_pandas=True))
    return table


def _describe_method(method: IntervalRegressor) -> Description:
    calibrated = isinstance(method, ConformalMethod)
    return Description(
        name=type(method).__name__.removesuffix("Regressor"),
        promise=PROMISED.get(method.guarantee, PROMISED["marginal"]),
        in_full=method.promise,
        how="as fitted",
        one_width="from the same calibration errors" if calibrated else HINDSIGHT,
        n_calib=method.n_calib_ if calibrated else None,
    )


def _write(
    path: str | os.PathLike[str],
    described: Description,
    rows: GivenRows,
    target: str,
    levels: Float[NDArray, "l"],
    **answers: Any,
) -> Verdict:
    """Write the page of these intervals, compared with one width for all rows."""
    check_columns(rows.table, rows.by)
    evaluated = evaluate_arrays(
        *(described, rows.table, rows.numbers),
        columns=rows.columns,
        target=target,
        levels=levels,
        **answers,
    )
    content = assemble(evaluated, make_methods(("split",), evaluated), by=rows.by)
    write_report(content, Origin.today(described.name, "X"), Path(path))
    return content.verdict


def _report_local(
    method: LVDRegressor,
    X: ArrayLike,
    y: ArrayLike,
    path: str | os.PathLike[str],
    *,
    by: By,
    target: str | None,
    confidence_level: float | None,
) -> Verdict:
    """The page of a method that explains the width of its intervals."""
    table, encoder = _as_table(method, X, y)
    model = TableModel.of(method, "memory", encoder)
    columns = {**_target_columns(y, model.encoder.targets), **(by if isinstance(by, Mapping) else {})}
    content = make_report(
        *(model, append_columns(table, columns, table.num_rows)),
        target=only_target(model.encoder.targets if target is None else [target]),
        by=tuple(by),
        confidence_level=confidence_level,
    )
    write_report(content, Origin.today(type(method).__name__, "X"), Path(path))
    return content.verdict


def _as_table(regressor: LVDRegressor, X: Any, y: Any) -> tuple[pa.Table, FrameEncoder | None]:
    """The rows, and how the method reads them if it stores no columns."""
    if "columns_" in vars(regressor):
        table = as_columns(X)
        if table is None:
            raise InputError(
                "the method was fitted on a frame; give X as a frame, a dict of columns or a list of dicts"
            )
        return table, None
    table = matrix_table(X)
    described = FrameColumns.of_numbers(tuple(table.column_names), target_names(y))
    return table, FrameEncoder(described.targets, described, as_matrix=True)


def _target_columns(y: Any, names: Sequence[str]) -> dict[str, Any]:
    columns = check_targets(y, missing=np.ndim(y) > 1)
    if columns.shape[1] != len(names):
        raise InputError(f"y has {columns.shape[1]} target column(s), but the method predicts {len(names)}")
    return dict(zip(names, columns.T, strict=True))
