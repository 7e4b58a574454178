"""A table's encoder with the regressor fitted behind it: columns in, columns of intervals out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lvd._files import refusing
from lvd._progress import announce
from lvd._typing import Bool, Float, Int, Levels, NDArray
from lvd._validation import (
    InputError,
    Parameter,
    check_choice,
    check_levels,
    present_rows,
    row_digests,
)
from lvd.calibration.calibration_rows import drawn_rows
from lvd.calibration.guarantees import GUARANTEES
from lvd.methods.attribution import N_ORDERS
from lvd.methods.base import PROMISES, SIDES, interval_columns
from lvd.methods.conformal import SharedRowsWarning
from lvd.methods.evidence import Explanation, Prediction, with_shares
from lvd.methods.lvd import CROSSING, LVDRegressor
from lvd.methods.predictive import PredictiveDistribution
from lvd.models.model import takes
from lvd.molecules.domain import KnownMolecules
from lvd.store import load_object, read_manifest, save_object
from lvd.support import Reason
from lvd.tables.column_values import RowNumbers, as_table, check_columns, group_labels, to_texts
from lvd.tables.dates import DateOrder
from lvd.tables.forecasting import ForecastPlan
from lvd.tables.frame_encoder import FrameEncoder
from lvd.tables.inputs import (
    CellEncoder,
    Prepared,
    RowEncoder,
    find_leaks,
    labelled_parts,
    prepare_cells,
    prepare_columns,
)
from lvd.tables.model_card import ModelCard
from lvd.tables.reading import Batches, counting_in_table, find_row, numbered
from lvd.tables.reports import (
    MOST_ERT_ROWS,
    EvaluateReport,
    FitReport,
    JudgedRows,
    TargetReport,
    hits_together,
    report_distribution,
    report_target,
    report_together,
)
from lvd.tables.splits import KeptRows, RowSplit, SeenRows, random_parts, row_ids
from lvd.tables.table_encoder import DAMAGED, EXAMPLES, TableEncoder, Unseen, check_names_free
from lvd.tables.writing import (
    PredictReport,
    write_predictions,
)

MOST_LEVELS = 30
"""``calibration="auto"`` sets rows aside if a column has more levels: there cross calibration, which has no mean
targets of levels, was less sharp."""
MOST_SCORED_ROWS = 2000
"""Whole distributions are scored on at most this many rows, the first."""


class _Measured(NamedTuple):
    """Rows with their targets, predictions and intervals, whether all targets are covered at once, and the scores
    of whole distributions; `ids` recognises rows."""

    y: NDArray
    y_pred: NDArray
    intervals: NDArray
    hits: NDArray
    known: NDArray
    features: NDArray
    crps: NDArray
    pit: NDArray
    ids: NDArray


@dataclass(frozen=True, eq=False)
class TableModel:
    """A fitted :class:`LVDRegressor` and the encoder of the table it was fitted on.

    Parameters
    ----------
    encoder, regressor : a matching pair.
    n_rows, seed : of the table and its split, which determine the calibration and test rows.
    kept : the same if the split depends on more than these two, and for rows added by update.
    guarantee : the guarantee of its intervals, see :meth:`LocalConformal.radius`.
    groups : the column of groups, each calibrated by its own rows only.
    card : the content of ``card.md`` next to it, the `to_dict` of a `ModelCard`.
    forecast : for forecasting models, how rows get their lags and horizons.
    seen : its training and calibration rows, to recognise them; None for a model fitted in Python.
    """

    encoder: RowEncoder
    regressor: LVDRegressor
    n_rows: int
    seed: int
    kept: KeptRows | None = None
    guarantee: str = "local"
    groups: str | None = None
    card: dict[str, Any] | None = None
    seen: SeenRows | None = None
    forecast: ForecastPlan | None = None

    @classmethod
    def fit(
        cls,
        table: pa.Table,
        regressor: LVDRegressor,
        *,
        target: str | Sequence[str],
        drop: Sequence[str] = (),
        keep: Sequence[str] = (),
        impute: str | None = None,
        column: str | None = None,
        skip_invalid: bool = False,
        guarantee: str = "local",
        groups: str | None = None,
        split: str | RowSplit = "random",
        seed: int = 0,
        cells: pa.Table | None = None,
        date_format: DateOrder | None = None,
    ) -> tuple[TableModel, FitReport]:
        """Train on 60% of the rows, conformalize on 20%, and report on the 20% that no step has seen.

        With cross calibration, the default for few rows, 80% do both.

        All columns but `target` and `drop` are inputs, except those that are constant or number the rows,
        unless they are in `keep`. `split` is ``"random"``, ``"time:COLUMN"`` (train on the earliest rows, test
        on the latest) or ``"group:COLUMN"`` (no group is in two parts). Rows without a target are left out.
        `groups` names a column of groups, which is also an input unless dropped.

        With `column` only the cells of that column are inputs, as the regressor's estimator reads them, and all
        rows of a case (or, with a ``"scaffold"`` split, of a scaffold) share a part; `skip_invalid` leaves out
        unreadable rows. Each target then uses the rows that have it.

        `cells` are the same rows as written in a file, if `table` holds types inferred from text: they
        determine the groups. `date_format` says whether dates such as 03/04/2024 begin with the day, ``"dmy"``,
        or the month, ``"mdy"``; without it the column's own values must determine it.
        """
        table = as_table(table)
        cells = table if cells is None else cells
        row_split = split if isinstance(split, RowSplit) else RowSplit.parse(split)
        check_choice(guarantee, "guarantee", GUARANTEES)
        _check_group_column(table, groups, target)
        plain = (row_split.kind, groups, column, guarantee) == ("random", None, None, "local")
        prepared = _prepared(
            *(table, regressor, column),
            target=target,
            split=row_split,
            seed=seed,
            joins=partial(_calibrates_crosswise, regressor, plain),
            skip_invalid=skip_invalid,
            of_columns={"drop": drop, "keep": keep, "impute": impute, "date_format": date_format},
        )
        encoder, crossed = prepared.encoder, prepared.crossed
        check_names_free(encoder.inputs, encoder.targets, encoder.added)
        y, (train, calib, _) = prepared.y, prepared.parts
        labels = (
            None if groups is None else group_labels(cells[groups].take(pa.array(prepared.rows[calib] - 1)))
        )
        with counting_in_table(prepared.rows[train]):
            learned, trained = _train(regressor, prepared, row_split, seed, labels)
        prepared, calib, labels = prepared.calibrated_by(
            drawn_rows(len(calib), regressor.max_calibration_rows, regressor.seed_, labels), labels
        )
        calibrating = trained if crossed and len(calib) == len(train) else prepared.read(calib)
        if isinstance(encoder, TableEncoder) and not takes(regressor.model_.unwrapped, "allow_nan"):
            encoder = replace(encoder, fills=True)
            learned, trained, calibrating = _without_gaps(encoder, learned, trained, calibrating)
        with warnings.catch_warnings(), counting_in_table(prepared.rows[calib]):
            # Duplicate rows in a table are not the caller's mistake: the report counts them.
            warnings.simplefilter("ignore", SharedRowsWarning)
            seen = SeenRows(row_ids(trained, y[train]), row_ids(calibrating, y[calib]))
            model = cls(encoder, regressor, table.num_rows, seed, prepared.kept, guarantee, groups, seen=seen)
            if not crossed:
                regressor.conformalize(calibrating, y[calib], groups=labels)
        announce("testing the intervals")
        with counting_in_table(np.insert(model.test_rows, 0, 0)):  # evaluation counts from 1
            tested = model.evaluate(cells.take(model.test_rows - 1).to_batches())
        leaks = find_leaks(encoder.columns, learned, y[train], seed) if encoder.feature_names else {}
        prepared = replace(prepared, encoder=encoder)
        return model, FitReport.of(
            table,
            prepared,
            tested,
            n_repeated=tested.n_repeated + (0 if crossed else model.count_training_rows(calibrating)),
            leaks=leaks,
            groups=groups,
            split=str(row_split),
            cells=cells,
        )

    @classmethod
    def fit_forecast(
        cls,
        table: pa.Table,
        regressor: LVDRegressor,
        plan: ForecastPlan,
        *,
        cells: pa.Table | None = None,
        drop: Sequence[str] = (),
        keep: Sequence[str] = (),
        **choices: Any,
    ) -> tuple[TableModel, FitReport]:
        """Fit a forecasting model: rows get lags as inputs and horizons as targets.

        The parts, and the folds that hold rows out, are consecutive in time, with a gap of the longest horizon.
        The other choices are those of :meth:`fit`.
        """
        order = choices.get("date_format")
        rows, cells = (plan.rows(one, order).table for one in (table, table if cells is None else cells))
        model, report = cls.fit(
            *(rows, regressor),
            target=plan.targets,
            drop=[*drop, plan.target],
            keep=[*keep, *plan.lag_names],
            split=RowSplit("time", plan.time, plan.gap, max(plan.horizons)),
            cells=cells,
            **choices,
        )
        # The latest values are often the most informative, and are known in time.
        leaks = {name: share for name, share in report.leaks.items() if name not in plan.lag_names}
        return replace(model, forecast=plan), replace(report, leaks=leaks)

    def save(self, folder: str | os.PathLike[str], *, replace: bool = True) -> None:
        """Write a folder that :meth:`load` reads, atomically; without `replace`, only where nothing exists."""
        columns = {"encoder": self.encoder.to_dict(), "n_rows": self.n_rows, "seed": self.seed}
        columns |= {"guarantee": self.guarantee, "groups": self.groups}
        if self.kept is not None:
            columns[self.encoder.kept_in] = self.kept.to_dict()
        if self.seen is not None:
            columns["seen"] = self.seen.to_dict()
        if self.forecast is not None:
            columns["forecast"] = self.forecast.to_dict()
        card = None
        if self.card is not None:
            columns["card"], card = self.card, ModelCard.from_dict(self.card).text(self._facts())
        with refusing(folder):
            save_object(self.regressor, folder, columns=columns, card=card, replace=replace)

    def _facts(self) -> list[str]:
        """What the card says about the model's current state."""
        names = (f"targets: {', '.join(self.encoder.targets)}", f"inputs: {', '.join(self.encoder.inputs)}")
        return [*names, f"calibration rows now: {self.regressor.n_calib_:,}"]

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        *,
        skip_invalid: bool = False,
        trusted: Sequence[type[Any] | str] = (),
    ) -> TableModel:
        """Load what :meth:`save` wrote; with `skip_invalid` the model leaves out unreadable rows.

        A user's own classes are only loaded if `trusted`, as in :func:`lvd.load`.
        """
        columns = read_manifest(folder).get("columns")
        regressor = load_object(folder, {}, trusted)
        if not isinstance(regressor, LVDRegressor):
            raise InputError(
                f"the model in {os.fspath(folder)} is a {type(regressor).__name__}, and only an LVDRegressor works "
                "on tables; use it in Python, with lvd.load"
            )
        if columns is None:
            return cls.of(regressor, os.fspath(folder))
        if not isinstance(columns, dict):
            raise InputError(f"{DAMAGED}; save the model again")
        content = columns.get("encoder")
        if content == {"frame": True}:  # the method stores the columns itself
            encoder: RowEncoder = FrameEncoder.of(vars(regressor).get("columns_"), os.fspath(folder))
        else:
            of_features = not isinstance(content, dict) or "columns" in content
            encoder = (TableEncoder if of_features else CellEncoder).from_dict(content)
        n_rows, seed, n_calib = columns.get("n_rows"), columns.get("seed"), getattr(regressor, "n_calib_", 0)
        guarantee, groups = columns.get("guarantee", "local"), columns.get("groups")
        of_cells, kept = isinstance(encoder, CellEncoder), None
        if of_cells or encoder.kept_in in columns:
            kept = KeptRows.from_dict(columns.get(encoder.kept_in), n_rows, of_cells=of_cells)
        if (
            guarantee not in GUARANTEES
            or not isinstance(groups, str | None)
            or (groups is None) != (_groups_of(regressor) is None)
            or type(n_rows) is not int
            or type(seed) is not int
            or (
                encoder.fixes_features
                and len(encoder.feature_names) != getattr(regressor, "n_features_in_", 0)
            )
            or len(encoder.targets) != regressor.n_targets_
            or (abs(0.2 * n_rows - n_calib) > 1 if kept is None else len(kept.calibration) != n_calib)
        ):
            raise InputError(
                f"the columns and the regressor in {os.fspath(folder)} do not belong together; fit again"
            )
        seen = columns.get("seen")
        if seen is not None:
            seen = SeenRows.from_dict(seen, len(encoder.targets), n_calib)
        if skip_invalid:
            if not isinstance(encoder, CellEncoder):
                raise InputError(
                    *(Parameter("skip_invalid", named=True), " is for models fitted with "),
                    *(Parameter("column", named=True), "; leave it out"),
                )
            encoder = replace(encoder, skip_invalid=True)
        plan, card = columns.get("forecast"), columns.get("card")
        forecast = None if plan is None else ForecastPlan.from_dict(plan)
        return cls(encoder, regressor, n_rows, seed, kept, guarantee, groups, card, seen, forecast)

    def as_rows(self, batches: Batches) -> Batches:
        """The rows that the model reads; for forecasting tables those with lags, including these."""
        if self.forecast is None:
            return batches
        return [self.forecast.rows(pa.concat_tables(map(as_table, batches))).table]

    @classmethod
    def of(cls, regressor: LVDRegressor, folder: str, encoder: RowEncoder | None = None) -> TableModel:
        """Wrap a method fitted in Python on a frame; its calibration rows are numbered on their own.

        For a method fitted on an array, `encoder` names the columns.
        """
        columns = vars(regressor).get("columns_")
        if encoder is None:
            encoder = columns if isinstance(columns, TableEncoder) else FrameEncoder.of(columns, folder)
        regressor._check_calibrated()
        if _groups_of(regressor) is not None:
            raise InputError(
                f"the model in {folder} was calibrated within groups that have no column; use it in Python, or fit "
                "it again on the command line, which keeps the column of the groups"
            )
        n_calib = regressor.n_calib_
        kept = KeptRows(np.arange(1, n_calib + 1), np.zeros(0, np.int64))
        return cls(encoder, regressor, n_calib, 0, kept)

    @property
    def calibration_rows(self) -> Int[NDArray, "m"]:
        """The numbers of the calibration rows in the table of :meth:`fit`, counting from 1."""
        return random_parts(self.n_rows, self.seed)[1] + 1 if self.kept is None else self.kept.calibration

    @property
    def test_rows(self) -> Int[NDArray, "k"]:
        """The numbers of the rows that no step has seen."""
        return random_parts(self.n_rows, self.seed)[2] + 1 if self.kept is None else self.kept.test

    def inputs(self, rows: pa.Table, *, numbers: RowNumbers = None) -> Any:
        """Usable rows as the regressor's inputs."""
        given = self.encoder.transform(rows, numbers=numbers)
        return self.regressor.model_.check(given) if self.encoder.fixes_features else given

    def training_inputs(self, X: Any) -> Bool[NDArray, "n"]:
        """Which of these inputs are those of a training row."""
        return np.isin(row_digests(self.regressor.model_.check(X)), self.regressor.train_digests_)

    def count_training_rows(self, X: Any) -> int:
        """How many of these inputs are those of a training row."""
        return int(self.training_inputs(X).sum())

    def calibrating(self, X: Any, ids: Int[NDArray, "n t"]) -> Bool[NDArray, "n"]:
        """Which rows calibrate the model, by inputs and targets; by inputs alone if it has no record of them."""
        if self.seen is not None:
            return self.seen.calibrated(ids)
        return np.isin(row_digests(self.regressor.model_.check(X)), self.regressor.digests_calib_)

    @property
    def promise(self) -> str:
        """The guarantee of the intervals, in one sentence."""
        return self.regressor.promise if self.guarantee == "local" else PROMISES["marginal"]

    @property
    def cells(self) -> tuple[str, ...] | None:
        """The cells of the calibration rows, if a single column is read."""
        return None if self.kept is None else self.kept.cells

    def group_labels(self, rows: pa.Table) -> NDArray | None:
        """The group of each row, if there are groups."""
        if self.groups is None:
            return None
        check_columns(rows, [self.groups])
        return group_labels(rows[self.groups])

    def unseen(self, rows: pa.Table) -> Unseen:
        """The rows of a group without calibration rows, and those with an unseen level."""
        labels, known = self.group_labels(rows), _groups_of(self.regressor)
        n_groups = 0 if labels is None or known is None else sum(label not in known for label in labels)
        new = self.encoder.unseen(rows)
        texts = {name: pc.unique(to_texts(rows[name].filter(pa.array(mask)))) for name, mask in new.items()}
        examples = {name: tuple(found.to_pylist()[:EXAMPLES]) for name, found in texts.items()}
        return Unseen(n_groups, int(_any_of(new, rows).sum()), examples)

    def infer(
        self,
        rows: pa.Table,
        levels: Float[NDArray, "l"],
        *,
        numbers: Int[NDArray, "n"],
        side: str | None = None,
    ) -> tuple[Any, Prediction]:
        """The inputs of usable rows, and the regressor's results for them, per target.

        A row with an unseen level is unknown, whatever else it holds. `numbers` are the rows' numbers in their
        table, for error messages.
        """
        X, n = self.inputs(rows, numbers=numbers), len(numbers)
        with counting_in_table(numbers):
            found = self.regressor.predict_with_evidence(X, levels, side=side, **self.choices(rows))
        return X, found._replace(
            y_pred=found.y_pred.reshape(n, -1),
            intervals=found.intervals.reshape(n, 2, len(levels), -1),
            n_effective=found.n_effective.reshape(n, -1),
        )

    @property
    def y_range(self) -> tuple[float, float]:
        """The range of y: the bounds that clip intervals, infinite if there are none."""
        low, high = self.regressor.y_range or (None, None)
        return (-np.inf if low is None else float(low), np.inf if high is None else float(high))

    def predict(
        self,
        rows: pa.RecordBatch | pa.Table,
        confidence_level: Levels | None = None,
        *,
        numbers: RowNumbers = None,
        side: str | None = None,
        above: Sequence[float] = (),
    ) -> dict[str, NDArray]:
        """The columns ``y_pred``, ``lower_90`` and ``upper_90`` (for each level), ``n_effective`` and ``known``.

        With a `side`, ``"lower"`` or ``"upper"``, there is only that end, and the whole error rate is on its
        side. For each threshold `above`, such as 50, there are ``above_50``, the probability that y exceeds it,
        missing for an unknown row, and ``above_50_p_value``, against y being at most it, 1 for an unknown row.

        For SMILES there are also ``nearest``, the most similar calibration row's, and ``tanimoto``, its
        similarity. With several targets the names of predicted columns end in the target's, as in
        ``y_pred_mu``. `numbers` are the rows' numbers in their table, for error messages. Rows that are left
        out hold NaN, and None for ``known``.
        """
        rows, levels = as_table(rows), self.resolve_levels(confidence_level)
        if numbers is None:
            numbers = np.arange(1, rows.num_rows + 1)
        usable = self.encoder.usable(rows, numbers=numbers)
        shape = (len(usable), len(self.encoder.targets))
        y_pred, n_effective = np.full(shape, np.nan), np.full(shape, np.nan)
        intervals = np.full((len(usable), 2, len(levels), shape[1]), np.nan)
        known = np.full(len(usable), None, dtype=object)
        exceeding = np.full((2, len(above), len(usable)), np.nan)
        self._check_above(above)
        if usable.any():
            some = rows.filter(pa.array(usable))
            X, found = self.infer(some, levels, numbers=numbers[usable], side=side)
            if above:
                exceeding[..., usable] = self._exceeding(some, X, above)
            y_pred[usable], n_effective[usable] = found.y_pred, found.n_effective
            intervals[usable], known[usable] = found.intervals, found.known
        columns: dict[str, NDArray] = {}
        targets = self.encoder.targets
        others = [end for end in SIDES if side not in (None, end)]
        for t, suffix in enumerate([f"_{target}" for target in targets] if len(targets) > 1 else [""]):
            of_target = interval_columns(y_pred[:, [t]], intervals[..., [t]], levels, [suffix])
            columns |= {name: one for name, one in of_target.items() if name.partition("_")[0] not in others}
            columns[f"n_effective{suffix}"] = n_effective[:, t]
        for threshold, probability, p_value in zip(above, *exceeding, strict=True):
            name = f"above_{threshold:.15g}"
            columns |= {name: probability, f"{name}_p_value": p_value}
        columns["known"] = known.astype(bool) if usable.all() else known
        return columns | self._nearest(rows, usable)

    def _check_above(self, above: Sequence[float]) -> None:
        if above and len(self.encoder.targets) > 1:
            raise InputError(
                *(Parameter("above", named=True), " is for models of one target, and this one predicts "),
                f"{', '.join(self.encoder.targets)}; fit one for the target",
            )
        for one in above:
            if not np.isfinite(one):
                raise InputError(Parameter("above"), f" must be a finite number, got {one}; leave it out")

    def _exceeding(self, rows: pa.Table, X: Any, above: Sequence[float]) -> Float[NDArray, "2 k n"]:
        """The probability that y exceeds each threshold, and the p-value, both under the local guarantee."""
        labels = self._labels(rows)
        found = [self.regressor.exceeds(X, threshold, **labels) for threshold in above]
        return np.moveaxis(np.array(found).reshape(len(above), 2, -1), 1, 0)

    def _nearest(self, rows: pa.Table, usable: Bool[NDArray, "n"]) -> dict[str, NDArray]:
        """The most similar stored cell for each row."""
        if self._known_cells is None:
            return {}
        nearest, similarity = np.full(len(usable), None, dtype=object), np.full(len(usable), np.nan)
        places, similarity[usable] = self._known_cells.nearest(self.encoder.transform(rows)[usable])
        nearest[usable] = [self._known_cells.smiles[place] for place in places]
        return dict(zip(self.encoder.added, (nearest, similarity), strict=True))

    @cached_property
    def _known_cells(self) -> Any:
        """The calibration rows' cells, indexed for search, if the model stores them."""
        return None if self.cells is None else KnownMolecules(self.cells)

    def choices(self, rows: pa.Table) -> dict[str, Any]:
        """The regressor's arguments besides the inputs: rows with unseen levels are unknown."""
        return {"guarantee": self.guarantee} | self._labels(rows)

    def _labels(self, rows: pa.Table) -> dict[str, Any]:
        return {"groups": self.group_labels(rows), "unknown": _any_of(self.encoder.unseen(rows), rows)}

    def predict_to(
        self,
        out: str | os.PathLike[str],
        batches: Batches,
        confidence_level: Levels | None = None,
        *,
        side: str | None = None,
        above: Sequence[float] = (),
        on_rows: Callable[[int], None] | None = None,
    ) -> PredictReport:
        """Write each batch to the file `out` (see `TableWriter`) with the columns of :meth:`predict`.

        `on_rows` is called after each batch with its number of rows.
        """
        if self.forecast is not None:
            table = pa.concat_tables(map(as_table, batches))
            return self._forecast_to(out, self.forecast, table, confidence_level, side=side, above=above)
        predicted = (
            (rows, self.predict(rows, confidence_level, numbers=numbers, side=side, above=above))
            for numbers, rows in numbered(batches)
        )
        return write_predictions(out, predicted, unseen=self.unseen, on_rows=on_rows)

    def _forecast_to(
        self,
        out: str | os.PathLike[str],
        plan: ForecastPlan,
        table: pa.Table,
        confidence_level: Levels | None,
        **asked: Any,
    ) -> PredictReport:
        """Write the forecasts from the latest row, one row per horizon."""
        row, dates = plan.latest(table)
        found = self.predict(row, confidence_level, **asked)
        known = found.pop("known")
        if len(plan.targets) > 1:
            ends = [f"_{name}" for name in plan.targets]
            names = [name.removesuffix(ends[0]) for name in found if name.endswith(ends[0])]
            found = {name: np.array([found[f"{name}{end}"][0] for end in ends]) for name in names}
        predicted = [(dates, found | {"known": np.repeat(known, dates.num_rows)})]
        return write_predictions(out, predicted, unseen=lambda _: self.unseen(row))

    def explain(
        self,
        batches: Batches,
        row: int,
        confidence_level: float | None = None,
        *,
        n_neighbors: int = 10,
        background: pa.Table | None = None,
    ) -> list[Explanation]:
        """Explain the interval of row number `row`, with one explanation per target.

        Rows count from 1, `row` in this table, the neighbours' `index` in the table of :meth:`fit`. With a
        single input column, the `label` is its cell. `background` holds rows to compare with.
        """
        if self.forecast is not None:
            raise InputError(
                "forecasts have no explanations; the page of a report shows a horizon's rows with their neighbours"
            )
        found, number = find_row(batches, row), np.array([row])
        self.encoder.usable(found, numbers=number)
        X = self.inputs(found, numbers=number)
        with counting_in_table(number):
            explained = self.explain_rows(found, X, confidence_level, n_neighbors=n_neighbors)
        if background is not None:
            explained = self.with_shares(explained, X, self.inputs(background))
        calibration, cells = self.calibration_rows, self.cells
        own = None if cells is None else self.encoder.transform(found)[0]

        def in_tables(one: Explanation) -> Explanation:
            neighbors = tuple(
                replace(n, index=int(calibration[n.index]), label=None if cells is None else cells[n.index])
                for n in one.evidence.neighbors
            )
            return replace(one, row=row, label=own, evidence=replace(one.evidence, neighbors=neighbors))

        return list(map(in_tables, explained))

    def with_shares(
        self, explanations: Sequence[Explanation], X: Any, others: Any, *, n_orders: int = N_ORDERS
    ) -> list[Explanation]:
        """The explanations of the inputs `X`, with each column's share of the width compared with other inputs."""
        places, ask = self.encoder.column_places, self.regressor._log_widths
        return with_shares(explanations, X, others, places, ask, n_orders=n_orders)

    def explain_rows(
        self, rows: pa.Table, X: Any, confidence_level: float | None, *, n_neighbors: int
    ) -> list[Explanation]:
        """The regressor's explanations of these rows, with inputs `X`; a row with a new level is unknown."""
        explained = self.regressor.explain(X, confidence_level, n_neighbors=n_neighbors, **self.choices(rows))
        new_levels: dict[int, str] = {}
        for name, mask in self.encoder.unseen(rows).items():
            texts = to_texts(rows[name])
            for row in np.flatnonzero(mask).tolist():
                level = texts[row].as_py()
                new_levels[row] = f"no training row has {name} {repr(level) if level else 'missing'}"

        def named(one: Explanation) -> Explanation:
            """Add the names of the column that alone decides and of the target in which a region is largest."""
            reason = one.reason
            if reason is not None and one.column is not None:
                reason = Reason(reason, one.column).named(self.encoder.feature_names[one.column])
            reason = new_levels.get(one.row, reason)
            largest = one.largest and replace(one.largest, name=self.encoder.targets[one.largest.target])
            return replace(one, reason=reason, largest=largest)

        return list(map(named, explained))

    def evaluate(
        self,
        batches: Batches,
        confidence_level: Levels | None = None,
        *,
        targets: Sequence[str] = (),
        by: str | None = None,
    ) -> EvaluateReport:
        """The metrics of all targets, or of those named, and their coverage by the values of a column.

        A numeric column with more than 20 distinct values is grouped into ten bins of equal counts. On the
        `n_repeated` training rows among them the errors are too small to be informative.
        """
        levels = self.resolve_levels(confidence_level)
        places = [self.find_target(target) for target in targets or self.encoder.targets]
        encoder = replace(self.encoder, targets=tuple(self.encoder.targets[t] for t in places))
        parts: list[_Measured] = []
        by_values: list[pa.Array] = []
        n_rows = n_repeated = n_calibrating = n_skipped = n_unlabelled = 0
        unseen = Unseen()
        for rows, numbers, *left_out in labelled_parts(
            encoder, self.as_rows(batches), every=encoder.every_target
        ):
            check_columns(rows, [] if by is None else [by])
            n_skipped, n_unlabelled = n_skipped + left_out[0], n_unlabelled + left_out[1]
            if not len(numbers):
                continue
            X, found = self.infer(rows, levels, numbers=numbers)
            y = encoder.target(rows).reshape(len(X), -1)
            part = self._measured(rows, X, y, found, places, n_rows)
            parts.append(part)
            by_values += [] if by is None else rows[by].chunks
            n_rows += len(X)
            n_repeated += self.count_training_rows(X)
            n_calibrating += int(self.calibrating(X, part.ids).sum())
            unseen += self.unseen(rows)
        if not parts:
            raise InputError(
                f"all {n_skipped + n_unlabelled} rows are left out, so there is nothing to evaluate; "
                f"{n_unlabelled} of them have no target"
            )
        measured = _Measured(*map(np.concatenate, zip(*parts, strict=True)))
        values = None if by is None else pa.chunked_array(by_values)
        reports = [
            self._report_target(measured, number, place, levels, values)
            for number, place in enumerate(places)
        ]
        complete = measured.ids[np.all(measured.ids != 0, axis=1)]
        together = report_together(measured.hits, complete, levels) if len(places) > 1 else ()
        return EvaluateReport(
            n_rows=n_rows,
            n_distinct=len(np.unique(measured.ids, axis=0)),
            n_skipped=n_skipped,
            n_unlabelled=n_unlabelled,
            n_repeated=n_repeated,
            n_calibrating=n_calibrating,
            n_unknown=int((~measured.known).sum()),
            unseen=unseen,
            targets=tuple(reports),
            together=together,
        )

    def _measured(  # noqa: PLR0917
        self,
        rows: pa.Table,
        X: Any,
        y: Float[NDArray, "n t"],
        found: Prediction,
        places: Sequence[int],
        n_before: int,
    ) -> _Measured:
        """Rows with the targets at these `places`; features and whole distributions of the first rows alone."""
        intervals = found.intervals[..., places]
        first = slice(max(0, MOST_SCORED_ROWS - n_before))
        crps, pit = self.score_distributions(rows[first], X[first], y[first], found.y_pred[first], places)
        return _Measured(
            y,
            found.y_pred[:, places],
            intervals,
            hits_together(y, intervals, [region.onto(places) for region in found.regions]),
            found.known,
            self.features(X, found.embeddings)[: max(0, MOST_ERT_ROWS - n_before)],
            crps,
            pit,
            row_ids(X, y, places),
        )

    def _report_target(
        self,
        measured: _Measured,
        number: int,
        place: int,
        levels: Float[NDArray, "l"],
        values: pa.ChunkedArray | None,
    ) -> TargetReport:
        """The report on one target: column `number` of the measured rows, and target `place` of the model."""
        y, target = measured.y[:, number], self.encoder.targets[place]
        some = np.flatnonzero(~np.isnan(y))
        if not len(some):
            raise InputError(
                f"no row has a value of target {target!r}; name the others with ",
                Parameter("target", named=True),
            )
        judged = self.judged_rows(
            *(place, y[some], measured.y_pred[some, number], measured.known[some]),
            measured.features[some[some < len(measured.features)]],
            row_ids=measured.ids[some, number],
        )
        of_target = measured.crps[:, number], measured.pit[:, number]
        return report_target(
            *(target, judged, measured.intervals[some, ..., number]),
            levels=levels,
            groups=None if values is None else values.take(pa.array(some)),
            distribution=report_distribution(*of_target, len(judged.residuals_calib)),
        )

    def score_distributions(
        self,
        rows: pa.Table,
        X: Any,
        y: Float[NDArray, "k t"],
        y_pred: Float[NDArray, "k r"],
        places: Sequence[int],
    ) -> tuple[Float[NDArray, "k t"], Float[NDArray, "k t"]]:
        """CRPS and probability integral transforms of the targets at these `places`, NaN where y or the row is
        unknown."""
        if not len(y):
            return np.empty_like(y), np.empty_like(y)
        targets = y_pred.copy()  # any number will do for targets that are unknown or not requested
        targets[:, places] = np.where(np.isnan(y), targets[:, places], y)
        found = self.distribution(rows, X)
        given = targets[:, 0] if self.regressor.single_target_ else targets
        crps, pit = (ask(given).reshape(targets.shape)[:, places] for ask in (found.crps, found.pit))
        nothing = np.isnan(y) | np.isnan(crps)
        return np.where(nothing, np.nan, crps), np.where(nothing, np.nan, pit)

    def distribution(self, rows: pa.Table, X: Any) -> PredictiveDistribution:
        """The distributions of the targets at these rows, with inputs `X`."""
        return self.regressor.predict_distribution(X, **self._labels(rows))

    def features(self, X: Any, embeddings: Float[NDArray, "n h"]) -> Float[NDArray, "n p"]:
        """Numeric features that distinguish rows: the inputs, or the embeddings if the inputs are not numbers."""
        return self.encoder.filled(np.asarray(X)) if self.encoder.feature_names else embeddings

    def judged_rows(
        self,
        place: int,
        y: Float[NDArray, "n"],
        y_pred: Float[NDArray, "n"],
        known: Bool[NDArray, "n"],
        features: Float[NDArray, "k p"],
        *,
        row_ids: Int[NDArray, "n"],
    ) -> JudgedRows:
        """Rows with target number `place`, for :func:`judge`."""
        regressor = self.regressor
        y_calib, residuals = regressor.y_calib_[:, place], regressor.residuals_calib_[:, place]
        return JudgedRows(
            y=y,
            y_pred=y_pred,
            known=known,
            features=features,
            y_calib=y_calib[present_rows(y_calib)],
            residuals_calib=residuals[present_rows(residuals)],
            y_range=self.y_range,
            row_ids=row_ids,
        )

    def resolve_levels(self, confidence_level: Levels | None) -> Float[NDArray, "l"]:
        """The requested levels, by default the regressor's, each once."""
        levels = check_levels(
            self.regressor.confidence_level if confidence_level is None else confidence_level
        )
        if len(set(levels.tolist())) < len(levels):
            raise InputError(
                Parameter("confidence_level"), f" must name each level once, got {levels.tolist()}"
            )
        return levels

    def find_target(self, name: str) -> int:
        """The index of a target among those of the model."""
        if name not in self.encoder.targets:
            known = ", ".join(map(repr, self.encoder.targets))
            raise InputError(
                Parameter("target"), f" must be what the model was fitted to predict, {known}, got {name!r}"
            )
        return self.encoder.targets.index(name)


