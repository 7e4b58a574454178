"""Tables that arrive over time: rows with a key in, intervals out, and labels by key later."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lvd._files import refusing
from lvd._typing import Float, NDArray
from lvd._validation import InputError, Parameter
from lvd.methods.base import interval_columns
from lvd.methods.online_intervals import OnlineIntervals
from lvd.store import load_object, read_manifest, save_object
from lvd.tables.column_values import as_table, check_columns, for_each_column, list_rows, to_texts
from lvd.tables.dates import DAY, to_moments
from lvd.tables.reading import Batches, numbered
from lvd.tables.table_encoder import TableEncoder, labelled_rows, read_targets
from lvd.tables.table_model import TableModel
from lvd.tables.writing import TableWriter


@dataclass(frozen=True)
class OnlinePredictReport:
    """How many rows were written, how many of them have an infinite interval, and how many resemble no row seen."""

    n_rows: int
    n_infinite: int
    n_unknown: int


@dataclass(frozen=True)
class ObserveReport:
    """How many labels were used; ignored are those of rows not waiting for one, and rows without a label."""

    n_rows: int
    n_taken: int
    n_ignored: int
    n_unlabelled: int


@dataclass(frozen=True, eq=False)
class OnlineTable:
    """Intervals over time for tables like the one a model was fitted on; `key` is the column that identifies
    rows, and `time`, if any, the column of dates."""

    encoder: TableEncoder
    online: OnlineIntervals
    key: str
    time: str | None = None

    @classmethod
    def of(cls, model: TableModel, key: str, *, time: str | None = None, **choices: Any) -> OnlineTable:
        """Start from a fitted model; `choices` are those of :class:`lvd.OnlineIntervals`."""
        if not isinstance(model.encoder, TableEncoder):
            raise InputError("intervals over time are for tables of columns, not for molecules yet")
        if model.forecast is not None:
            raise InputError(
                "intervals over time are for models of rows, not of forecasts; fit one without a horizon, or use "
                "lvd.OnlineIntervals in Python, where each horizon is a target"
            )
        if key in model.encoder.targets:
            raise InputError(Parameter("key"), f" must be another column than the target, got {key!r}")
        online = OnlineIntervals(model.regressor, **choices)
        if time is None and online.in_days:
            raise InputError(
                *(Parameter("half_life"), " is a span, so rows need their dates; name their column with "),
                Parameter("time", named=True),
            )
        return cls(model.encoder, online, key, time)

    def save(self, folder: str | os.PathLike[str], *, replace: bool = True) -> None:
        """Write a folder that :meth:`load` reads, atomically."""
        columns = {"encoder": self.encoder.to_dict(), "key": self.key, "time": self.time}
        with refusing(folder):
            save_object(self.online, folder, columns=columns, replace=replace)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> OnlineTable:
        """Load what :meth:`save` wrote."""
        columns, online = read_manifest(folder).get("columns"), load_object(folder, {})
        if not isinstance(online, OnlineIntervals) or not isinstance(columns, dict) or "key" not in columns:
            raise InputError(
                f"{os.fspath(folder)} holds no intervals over time of a table; make some with lvd online init"
            )
        encoder, key = TableEncoder.from_dict(columns.get("encoder")), columns["key"]
        time = columns.get("time")
        fits = len(encoder.feature_names) == getattr(online.regressor, "n_features_in_", 0)
        named = isinstance(key, str) and isinstance(time, str | None)
        if not named or not fits or len(encoder.targets) != online.n_targets:
            raise InputError(
                f"the columns and the intervals in {os.fspath(folder)} do not belong together; start again with "
                "lvd online init"
            )
        return cls(encoder, online, key, time)

    def predict_to(
        self,
        out: str | os.PathLike[str],
        batches: Batches,
        keep: Callable[[], None],
        *,
        on_rows: Callable[[int], None] | None = None,
    ) -> OnlinePredictReport:
        """Write each batch to the file `out` with prediction, interval and ``known``; `keep` saves the state.

        The state is saved before the file appears: if that fails, the same rows get the same intervals again.
        """
        report = OnlinePredictReport(0, 0, 0)
        with TableWriter(out) as writer:
            for numbers, rows in numbered(batches):
                table = as_table(rows)
                added = self.predict(table, numbers)
                writer.write(table, added)
                ends = np.stack(
                    [values for name, values in added.items() if name.startswith(("lower_", "upper_"))]
                )
                report = replace(
                    report,
                    n_rows=report.n_rows + table.num_rows,
                    n_infinite=report.n_infinite + int(np.isinf(ends).any(axis=0).sum()),
                    n_unknown=report.n_unknown + int((~added["known"]).sum()),
                )
                if on_rows is not None:
                    on_rows(table.num_rows)
            keep()
        return report

    def predict(self, table: pa.Table, numbers: NDArray) -> dict[str, NDArray]:
        """The columns that :meth:`predict_to` adds to rows with these numbers."""
        keys = self._keys(table, numbers)
        X = self.online.regressor_.model_.check(self.encoder.transform(table, numbers=numbers))
        new = self.encoder.unseen(table).values()
        unknown = np.logical_or.reduce([np.zeros(len(keys), bool), *new])
        found = self.online.predict_interval(X, keys=keys, unknown=unknown, times=self._days(table, numbers))
        n_rows, n_targets = len(keys), len(self.encoder.targets)
        y_pred, ends = found.y_pred.reshape(n_rows, -1), found.intervals.reshape(n_rows, 2, 1, n_targets)
        names = [f"_{name}" for name in self.encoder.targets] if n_targets > 1 else [""]
        columns = interval_columns(y_pred, ends, np.array([self.online.target_level]), names)
        return columns | {"known": found.known}

    def observe(self, batches: Batches) -> ObserveReport:
        """Take the labels from a table with the key and the targets; its other columns are ignored."""
        report = ObserveReport(0, 0, 0, 0)
        for numbers, rows in numbered(batches):
            table = as_table(rows)
            check_columns(table, [self.key, *self.encoder.targets])
            labelled = labelled_rows(table, self.encoder.targets, every=False)
            some = table.filter(pa.array(labelled))
            taken = ignored = 0
            if some.num_rows:
                y = read_targets(some, self.encoder.targets)
                taken, ignored = self.online.observe(self._keys(some, numbers[labelled]), y)
            report = ObserveReport(
                report.n_rows + table.num_rows,
                report.n_taken + taken,
                report.n_ignored + ignored,
                report.n_unlabelled + int((~labelled).sum()),
            )
        return report

    def _days(self, table: pa.Table, numbers: NDArray) -> Float[NDArray, "n"] | None:
        """The days of the rows, if there is a time column."""
        if self.time is None:
            return None
        check_columns(table, [self.time])
        (moments,) = for_each_column([self.time], lambda name: to_moments(table[name], numbers=numbers))
        missing = np.isnan(moments)
        if missing.any():
            raise InputError(
                f"column {self.time!r} lacks dates ({list_rows(missing, numbers)}); fill them in"
            )
        return moments / DAY

    def _keys(self, table: pa.Table, numbers: NDArray) -> list[str]:
        check_columns(table, [self.key])
        keys = to_texts(table[self.key]).to_pylist()
        missing = np.array([key is None or key == "" for key in keys])
        if missing.any():
            raise InputError(
                f"column {self.key!r} identifies the rows, and its key is missing in {missing.sum():,} of them "
                f"({list_rows(missing, numbers)}); give each row its own key"
            )
        return keys
