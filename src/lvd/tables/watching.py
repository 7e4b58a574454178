"""A deployed model: rows labelled later join its calibration rows, or show whether it still holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lvd._typing import Int, NDArray
from lvd._validation import InputError, Parameter, check_positive
from lvd.calibration.monitor import MonitorReport
from lvd.tables.column_values import list_rows
from lvd.tables.inputs import labelled_parts
from lvd.tables.reading import Batches, counting_in_table
from lvd.tables.splits import KeptRows, repeats_earlier, row_ids
from lvd.tables.table_encoder import Unseen
from lvd.tables.table_model import TableModel


@dataclass(frozen=True)
class UpdateReport:
    """How many rows were added, how many calibration rows there are now, and which rows were left out.

    `n_repeated` of the added rows have the inputs of a training row, `n_again` were already in use or repeat an
    earlier row of the table, and `unseen` are those with new groups and levels.
    """

    n_rows: int
    n_added: int
    n_skipped: int
    n_unlabelled: int
    n_repeated: int
    n_again: int
    unseen: Unseen
    n_calib: int


@dataclass(frozen=True)
class WatchReport:
    """What the rows say about the model, and which of them were left out.

    `n_repeated` have the inputs of a training row, `n_calibrating` are calibration rows.
    """

    n_rows: int
    n_skipped: int
    n_unlabelled: int
    n_repeated: int
    n_calibrating: int
    n_unknown: int
    unseen: Unseen
    monitor: MonitorReport


def update(
    model: TableModel, batches: Batches, *, n_newest: int | None = None, allow_repeated: bool = False
) -> tuple[TableModel, UpdateReport]:
    """Add labelled rows to the calibration rows, keeping `n_newest` of all, without retraining.

    Rows that train or calibrate the model, or repeat an earlier row, are recognised by their inputs and targets
    and rejected, unless `allow_repeated`: then coverage is no longer guaranteed. The others are numbered after
    the last row that the model knows.
    """
    if n_newest is not None:
        check_positive(n_newest, "n_newest", integer=True)
    parts = list(labelled_parts(model.encoder, model.as_rows(batches)))
    if not any(part.rows.num_rows for part in parts):
        raise InputError("no row has a target and can be read, so there is nothing to add")
    table = pa.concat_tables([part.rows for part in parts])
    numbers = np.concatenate([part.numbers for part in parts])
    X, y = model.inputs(table, numbers=numbers), model.encoder.target(table)
    ids, n_repeated = row_ids(X, y), model.count_training_rows(X)
    n_again = _find_again(model, X, ids, numbers, allow=allow_repeated)
    with counting_in_table(numbers):
        model.regressor.update(X, y, groups=model.group_labels(table))
    old = model.kept or KeptRows(model.calibration_rows, model.test_rows)
    n_skipped, n_unlabelled = sum(part.n_skipped for part in parts), sum(part.n_unlabelled for part in parts)
    n_rows = len(numbers) + n_skipped + n_unlabelled
    calibration = np.concatenate([old.calibration, model.n_rows + old.n_added + numbers])
    cells = None if old.cells is None else (*old.cells, *model.encoder.transform(table))
    if n_newest is not None and n_newest < len(calibration):
        model.regressor.forget(n_newest)
        calibration, cells = calibration[-n_newest:], None if cells is None else cells[-n_newest:]
    kept = replace(old, calibration=calibration, cells=cells, n_added=old.n_added + n_rows)
    counts = len(numbers), n_skipped, n_unlabelled, n_repeated, n_again
    report = UpdateReport(n_rows, *counts, model.unseen(table), len(calibration))
    seen = None if model.seen is None else model.seen.with_more(ids, n_newest)
    return replace(model, kept=kept, seen=seen), report


def _find_again(
    model: TableModel, X: Any, ids: Int[NDArray, "n t"], numbers: Int[NDArray, "n"], *, allow: bool
) -> int:
    """How many rows are already in use or repeat an earlier one; raises unless that is allowed."""
    earlier, calibrated = repeats_earlier(ids), model.calibrating(X, ids)
    trained = model.training_inputs(X) if model.seen is None else model.seen.trained(ids)
    again = trained | calibrated | earlier
    if again.any() and not allow:
        cases = (
            ("trained the model", trained),
            ("already calibrate it", calibrated & ~trained),
            ("repeat an earlier row of the table", earlier & ~trained & ~calibrated),
        )
        told = ", ".join(
            f"{mask.sum():,} {what} ({list_rows(mask, numbers)})" for what, mask in cases if mask.any()
        )
        raise InputError(
            f"{again.sum():,} of {len(ids):,} rows have the inputs and targets of rows in use: {told}; remove "
            "them, or give ",
            Parameter("allow_repeated", True),
            ", and the intervals may become too narrow",
        )
    return int(again.sum())


def watch(
    model: TableModel,
    batches: Batches,
    confidence_level: float | None = None,
    *,
    false_alarm_rate: float = 0.01,
    window: int = 200,
) -> WatchReport:
    """Whether labelled rows, in order of arrival, resemble the calibration rows and have similar errors."""
    monitor = model.regressor.monitor(
        confidence_level, false_alarm_rate=false_alarm_rate, window=window, random_state=model.seed
    )
    level, unseen = monitor.watch.confidence_level, Unseen()
    n_skipped = n_unlabelled = n_unknown = n_repeated = n_calibrating = 0
    infinite = model.regressor._infinite_when_unknown
    for part in labelled_parts(model.encoder, model.as_rows(batches)):
        rows, numbers = part.rows, part.numbers
        n_skipped, n_unlabelled = n_skipped + part.n_skipped, n_unlabelled + part.n_unlabelled
        if not len(numbers):
            continue
        X, found = model.infer(rows, np.array([level]), numbers=numbers)
        y = model.encoder.target(rows)
        with counting_in_table(numbers):
            judged = monitor.judge(X, y, level, model.group_labels(rows))
        hits = judged.covered | (~found.known & infinite)
        monitor.watch.take(judged.scores, hits, judged.places)
        n_repeated += model.count_training_rows(X)
        n_calibrating += int(model.calibrating(X, row_ids(X, y)).sum())
        n_unknown, unseen = n_unknown + int((~found.known).sum()), unseen + model.unseen(rows)
    report = monitor.report()
    if not report.n_seen:
        raise InputError("no row has a target and can be read, so there is nothing to watch")
    n_rows = report.n_seen + n_skipped + n_unlabelled
    counts = n_skipped, n_unlabelled, n_repeated, n_calibrating, n_unknown
    return WatchReport(n_rows, *counts, unseen, report)
