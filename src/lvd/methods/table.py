"""A table's encoder and the regressor fitted behind it: columns in, columns of intervals out."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from lvd import _store
from lvd._typing import Float, Int, Levels, NDArray
from lvd._validation import InputError, check_levels, row_digests
from lvd.data.columns import Column, for_each_column, learn_column
from lvd.data.encoding import TableEncoder, check_names
from lvd.data.splits import split_indices
from lvd.data.writing import TableWriter
from lvd.methods import saving
from lvd.methods.base import CalibrationWarning
from lvd.methods.lvd import Explanation, LVDRegressor
from lvd.methods.table_reports import FitReport, PredictReport, TargetReport, report_target
from lvd.methods.table_rows import Batches, find_row, numbered


@dataclass(frozen=True, eq=False)
class TableModel:
    """A fitted :class:`LVDRegressor` and the :class:`TableEncoder` of the table it was fitted on.

    Parameters
    ----------
    encoder, regressor : what belongs together.
    n_rows, seed : of the table and of its split, which tell where in that table the calibration rows stand.
    """

    encoder: TableEncoder
    regressor: LVDRegressor
    n_rows: int
    seed: int

    @classmethod
    def fit(
        cls,
        table: pa.Table,
        regressor: LVDRegressor,
        *,
        target: str | Sequence[str],
        drop: Sequence[str] = (),
        impute: str | None = None,
        seed: int = 0,
    ) -> tuple[TableModel, FitReport]:
        """Train on 60% of the rows, conformalize on 20%, and report on the 20% that no step has seen.

        All columns but `target` and `drop` are inputs. Categories are those of the whole table, so that none
        of them is unknown later; the medians for missing numbers come from the training rows alone.
        """
        encoder = TableEncoder.fit(table, target=target, drop=drop, impute=impute)
        train, calib, test = split_indices(table.num_rows, seed)
        encoder = replace(encoder, columns=_with_medians(encoder.columns, table.take(train)))
        X, y = encoder.transform(table), encoder.target(table)
        regressor.set_params(calib_size=None).fit(X[train], y[train])
        with warnings.catch_warnings():
            # Rows that stand in a table twice are no mistake of the caller's: the report counts them.
            warnings.filterwarnings("ignore", ".*also stand in the training set", CalibrationWarning)
            regressor.conformalize(X[calib], y[calib])
        model = cls(encoder, regressor, table.num_rows, seed)
        targets, n_test, n_repeated = model._evaluate(table.take(test).to_batches())
        return model, FitReport(
            n_train=len(train),
            n_calib=len(calib),
            n_test=n_test,
            n_repeated=n_repeated + model._count_training_rows(X[calib]),
            n_features=X.shape[1],
            inputs=tuple(column.name for column in encoder.columns),
            left_out=tuple(drop),
            targets=targets,
        )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a folder that :meth:`load` reads, whole or not at all."""
        columns = {"encoder": self.encoder.to_dict(), "n_rows": self.n_rows, "seed": self.seed}
        try:
            saving.save(self.regressor, folder, columns=columns)
        except OSError as error:
            raise InputError(
                f"cannot write {os.fspath(folder)}: {error.strerror or error}; "
                "the folder it stands in must exist, be yours to write to, and have space"
            ) from error

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> TableModel:
        """What :meth:`save` wrote."""
        regressor, columns = saving.load(folder), saving.load_columns(folder)
        if not isinstance(regressor, LVDRegressor) or not isinstance(columns, dict):
            raise InputError(
                f"the model in {os.fspath(folder)} was not fitted on a table; use it in Python, with lvd.load"
            )
        encoder = TableEncoder.from_dict(columns.get("encoder"))
        n_rows, seed = columns.get("n_rows"), columns.get("seed")
        if (
            type(n_rows) is not int
            or type(seed) is not int
            or len(encoder.feature_names) != regressor.n_features_in_
            or len(encoder.targets) != regressor.n_targets_
            or abs(0.2 * n_rows - getattr(regressor, "n_calib_", 0)) > 1
        ):
            raise InputError(
                f"the columns and the regressor in {os.fspath(folder)} do not belong together; fit again"
            )
        return cls(encoder, regressor, n_rows, seed)

    @property
    def calibration_rows(self) -> Int[NDArray, "m"]:
        """Where the calibration rows stand in the table of :meth:`fit`; its rows count from 1."""
        return split_indices(self.n_rows, self.seed)[1] + 1

    @property
    def test_rows(self) -> Int[NDArray, "k"]:
        """Where the rows stand that no step has seen."""
        return split_indices(self.n_rows, self.seed)[2] + 1

    def predict(
        self, rows: pa.RecordBatch, confidence_level: Levels | None = None, *, first_row: int = 1
    ) -> dict[str, Float[NDArray, "n"]]:
        """The columns ``y_pred``, ``lower_90`` and ``upper_90`` (for each level) and ``n_effective``.

        With several targets each name ends in its target's, as in ``y_pred_mu``. `first_row` is the number of
        the first of these rows in its table, for the error messages.
        """
        levels = self._levels(confidence_level)
        X = self.encoder.transform(rows, first_row=first_row)
        y_pred, intervals = self._predict_interval(X, levels)
        embeddings = self.regressor.embed(X)
        columns = {}
        for t, conformal in enumerate(self.regressor.conformals_):
            suffix = f"_{self.encoder.targets[t]}" if len(self.encoder.targets) > 1 else ""
            columns[f"y_pred{suffix}"] = y_pred[:, t]
            for j, level in enumerate(levels.tolist()):
                columns[f"lower_{_percent(level)}{suffix}"] = intervals[:, 0, j, t]
                columns[f"upper_{_percent(level)}{suffix}"] = intervals[:, 1, j, t]
            columns[f"n_effective{suffix}"] = conformal.effective_sample_size(embeddings)
        return columns

    def predict_to(
        self,
        out: str | os.PathLike[str],
        batches: Batches,
        confidence_level: Levels | None = None,
        *,
        on_rows: Callable[[int], None] | None = None,
    ) -> PredictReport:
        """Write each batch to the file `out` (see `TableWriter`), with the columns of :meth:`predict` added.

        `on_rows` is called after each batch with its number of rows.
        """
        n_rows, n_finite = 0, Counter[str]()
        with TableWriter(out) as writer:
            for first_row, rows in numbered(batches):
                columns = self.predict(rows, confidence_level, first_row=first_row)
                writer.write(rows, columns)
                n_rows += rows.num_rows
                n_finite.update(_count_finite(columns))
                if on_rows is not None:
                    on_rows(rows.num_rows)
        return PredictReport(n_rows, {name: count / n_rows for name, count in n_finite.items()})

    def evaluate(
        self,
        batches: Batches,
        confidence_level: Levels | None = None,
        *,
        targets: Sequence[str] = (),
        by: str | None = None,
    ) -> tuple[TargetReport, ...]:
        """The metrics of all targets, or of those named, and their coverage by the values of a column.

        A number with more than 20 distinct values is grouped in ten equally full bins. Rows that the model
        was trained on are warned of: their errors are too small to tell anything.
        """
        reports, n_rows, n_known = self._evaluate(batches, confidence_level, targets=targets, by=by)
        if n_known:
            warnings.warn(
                f"{n_known} of {n_rows} rows have the inputs of a training row: where the model was trained on "
                "them, its errors are too small; evaluate on rows that it has not seen",
                CalibrationWarning,
                stacklevel=2,
            )
        return reports

    def explain(
        self,
        batches: Batches,
        row: int,
        confidence_level: float | None = None,
        *,
        n_neighbors: int = 10,
    ) -> list[Explanation]:
        """Why the interval of row number `row` is as it is, one explanation per target.

        Rows count from 1, `row` in this table, the neighbours' `index` in the table of :meth:`fit`.
        """
        X = self.encoder.transform(find_row(batches, row), first_row=row)
        places = self.calibration_rows
        explanations = []
        for explanation in self.regressor.explain(X, confidence_level, n_neighbors=n_neighbors):
            evidence = explanation.evidence
            neighbors = tuple(replace(n, index=int(places[n.index])) for n in evidence.neighbors)
            explanations.append(
                replace(explanation, row=row, evidence=replace(evidence, neighbors=neighbors))
            )
        return explanations

    def _evaluate(
        self,
        batches: Batches,
        confidence_level: Levels | None = None,
        *,
        targets: Sequence[str] = (),
        by: str | None = None,
    ) -> tuple[tuple[TargetReport, ...], int, int]:
        """The reports, the number of rows, and how many of them have the inputs of a training row."""
        levels = self._levels(confidence_level)
        places = [self._find_target(target) for target in targets or self.encoder.targets]
        encoder = replace(self.encoder, targets=tuple(self.encoder.targets[t] for t in places))
        ys, y_preds, intervals, groups, n_known = [], [], [], [], 0
        for first_row, rows in numbered(batches):
            check_names(rows, [] if by is None else [by])
            X = encoder.transform(rows, first_row=first_row)
            y_pred, interval = self._predict_interval(X, levels)
            ys.append(encoder.target(rows, first_row=first_row).reshape(len(X), -1))
            y_preds.append(y_pred[:, places])
            intervals.append(interval[..., places])
            groups.append(None if by is None else rows.column(by))
            n_known += self._count_training_rows(X)
        y, y_pred, interval = (np.concatenate(parts) for parts in (ys, y_preds, intervals))
        values = None if by is None else pa.chunked_array(groups)
        reports = tuple(
            report_target(target, y[:, t], y_pred[:, t], interval[..., t], levels=levels, groups=values)
            for t, target in enumerate(encoder.targets)
        )
        return reports, len(y), n_known

    def _levels(self, confidence_level: Levels | None) -> Float[NDArray, "l"]:
        levels = check_levels(
            self.regressor.confidence_level if confidence_level is None else confidence_level
        )
        if len({_percent(level) for level in levels.tolist()}) < len(levels):
            raise InputError(f"confidence_level must name each level once, got {levels.tolist()}")
        return levels

    def _predict_interval(
        self, X: Float[NDArray, "n p"], levels: Float[NDArray, "l"]
    ) -> tuple[Float[NDArray, "n t"], Float[NDArray, "n 2 l t"]]:
        """As the regressor's, with a column for each target even where it is the only one."""
        y_pred, intervals = self.regressor.predict_interval(X, levels)
        return y_pred.reshape(len(X), -1), intervals.reshape(len(X), 2, len(levels), -1)

    def _find_target(self, name: str) -> int:
        if name not in self.encoder.targets:
            known = ", ".join(map(repr, self.encoder.targets))
            raise InputError(f"target must be what the model was fitted to predict, {known}, got {name!r}")
        return self.encoder.targets.index(name)

    def _count_training_rows(self, X: Float[NDArray, "n p"]) -> int:
        return int(np.isin(row_digests(X), self.regressor.train_digests_).sum())