def _without_gaps(encoder: TableEncoder, *inputs: Any) -> list[Any]:
    """The inputs with medians in place of NaN; a matrix that is given twice is filled once."""
    distinct = {id(X): X for X in inputs}
    found = {key: encoder.filled(X) for key, X in distinct.items()}
    return [found[id(X)] for X in inputs]


def _prepared(
    table: pa.Table,
    regressor: LVDRegressor,
    column: str | None,
    *,
    skip_invalid: bool,
    of_columns: dict[str, Any],
    **ways: Any,
) -> Prepared:
    """All columns as inputs, or the cells of one `column`; the choices `of_columns` are for the former."""
    if column is None:
        return prepare_columns(table, fills=not takes(regressor, "allow_nan"), **of_columns, **ways)
    if of_columns["drop"] or of_columns["keep"] or of_columns["impute"]:
        raise InputError(
            *(Parameter("column", named=True), " takes the cells of one column alone as inputs; leave "),
            *(Parameter("drop", named=True), ", ", Parameter("keep", named=True), " and "),
            *(Parameter("impute", named=True), " out"),
        )
    return prepare_cells(table, regressor.estimator, column=column, skip_invalid=skip_invalid, **ways)


def _train(
    regressor: LVDRegressor, prepared: Prepared, split: RowSplit, seed: int, labels: NDArray | None
) -> tuple[Any, Any]:
    """Fit on the training part, with settings that hold for this fit alone; returns the inputs that the regressor
    learned from, and those by which its training rows are recognised."""
    train, crossed = prepared.parts[0], prepared.crossed
    own = {name: getattr(regressor, name) for name in ("calib_size", "calibration", "folds")}
    chosen = own["calibration"] if own["calibration"] in CROSSING else "cross" if crossed else "split"
    regressor.set_params(calib_size=None, calibration=chosen)
    if crossed or split.n_gap:
        regressor.set_params(folds=prepared.folds(split, regressor.folds, seed))
    learned = prepared.training_inputs
    regressor.fit(learned, prepared.y[train], groups=labels if crossed else None).set_params(**own)
    if not prepared.own_means:
        return learned, learned
    trained = prepared.read(train)  # rows are recognised by their features if their targets are unknown
    regressor.train_digests_ = np.sort(row_digests(regressor.model_.check(trained)))
    return learned, trained


def _calibrates_crosswise(regressor: LVDRegressor, plain: bool, n_rows: int, n_levels: int) -> bool:
    """Whether all rows outside the test part train and calibrate; by default only for a `plain` split and columns
    of few levels."""
    return regressor.chosen_calibration(n_rows, plain=plain and n_levels <= MOST_LEVELS) in CROSSING


def _check_group_column(table: pa.Table, groups: str | None, target: str | Sequence[str]) -> None:
    """Raise unless the column of groups exists and is not a target."""
    if groups is None:
        return
    check_columns(table, [groups])
    if groups in ([target] if isinstance(target, str) else target):
        raise InputError(Parameter("groups"), f" must be another column than the target, got {groups!r}")


def _groups_of(regressor: LVDRegressor) -> set[Any] | None:
    """The groups of the calibration rows."""
    labels = regressor.calibrators_[0].calibration_.rows.groups
    return None if labels is None else set(labels.tolist())


def _any_of(masks: Mapping[str, Bool[NDArray, "n"]], rows: pa.Table) -> Bool[NDArray, "n"]:
    return np.logical_or.reduce([np.zeros(rows.num_rows, dtype=bool), *masks.values()])
