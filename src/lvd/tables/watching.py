"""A model in use: rows that are labelled later join its calibration rows, or tell whether it still holds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lvd._validation import InputError, check_positive
from lvd.conformal.monitor import MonitorReport
from lvd.tables.inputs import labelled_parts
from lvd.tables.reading import Batches, counting_in_table
from lvd.tables.row_split import KeptRows
from lvd.tables.table_model import TableModel
from lvd.tables.writing import Unseen


@dataclass(frozen=True)
class UpdateReport:
    """How many rows were added, how many calibration rows there are now, and which rows were left out.

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


def update(
    model: TableModel, batches: Batches, *, n_newest: int | None = None
) -> tuple[TableModel, UpdateReport]:
    """Add labelled rows to the calibration rows, and keep `n_newest` of all; nothing is trained again.

    Training must not have seen the rows. They are numbered on from the last row that the model knows.
    """
    if n_newest is not None:
        check_positive(n_newest, "n_newest", integer=True)
    parts = list(labelled_parts(model.encoder, batches))
    if not any(part.rows.num_rows for part in parts):
        raise InputError("no row has a target and can be read, so there is nothing to add")
    table = pa.concat_tables([part.rows for part in parts])
    numbers = np.concatenate([part.numbers for part in parts])
    X = model.inputs(table, numbers=numbers)
    n_repeated = model.count_training_rows(X)
    with counting_in_table(numbers):
        model.regressor.update(X, model.encoder.target(table), groups=model.group_labels(table))
    old = model.kept or KeptRows(model.calibration_rows, model.test_rows)
    n_skipped, n_unlabelled = sum(part.n_skipped for part in parts), sum(part.n_unlabelled for part in parts)
    n_rows = len(numbers) + n_skipped + n_unlabelled
    calibration = np.concatenate([old.calibration, model.n_rows + old.n_added + numbers])
    cells = None if old.cells is None else (*old.cells, *model.encoder.transform(table))
    if n_newest is not None and n_newest < len(calibration):
        model.regressor.forget(n_newest)
        calibration, cells = calibration[-n_newest:], None if cells is None else cells[-n_newest:]
    kept = replace(old, calibration=calibration, cells=cells, n_added=old.n_added + n_rows)
    report = UpdateReport(
        n_rows, len(numbers), n_skipped, n_unlabelled, n_repeated, model.unseen(table), len(calibration)
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
    level, unseen = monitor.watch.confidence_level, Unseen()
    n_skipped = n_unlabelled = n_unknown = 0
    infinite = model.regressor.settings.when_unknown == "infinite"
    for part in labelled_parts(model.encoder, batches):
        rows, numbers = part.rows, part.numbers
        n_skipped, n_unlabelled = n_skipped + part.n_skipped, n_unlabelled + part.n_unlabelled
        if not len(numbers):
            continue
        X, found = model.infer(rows, np.array([level]), numbers=numbers)
        with counting_in_table(numbers):
            scores, hits = monitor.judge(X, model.encoder.target(rows), level, model.group_labels(rows))
        monitor.watch.take(scores, hits | (~found.known & infinite))
        n_unknown, unseen = n_unknown + int((~found.known).sum()), unseen + model.unseen(rows)
    report = monitor.report()
    if not report.n_seen:
        raise InputError("no row has a target and can be read, so there is nothing to watch")
    n_rows = report.n_seen + n_skipped + n_unlabelled
    return WatchReport(n_rows, n_skipped, n_unlabelled, n_unknown, unseen, report)
