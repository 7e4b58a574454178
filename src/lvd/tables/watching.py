"""A model in use: rows that are labelled later join its calibration rows, or tell whether it still holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lvd._typing import Float, Int, NDArray
from lvd._validation import InputError, check_positive
from lvd.conformal.monitor import MonitorReport
from lvd.tables.column_values import plain_types
from lvd.tables.reading import Batches, counting_in_table, numbered
from lvd.tables.row_split import KeptRows
from lvd.tables.table_encoder import labelled_rows
from lvd.tables.table_model import TableModel
from lvd.tables.writing import Unseen


@dataclass(frozen=True)
class UpdateReport:
    """How many rows were added, how many rows calibrate now, and which were left out.

    `n_repeated` of the added rows repeat a training row, `unseen` are those with new groups and levels.
    """

    n_rows: int
    n_added: int
    n_skipped: int
    n_unlabelled: int
    n_repeated: int
    unseen: Unseen
    n_calib: int


@dataclass(frozen=True)
class WatchReport:
    """What the rows say about the model, and which of them were left out."""

    n_rows: int
    n_skipped: int
    n_unlabelled: int
    n_unknown: int
    unseen: Unseen
    monitor: MonitorReport


@dataclass(frozen=True, eq=False)
class _Labelled:
    """The rows of a batch that have inputs and targets; `numbers` are theirs in the table, counting from 1."""

    rows: pa.Table
    X: Any
    y: Float[NDArray, "n *t"]
    numbers: Int[NDArray, "n"]
    n_skipped: int
    n_unlabelled: int


def update(
    model: TableModel, batches: Batches, *, n_newest: int | None = None
) -> tuple[TableModel, UpdateReport]:
    """Add labelled rows to the calibration rows, and keep `n_newest` of all; nothing is trained again.

    The rows must be such as training has not seen. They count on from the last row that the model knows of.
    """
    if n_newest is not None:
        check_positive(n_newest, "n_newest", integer=True)
    some = list(_labelled(model, batches))
    if not any(len(one.y) for one in some):
        raise InputError("no row has a target and can be read, so there is nothing to add")
    table = pa.concat_tables([one.rows for one in some])
    y, numbers = (np.concatenate([getattr(one, name) for one in some]) for name in ("y", "numbers"))
    X = model.inputs(table)
    n_repeated = model.count_training_rows(X)
    with counting_in_table(numbers):
        model.regressor.update(X, y, groups=model.group_labels(table))
    old = model.kept or KeptRows(model.calibration_rows, model.test_rows)
    n_skipped, n_unlabelled = (
        sum(getattr(one, name) for one in some) for name in ("n_skipped", "n_unlabelled")
    )
    n_rows = len(y) + n_skipped + n_unlabelled
    calibration = np.concatenate([old.calibration, model.n_rows + old.n_added + numbers])
    cells = None if old.cells is None else (*old.cells, *map(str, model.encoder.labels(table) or ()))
    if n_newest is not None and n_newest < len(calibration):
        model.regressor.forget(n_newest)
        calibration, cells = calibration[-n_newest:], None if cells is None else cells[-n_newest:]
    kept = replace(old, calibration=calibration, cells=cells, n_added=old.n_added + n_rows)
    report = UpdateReport(
        n_rows, len(y), n_skipped, n_unlabelled, n_repeated, model.unseen(table), len(calibration)
    )
    return replace(model, kept=kept), report


def watch(
    model: TableModel,
    batches: Batches,
    confidence_level: float | None = None,
    *,
    false_alarm_rate: float = 0.01,
    window: int = 200,
) -> WatchReport:
    """Whether labelled rows, in order of arrival, have errors like those of the calibration rows."""
    monitor = model.regressor.monitor(
        confidence_level, false_alarm_rate=false_alarm_rate, window=window, random_state=model.seed
    )
    level, n_rows, n_skipped, n_unlabelled, n_unknown, unseen = (
        monitor.watch.confidence_level,
        0,
        0,
        0,
        0,
        Unseen(),
    )
    infinite = model.regressor.settings.when_unknown == "infinite"
    for one in _labelled(model, batches):
        n_rows += len(one.numbers) + one.n_skipped + one.n_unlabelled
        n_skipped, n_unlabelled = n_skipped + one.n_skipped, n_unlabelled + one.n_unlabelled
        if not len(one.numbers):
            continue
        with counting_in_table(one.numbers):
            scores, hits = monitor.judge(one.X, one.y, level, model.group_labels(one.rows))
        _, found = model.infer(one.rows, [level], numbers=one.numbers)
        monitor.watch.take(scores, hits | (~found.known & infinite))
        n_unknown, unseen = n_unknown + int((~found.known).sum()), unseen + model.unseen(one.rows)
    report = monitor.report()
    if not report.n_seen:
        raise InputError("no row has a target and can be read, so there is nothing to watch")
    return WatchReport(n_rows, n_skipped, n_unlabelled, n_unknown, unseen, report)


def _labelled(model: TableModel, batches: Batches) -> Iterator[_Labelled]:
    encoder = model.encoder
    for first_row, batch in numbered(map(plain_types, batches)):
        usable = encoder.usable(batch, first_row=first_row)
        labelled = labelled_rows(batch, encoder.targets, first_row=first_row)
        chosen = np.flatnonzero(usable & labelled)
        counts = int((~usable).sum()), int((usable & ~labelled).sum())
        rows = pa.Table.from_batches([batch.take(pa.array(chosen))])
        X = model.inputs(batch.filter(pa.array(usable)), first_row=first_row) if len(chosen) else None
        y = encoder.target(rows)
        yield _Labelled(
            rows, None if X is None else X[np.flatnonzero(labelled[usable])], y, first_row + chosen, *counts
        )
