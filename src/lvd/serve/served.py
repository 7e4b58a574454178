"""Everything that can be served, behind one interface: table models, other methods, and intervals over time."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa

from lvd._typing import Float, NDArray
from lvd._validation import InputError, Parameter, check_choice
from lvd.calibration.guarantees import GUARANTEES
from lvd.methods.base import IntervalRegressor, interval_columns
from lvd.methods.lvd import LVDRegressor
from lvd.page.row_details import read_neighbors
from lvd.serve.columns import ColumnFacts, describe_columns
from lvd.serve.refusals import RefusedError
from lvd.store import load_object, locked, read_manifest
from lvd.store.folder import MANIFEST
from lvd.tables.frame_encoder import FrameEncoder
from lvd.tables.inputs import RowEncoder
from lvd.tables.online_table import OnlineTable
from lvd.tables.table_encoder import TableEncoder
from lvd.tables.table_model import TableModel

Columns: TypeAlias = dict[str, NDArray]
Signature: TypeAlias = tuple[Any, ...]

N_QUANTILES = 99
"""How many evenly spaced quantiles describe a row's distribution."""


class Served(ABC):
    """A loaded model; `version` identifies what its folder holds, `signature` its state on disk."""

    keeps_rows: ClassVar[bool] = False
    """Whether predictions change the model, so that requests run one at a time."""

    def __init__(self, folder: Path, encoder: RowEncoder, method: Any) -> None:
        self.folder, self.encoder, self.method = folder, encoder, method
        self.signature: Signature = ()
        self.version = ""
        self.columns: tuple[ColumnFacts, ...] = describe_columns(encoder, method)

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the targets."""
        return self.encoder.targets

    @property
    def levels(self) -> list[float]:
        """The default levels of a request."""
        return np.atleast_1d(self.method.confidence_level).tolist()

    @property
    def promise(self) -> str:
        """The guarantee of the intervals, in one sentence."""
        return self.method.promise

    @property
    def guarantees(self) -> tuple[str, ...]:
        """The guarantees that a request may ask for."""
        return tuple(GUARANTEES)

    @property
    def needed(self) -> list[str]:
        """The columns that rows must have."""
        return [column.name for column in self.columns]

    @property
    def label_columns(self) -> list[str]:
        """The columns that labels must have."""
        return list(self.targets)

    @property
    def plain_kinds(self) -> dict[str, str]:
        """The kinds of the required columns, if rows can be read independently of each other."""
        dates = "date" if isinstance(self.encoder, FrameEncoder) else "category"
        return {one.name: dates if one.kind == "date" else one.kind for one in self.columns}

    @abstractmethod
    def predict(self, rows: pa.Table, levels: Sequence[float] | None, guarantee: str | None) -> Columns:
        """The columns that ``lvd predict`` adds."""

    def explain(self, rows: pa.Table, level: float | None, n_neighbors: int) -> list[list[dict[str, Any]]]:
        """The output of ``lvd explain --json`` and the distribution, for each row and target."""
        raise RefusedError(
            *(409, f"a {type(self.method).__name__} has no similar calibration rows to show", "path"),
            "serve an LVDRegressor for explanations",
        )

    def observe(self, rows: pa.Table) -> dict[str, int]:
        """Take the labels of predicted rows."""
        raise RefusedError(
            *(409, "this model takes no labels", "path"),
            "begin intervals over time with lvd online init, and serve its folder",
        )

    @contextmanager
    def changing(self) -> Iterator[None]:
        """A context in which the model may change; changes are on disk when it exits."""
        yield

    def show_rows_of(self, table: pa.Table) -> None:
        """Show the cells of calibration rows from the table that the model was fitted on."""
        raise InputError(
            *(
                Parameter("fitted_on", named=True),
                f" is for models that explain, not for {type(self.method).__name__}",
            ),
            "; leave it out",
        )

    def status(self) -> dict[str, Any]:
        """The model's health."""
        return {}