def check_free(folder: str | os.PathLike[str], *, force: bool) -> None:
    """A model may be written to `folder`: nothing stands there, or, with `force`, an older model."""
    if Path(folder).exists() and not force:
        raise InputError(f"{os.fspath(folder)} exists already; give --force to replace it, or another --out")
    _store.check_replaceable(Path(folder))


def _with_medians(columns: Sequence[Column], train: pa.Table) -> tuple[Column, ...]:
    """The columns with the medians of these rows, where missing numbers are to be replaced at all."""
    by_name = {column.name: column for column in columns}

    def relearn(name: str) -> Column:
        if by_name[name].median is None:
            return by_name[name]
        return replace(by_name[name], median=learn_column(name, train[name], impute=True).median)

    return tuple(for_each_column(list(by_name), relearn, noun="training rows of column", may_drop=True))


def _percent(level: float) -> str:
    """``90`` for 0.9, ``99.9`` for 0.999."""
    return f"{100.0 * level:.10g}"


def _count_finite(columns: Mapping[str, Float[NDArray, "n"]]) -> dict[str, int]:
    """The number of finite intervals for what follows ``lower_`` in the names of the columns."""
    names = [name.removeprefix("lower_") for name in columns if name.startswith("lower_")]
    return {
        name: int((np.isfinite(columns[f"lower_{name}"]) & np.isfinite(columns[f"upper_{name}"])).sum())
        for name in names
    }