class ServedTable(Served):
    """A table model written by ``lvd fit``, or a fitted :class:`LVDRegressor` saved in Python."""

    def __init__(self, folder: Path, model: TableModel) -> None:
        if model.forecast is not None:
            raise InputError(
                f"the model in {os.fspath(folder)} forecasts a series, and requests hold single rows; use lvd "
                "predict"
            )
        super().__init__(folder, model.encoder, model.regressor)
        self.model = model
        self._by_guarantee: dict[str | None, TableModel] = {None: model}
        self._fitted_on: pa.Table | None = None
        if model.groups is not None and model.groups not in self.needed:
            self.columns = (*self.columns, ColumnFacts(model.groups, "category"))

    @property
    def promise(self) -> str:
        """The promise of the guarantee chosen at fit time."""
        return self.model.promise

    @property
    def guarantees(self) -> tuple[str, ...]:
        """All of them if rows were set aside for calibration."""
        return ("local",) if self.model.regressor.is_crossed else super().guarantees

    def predict(self, rows: pa.Table, levels: Sequence[float] | None, guarantee: str | None) -> Columns:
        """See :meth:`TableModel.predict`."""
        if guarantee is not None and guarantee not in self._by_guarantee:
            check_choice(guarantee, "guarantee", GUARANTEES)
            self._by_guarantee[guarantee] = replace(self.model, guarantee=guarantee)
        return self._by_guarantee[guarantee].predict(rows, None if levels is None else list(levels))

    def explain(self, rows: pa.Table, level: float | None, n_neighbors: int) -> list[list[dict[str, Any]]]:
        """Explain each row with :meth:`TableModel.explain`."""
        shapes = self._distributions(rows)
        found = []
        for number in range(rows.num_rows):
            explained = self.model.explain([rows], number + 1, level, n_neighbors=n_neighbors)
            told = [
                self._with_cells(asdict(one))
                | {"target": target, "sentence": one.sentence, "distribution": shape}
                for one, target, shape in zip(explained, self.targets, shapes[number], strict=True)
            ]
            found.append(told)
        return found

    def show_rows_of(self, table: pa.Table) -> None:
        """Use this table for the neighbours' cells; raise if it is not the fitted one."""
        read_neighbors(self.model, self.targets[0], table)
        self._fitted_on = table.select([name for name in self.encoder.inputs if name in table.column_names])

    def _with_cells(self, told: dict[str, Any]) -> dict[str, Any]:
        """The explanation with the cells of its neighbours, if the table at hand has them."""
        if self._fitted_on is not None:
            for one in told["evidence"]["neighbors"]:
                row = self._fitted_on.slice(one["index"] - 1, 1).to_pylist()  # others were added by update
                one["cells"] = row[0] if row else {}
        return told

    def _distributions(self, rows: pa.Table) -> list[list[Any]]:
        """The quantiles of each row and target's distribution; None for joint targets."""
        if self.model.regressor.joint is not None:
            return [[None] * len(self.targets)] * rows.num_rows
        shares = np.arange(1, N_QUANTILES + 1) / (N_QUANTILES + 1)
        self.encoder.usable(rows)
        found = self.model.distribution(rows, self.model.inputs(rows)).quantile(shares.tolist())
        by_target = np.asarray(found).reshape(rows.num_rows, N_QUANTILES, len(self.targets))
        return np.moveaxis(by_target, 1, 2).tolist()


class ServedMethod(Served):
    """Any other method saved in Python."""

    def predict(self, rows: pa.Table, levels: Sequence[float] | None, guarantee: str | None) -> Columns:
        """Intervals, and ``known`` if the method decides it."""
        X = self.encoder.transform(rows)
        asked = self.method._levels(None if levels is None else list(levels))
        y_pred, intervals = self.method.predict_interval(X, asked, guarantee=guarantee)
        n_rows, n_targets = rows.num_rows, len(self.targets)
        names = [""] if n_targets == 1 else [f"_{name}" for name in self.targets]
        ends: Float[NDArray, "n 2 l t"] = np.asarray(intervals).reshape(n_rows, 2, len(asked), n_targets)
        columns: Columns = interval_columns(np.asarray(y_pred).reshape(n_rows, -1), ends, asked, names)
        known = self.method._known(self.method._check_inputs(X))
        return columns | {"known": np.full(n_rows, None, object) if known is None else known}


class ServedOnline(Served):
    """Intervals over time, for rows with a key; changes are on disk before a request is answered."""

    keeps_rows = True

    def __init__(self, folder: Path, table: OnlineTable) -> None:
        super().__init__(folder, table.encoder, table.online.regressor_)
        self.table = table
        more = {table.time: "date", table.key: "category"}
        self.columns += tuple(
            ColumnFacts(name, kind)
            for name, kind in more.items()
            if name is not None and name not in self.needed
        )

    @property
    def label_columns(self) -> list[str]:
        """The key, and the targets."""
        return [self.table.key, *self.targets]

    @property
    def levels(self) -> list[float]:
        """The long-run target level."""
        return [self.table.online.target_level]

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Lock the folder for one process; if another one changed it, reload its state first."""
        with locked(self.folder):
            if signature_of(self.folder) != self.signature:
                self._read()
            try:
                yield
                self.table.save(self.folder)
            except BaseException:
                self.signature = ()  # the state in memory differs from the one on disk
                raise
            self.signature = signature_of(self.folder)

    def _read(self) -> None:
        self.signature, self.table = signature_of(self.folder), OnlineTable.load(self.folder)

    def predict(self, rows: pa.Table, levels: Sequence[float] | None, guarantee: str | None) -> Columns:
        """Intervals of rows whose labels are not known yet."""
        for name, value in (("level", levels), ("guarantee", guarantee)):
            if value is not None:
                raise RefusedError(
                    *(422, f"intervals over time have their own {name}", f"option {name}"),
                    "leave it out, or choose it with lvd online init",
                )
        return self.table.predict(rows, np.arange(1, rows.num_rows + 1))

    def observe(self, rows: pa.Table) -> dict[str, int]:
        """See :meth:`OnlineTable.observe`."""
        return asdict(self.table.observe([rows]))

    def explain(self, rows: pa.Table, level: float | None, n_neighbors: int) -> list[list[dict[str, Any]]]:
        """Refuse: not supported yet."""
        raise RefusedError(
            *(409, "intervals over time are not explained", "path"),
            "serve the model they were started from for explanations",
        )

    def status(self) -> dict[str, Any]:
        """Sentences and alarms, as ``lvd online status`` prints them."""
        found = zip(self.targets, self.table.online.status(), strict=True)
        return {"online": {name: {"sentence": one.sentence, "alarms": one.alarms} for name, one in found}}


def load_served(folder: Path, trusted: Sequence[type[Any] | str] = ()) -> Served:
    """Load the model in a folder, whatever wrote it; retry if it is replaced meanwhile."""
    while True:
        signature, version = signature_of(folder), version_of(folder)
        served = _load_once(folder, trusted)
        if version_of(folder) == version:
            served.signature, served.version = signature, version
            return served


def _load_once(folder: Path, trusted: Sequence[type[Any] | str]) -> Served:
    columns = read_manifest(folder).get("columns")
    if isinstance(columns, dict) and "key" in columns:
        return ServedOnline(folder, OnlineTable.load(folder))
    if columns is not None:
        return ServedTable(folder, TableModel.load(folder, trusted=trusted))
    method = load_object(folder, {}, trusted)
    if not isinstance(method, IntervalRegressor):
        raise InputError(
            f"a {type(method).__name__} cannot be served, as {os.fspath(folder)} holds one; give a folder that "
            "lvd fit, lvd online init or the save() of an interval method wrote"
        )
    method._check_fitted()
    encoder = _encoder_of(method, os.fspath(folder))
    if isinstance(method, LVDRegressor):
        return ServedTable(folder, TableModel.of(method, os.fspath(folder), encoder))
    return ServedMethod(folder, encoder, method)


def _encoder_of(method: IntervalRegressor, folder: str) -> RowEncoder:
    """The columns stored with a method, or default names for those of the array it was fitted on."""
    kept = vars(method).get("columns_")
    if kept is None:
        n_targets = method.n_targets_
        names = ("y",) if n_targets == 1 else tuple(f"y{number + 1}" for number in range(n_targets))
        return FrameEncoder.of_matrix(method.n_features_in_, names)
    return kept if isinstance(kept, TableEncoder) else FrameEncoder.of(kept, folder)


def signature_of(folder: Path) -> Signature:
    """A signature that changes when anything in the folder does; empty if there is nothing."""
    try:
        files = sorted(folder.iterdir())
        return tuple((one.name, *_changes(one.stat())) for one in files)
    except OSError:
        return ()


def _changes(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def version_of(folder: Path) -> str:
    """The first digits of the manifest's digest, which identify the saved model; none without a manifest."""
    try:
        return hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()[:12]
    except OSError:
        return ""
