"""``lvd fit``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lvd.cli import console
from lvd.cli.console import (
    Address,
    Data,
    Engine,
    Guarantee,
    Json,
    SkipInvalid,
    check_engine,
    check_files,
    check_free,
    option,
    own_class,
)
from lvd.cli.fit_summary import model_class, show_fit, with_card
from lvd.cli.report import write_page

if TYPE_CHECKING:
    import pyarrow as pa

    from lvd.methods import LVDRegressor
    from lvd.tables.forecasting import ForecastPlan
    from lvd.tables.reports import FitReport
    from lvd.tables.table_model import TableModel

OF_SHAPES = {None, "distributional"}
OF_SCALES = OF_SHAPES | {"scaled"}
"""The scores that learn the shape of errors, and how large they are."""
CalibrationName = Literal["auto", "split", "cross", "ensemble"]
PresetName = Literal["default", "paper"]
ModelName = Literal["net", "trees", "auto"]
DateFormat = Literal["dmy", "mdy"]
JointShape = Literal["box", "ellipsoid"]
WhenUnknown = Literal["infinite", "widen"]

EXAMPLES = console.examples(
    "lvd fit homes.csv --target price --out homes-model",
    "lvd fit homes.csv.gz --target price --drop id --drop street --impute median --out homes-model",
    "lvd fit homes.parquet --target price --target rent --level 0.95 --out homes-model",
    "lvd fit homes.csv --target price --model trees --out homes-model",
    "lvd fit homes.csv --target price --target rent --joint box --out homes-model  # both hold at once",
    "lvd fit homes.csv --target price --preset paper --out homes-model  # the paper's method, faster",
    "lvd fit homes.csv --target price --calibration ensemble --out homes-model  # all models it trains predict",
    "lvd fit homes.csv --target price --groups district --guarantee calibrated --out homes-model",
    "lvd fit homes.csv --target price --score signed --when-unknown widen --out homes-model",
    "lvd fit molecules.csv --smiles smiles --target mu --target homo --out molecules-model",
    "lvd fit new.csv --smiles smiles --target mu --checkpoint best.pt --trust --out model  # chemprop's network",
    "lvd fit homes.csv --target price --test-out test.csv --out homes-model  # keep the test rows",
    "lvd fit sales.csv --target price --impute median --report report.html --out model  # from file to page",
    "lvd fit sales.csv --target price --split time:sold --out sales-model",
    "lvd fit demand.csv --target load --time hour --lags 1,24,168 --horizon 24 --out demand-model  # forecasts",
    "lvd fit homes.parquet --target price --engine ray --address auto --out homes-model",
    "lvd fit homes.csv --target price --kernel my_parts:LeafKernel --out homes-model  # a part of your own",
)


def fit(
    data: Data,
    target: Annotated[list[str], option("COLUMN", "Column to predict; repeat for several.")],
    out: Annotated[Path, option("MODEL", "Folder to write the model to.")],
    *,
    smiles: Annotated[
        str | None,
        option(
            "COLUMN",
            "Column of molecules as SMILES, at most 10,000 characters each; it is then the only input (extra "
            "molecules).",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        option(
            "FILE",
            "With --smiles: a network trained by chemprop, the .pt or .ckpt file that its command wrote. DATA must "
            "contain only molecules that the network was not trained on. Needs --trust.",
        ),
    ] = None,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="Trust the --checkpoint as you would a program: reading it can run any code inside it. The model "
            "that lvd fit writes contains no code.",
        ),
    ] = False,
    skip_invalid: SkipInvalid = False,
    drop: Annotated[list[str] | None, option("COLUMN", "Column to leave out; repeat for several.")] = None,
    keep: Annotated[
        list[str] | None,
        option(
            "COLUMN",
            "Column to use although it is constant or looks like an identifier; repeat for several.",
        ),
    ] = None,
    impute: Annotated[
        str | None,
        option(
            "median",
            "Accept missing values: boosted trees handle missing numbers themselves, networks get a typical one; "
            "missing text is a category of its own.",
            "missing values are an error",
        ),
    ] = None,
    date_format: Annotated[
        DateFormat | None,
        typer.Option(
            show_default="inferred from the column if unambiguous",
            help="Whether dates such as 03/04/2024 begin with the day (dmy) or the month (mdy).",
        ),
    ] = None,
    level: Annotated[
        float, typer.Option(help="Confidence level of the report, and of lvd predict by default.")
    ] = 0.9,
    y_min: Annotated[
        float | None, typer.Option(show_default=False, help="Lowest possible target; clips the intervals.")
    ] = None,
    y_max: Annotated[
        float | None, typer.Option(show_default=False, help="Highest possible target; clips the intervals.")
    ] = None,
    preset: Annotated[
        PresetName,
        typer.Option(
            help="default: the distribution of errors at each row, a kernel learned from the errors, a bandwidth "
            "for each row. paper: the paper's method, absolute errors and a kernel learned from the target; "
            "faster, but intervals are often infinite."
        ),
    ] = "default",
    model: Annotated[
        ModelName | None,
        typer.Option(
            show_default="auto; net with --epochs or --preset paper",
            help="The model that predicts. net: a network, trained until its held-out error stops falling. trees: "
            "boosted trees. auto: the better of the two by cross-validation on the training rows.",
        ),
    ] = None,
    score: Annotated[
        str | None,
        option(
            "NAME|MODULE:CLASS",
            "The conformity score. distributional: how extreme an error is in the distribution learned for the "
            "row, so intervals can be asymmetric. absolute: the absolute error. scaled or normalized: the error "
            "divided by the expected error. signed: the signed error, with each end calibrated separately. sided: "
            "the error divided by the usual error on its side. quantile: the distance from learned quantiles. "
            "Or a score of your own.",
            "set by the preset",
        ),
    ] = None,
    kernel: Annotated[
        str | None,
        option(
            "MODULE:CLASS",
            "A kernel of your own, which defines which rows are similar. Its code runs; other commands load it "
            "only with --trust MODULE:CLASS.",
            "learned from the errors",
        ),
    ] = None,
    support: Annotated[
        str | None,
        option(
            "MODULE:CLASS",
            "A rule of your own that decides which rows are known.",
            "near training rows, within their ranges",
        ),
    ] = None,
    calibration: Annotated[
        CalibrationName,
        typer.Option(
            help="Which rows calibrate. split: a fifth of the rows, held out of training. cross: all rows but the "
            "test rows both train and calibrate, through out-of-fold errors; sharper, especially on small tables, "
            "but coverage is then measured, not proved. ensemble: the same, and the models trained for the "
            "out-of-fold errors predict too, as a mean; all of them (six, or eleven below 1,000 rows) are saved. "
            "auto: cross if these are 60 to 499 rows, else split. With --groups, another --guarantee, --split, "
            "--score, --kernel, --support or --bandwidth, with --joint, --smiles or --preset paper, and with more "
            "than 30 texts in a column, auto is split."
        ),
    ] = "auto",
    max_calibration_rows: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default="all",
            help="Calibrate on at most this many rows, drawn at random (per group with --groups). Prediction is "
            "faster and the model smaller; the guarantee still holds, but intervals rest on fewer rows.",
        ),
    ] = None,
    guarantee: Annotated[
        Guarantee,
        typer.Option(
            help="The coverage guarantee. local: coverage near each row, from similar rows. calibrated, randomized "
            "and transductive: coverage on average over all rows. Saved with the model; lvd predict can override "
            "it, if rows were set aside (see --calibration)."
        ),
    ] = "local",
    when_unknown: Annotated[
        WhenUnknown | None,
        typer.Option(
            show_default="infinite; with --preset paper widen",
            help="The interval of a row that is unlike all training rows: infinite, or widened as far as the "
            "calibration rows suggest. In both cases lvd predict marks such rows in the column known.",
        ),
    ] = None,
    joint: Annotated[
        JointShape | None,
        typer.Option(
            show_default="each target on its own",
            help="With several targets: cover all of them at once at the level. box: an interval for each target. "
            "ellipsoid: smaller when errors are correlated; lvd predict writes its projections.",
        ),
    ] = None,
    groups: Annotated[
        str | None,
        option(
            "COLUMN",
            "Column that defines groups: each group is calibrated on its own rows only, so the guarantee holds "
            "within it. Values are compared as written in the table: 7 and 007 are two groups. The column is also "
            "an input unless you --drop it.",
        ),
    ] = None,
    split: Annotated[
        str,
        option(
            "random|time:COLUMN|group:COLUMN|scaffold",
            "How rows are divided. time: train on the earliest, calibrate on later ones, test on the latest. "
            "group: rows with the same value stay together, for intervals that must hold for new values. scaffold, "
            "with --smiles: molecules with the same Bemis-Murcko scaffold stay together.",
            True,
        ),
    ] = "random",
    time: Annotated[
        str | None,
        option(
            "COLUMN",
            "Forecast: the column of dates, evenly spaced, one row per date. Needs --lags and --horizon.",
            "no forecast",
        ),
    ] = None,
    lags: Annotated[
        str | None,
        option(
            "NUMBERS",
            "Forecast from the target's values at these lags, separated by commas; lag 1 is the latest value.",
            "no forecast",
        ),
    ] = None,
    horizon: Annotated[
        str | None,
        option(
            "NUMBERS",
            "Forecast this many steps ahead: 24 means each of the next 24 steps, 1,6,24 only these three.",
            "no forecast",
        ),
    ] = None,
    bandwidth: Annotated[
        str | None,
        option(
            "adaptive|NUMBER",
            "Widen the kernel: above 1, fewer intervals are infinite, and they are less local. adaptive "
            "widens it row by row, as far as a finite interval at --level is likely to need.",
            "adaptive; with --preset paper 1",
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default="until the held-out error stops falling; with --smiles 30, or more for small tables",
            help="Passes of the network over the training rows.",
        ),
    ] = None,
    hidden_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default="300",
            help="Width of the graph networks, with --smiles; narrower is faster but less accurate.",
        ),
    ] = None,
    members: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default="5; with --preset paper 1",
            help="Number of graph networks in the ensemble, with --smiles; one is faster but less accurate.",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Seed of the split and of all randomness in training.")
    ] = 0,
    device: Annotated[str, typer.Option(help="Where to compute: auto, cpu, cuda, cuda:1...")] = "auto",
    engine: Engine = "local",
    address: Address = None,
    test_out: Annotated[
        Path | None, option("FILE", "Also write the test rows, to evaluate by group.")
    ] = None,
    report: Annotated[
        Path | None, option("FILE", "Also write the page of lvd report on the test rows, .html.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the model at --out.")] = False,
    json: Json = False,
) -> None:
    """Fit a model to a table and report how good its intervals are.

    The rows are split, at random or as --split says: 60% train the model and the kernel, 20% calibrate the
    intervals, and 20% test them; no step sees the test rows. At most 50,000 rows calibrate; in tables of more than
    250,000 rows the surplus trains the model. --max-calibration-rows lowers this limit, for faster predictions.
    Rows without a target are left out and counted.

    Tables need no preparation. Numbers are scaled. Text and categorical columns are one-hot coded; if a column has
    more than 100 distinct texts, at most the 100 most frequent get a feature each, the rest share one, and another
    feature holds each text's frequency. Numbers may have a currency sign, % (5% is 5) and thousands separators
    (commas), if the whole column is written that way. Dates and times in ISO 8601 (2024-03-31, 17:30:00,
    2024-03-31T17:30:00), or with the year last if the column or --date-format shows whether the day or the month
    comes first, become year, month, day of the week, hour and elapsed days. Constant columns and row numbers are
    left out and reported. A column that alone predicts the target almost perfectly is kept and reported: it may
    become known only together with the target.

    The column of --split is not an input, except for the recurring parts of dates: month, day of the week and hour.

    Two models are built in: a network and boosted trees. By default both predict held-out training rows, and the
    one with the smaller squared error is used; the last line of the summary says which. --preset paper uses the
    paper's network, one layer trained for 20 passes.

    The default preset learns from out-of-fold errors where errors are large: it trains the model six times, once on
    all training rows and once without each of five folds (cross calibration of fewer than 1,000 rows: ten folds).
    Graph networks predict their own errors, so they are trained fold by fold only with --calibration cross.
    --preset paper trains the model once.

    With --groups, lvd predict needs that column too. Rows in a group without calibration rows are counted, and
    their intervals are infinite.

    With --time, --lags and --horizon the model forecasts the target that many steps ahead, from its values at the
    lags, the other columns at the same date, and the recurring parts of that date. Errors are calibrated separately
    for each horizon.
    Training, calibration and test rows follow each other in time, with gaps as long as the longest horizon. lvd
    predict then forecasts from the latest row of a table that ends now; lvd evaluate and lvd report measure each
    horizon on past data.

    With --engine ray the models for out-of-fold predictions and for the size of errors are trained in parallel, on
    the processors of this machine or of a cluster. The resulting model is the same. If a worker dies, its task is
    repeated.

    With --smiles five graph networks (chemprop's) read the molecules; each predicts all targets and the size of
    their errors, and each target has its own kernel. --preset paper uses one network, trained on squared errors.
    Rows with the same molecule, however it is written, are found by their canonical SMILES, kept in the same part
    of the split, and counted. The model stores the SMILES of the calibration rows: lvd explain names the neighbours
    by them, and lvd report draws them. With several targets, some target cells may be empty: each target uses the
    rows where it is known. Without a GPU, 5,000 molecules of ten atoms take minutes.

    With --checkpoint a network trained by chemprop is used unchanged. It must not have seen these molecules: 60% of
    them train the kernel and the estimate of how large errors are, 20% calibrate and 20% test.
    """
    given = dict(locals())  # the options by name
    from lvd._validation import resolve_device
    from lvd.tables.column_values import guess_types
    from lvd.tables.reading import read_table, table_format
    from lvd.tables.splits import RowSplit
    from lvd.tables.writing import TableWriter

    dividing = RowSplit.parse(split).column
    _check_together(**given)
    check_engine(engine, address)
    _check_range(y_min, y_max)
    check_free(out, force=force)
    resolve_device(device)
    # A page shows all columns of its rows.
    unread = _unread(
        data,
        drop or (),
        [*target, smiles, groups, dividing],
        whole=time is not None or report is not None,
        only_used=smiles is not None,
    )
    cells = read_table(data, as_text=True, unread=unread)
    table = cells if table_format(data) == "parquet" else guess_types(cells)
    check_files({"--report": report, "--test-out": test_out}, data, checkpoint, model=out)
    plan = _forecast_plan(table, time, target[0], (lags, horizon), date_format)
    targets = target if plan is None else plan.targets
    if report is not None:
        from lvd.page.content import only_target

        only_target(targets)
    regressor = _regressor(**given)
    with nullcontext() if test_out is None else TableWriter(test_out) as test_file:
        with _showing(table, len(targets), **given), _training_on(engine, address):
            fitted, found = _fit_table(
                *(table, regressor, plan),
                {"target": target, "split": split, "column": smiles, "skip_invalid": skip_invalid},
                drop=drop or (),
                keep=keep or (),
                impute=impute,
                date_format=date_format,
                guarantee=guarantee,
                groups=groups,
                seed=seed,
                cells=cells,
            )
        if test_file is not None:
            in_file = _as_in_file(test_file.path, table, cells, groups)
            rows = _test_rows(in_file, fitted)
            test_file.write(_read_again(rows, data, fitted.test_rows - 1, unread) if unread else rows)
        fitted = with_card(fitted, found, data, table, {"impute": impute, "drop": ", ".join(drop or ())})
        fitted.save(out, replace=force)
    if report is not None:
        write_page(fitted, _test_rows(cells, fitted), report, (out.name, data.name), fitted_on=cells)
    if plan is not None and not json:
        console.show(plan.rows(table).note)
    if json:
        console.show_json({"model": str(out), **_facts_of(fitted.regressor), **asdict(found)})
    else:
        show_fit(found, data, out, seed, page=report, model=fitted)


def _check_together(
    *,
    target: Sequence[str],
    smiles: str | None,
    checkpoint: Path | None,
    trust: bool,
    skip_invalid: bool,
    model: ModelName | None,
    joint: JointShape | None,
    calibration: CalibrationName,
    guarantee: str,
    split: str,
    time: str | None,
    lags: str | None,
    horizon: str | None,
    epochs: int | None,
    hidden_size: int | None,
    members: int | None,
    **_: Any,
) -> None:
    """Refuse options of ``lvd fit`` that do not go together."""
    from lvd._validation import InputError

    has_sizes, has_checkpoint = bool(hidden_size or members), checkpoint is not None
    forecasts = not (time is lags is horizon is None)
    crosses = calibration in {"cross", "ensemble"}
    refusals = (
        (
            joint is not None and len(target) == 1,
            "--joint needs several targets; give --target more than once, or leave --joint out",
        ),
        (
            smiles is None and (skip_invalid or has_sizes or has_checkpoint),
            "--skip-invalid, --hidden-size, --members and --checkpoint apply to molecules only; give "
            "--smiles COLUMN with them",
        ),
        (
            crosses and has_checkpoint,
            f"--calibration {calibration} trains the network again without each fold, but --checkpoint is already "
            "trained; leave one of them out",
        ),
        (
            crosses and guarantee != "local",
            f"--calibration {calibration} works only with --guarantee local: the other guarantees need calibration "
            "rows that training has not seen; leave one of them out",
        ),
        (
            smiles is not None and model is not None,
            "--model applies to tables without molecules only; leave --model or --smiles out",
        ),
        (
            epochs is not None and model not in {None, "net"},
            f"--epochs applies to the network only, but --model is {model}; leave one of them out",
        ),
        (
            forecasts and (None in (time, lags, horizon) or len(target) > 1 or smiles is not None),
            "a forecast takes --time, --lags and --horizon together, one --target, and no --smiles",
        ),
        (
            forecasts and split != "random",
            "a forecast is split in time, by its column of dates; leave --split out",
        ),
        (trust and not has_checkpoint, "--trust applies to a --checkpoint only; leave it out"),
        (
            has_checkpoint and not trust,
            f"reading {checkpoint} can run any code inside it; if you trust it as you would a program, give "
            "--trust with --checkpoint",
        ),
        (
            has_checkpoint and (epochs is not None or has_sizes),
            "--checkpoint uses the network unchanged; leave out --epochs, --hidden-size and --members, or "
            "--checkpoint",
        ),
    )
    for applies, message in refusals:
        if applies:
            raise InputError(message)


def _regressor(
    *,
    target: list[str],
    smiles: str | None,
    checkpoint: Path | None,
    preset: PresetName,
    model: ModelName | None,
    score: str | None,
    kernel: str | None,
    support: str | None,
    level: float,
    y_min: float | None,
    y_max: float | None,
    bandwidth: str | None,
    epochs: int | None,
    hidden_size: int | None,
    members: int | None,
    seed: int,
    device: str,
    calibration: CalibrationName,
    max_calibration_rows: int | None,
    joint: JointShape | None,
    when_unknown: WhenUnknown | None,
    **_: Any,
) -> LVDRegressor:
    """The regressor that the options of ``lvd fit`` ask for."""
    from lvd.kernels import Kernel
    from lvd.methods import LVDRegressor
    from lvd.scores import ConformityScore
    from lvd.support import SupportRule

    if checkpoint is not None:
        estimator = _trained_network(checkpoint, device, target)
    elif smiles is not None:
        estimator = _network(preset, epochs, {"hidden_size": hidden_size, "n_members": members}, device, seed)
    else:
        estimator = _estimator(model, epochs, device, seed)
    return LVDRegressor(
        estimator,
        prefit=checkpoint is not None,
        preset=preset,
        conformity_score=_own_part(score, ConformityScore) if score is not None and ":" in score else score,
        kernel=None if kernel is None else _own_part(kernel, Kernel),
        support=None if support is None else _own_part(support, SupportRule),
        calibration=calibration,
        max_calibration_rows=max_calibration_rows,
        joint=joint,
        bandwidth=None if bandwidth is None else _as_bandwidth(bandwidth),
        when_unknown=when_unknown,
        confidence_level=level,
        y_range=None if y_min is None and y_max is None else (y_min, y_max),
        device=device,
        random_state=seed,
    )


def _facts_of(regressor: LVDRegressor) -> dict[str, object]:
    """What was chosen for the table: the model, and how it is calibrated."""
    errors = getattr(regressor, "choice_", None) or None
    chosen = {"class": model_class(regressor), "held_out_errors": errors}
    return {"estimator": chosen, "calibration": regressor.calibrated_by}


def _unread(
    data: Path, drop: Sequence[str], used: Sequence[str | None], *, whole: bool, only_used: bool
) -> set[str]:
    """The columns of a Parquet file that need not be read: those dropped, or all that are not used."""
    from lvd.tables.column_values import check_names
    from lvd.tables.reading import read_schema, table_format

    names, needed = read_schema(data).names, {name for name in used if name is not None}
    if whole or table_format(data) != "parquet":
        return set()
    check_names(names, [*needed, *drop])
    return {name for name in names if only_used or name in drop} - needed


def _read_again(rows: pa.Table, data: Path, places: Any, unread: set[str]) -> pa.Table:
    """These rows, with the columns that were skipped at first read from the file."""
    from lvd.tables.reading import read_places

    whole = read_places(data, places)
    columns = {name: (whole if name in unread else rows)[name] for name in rows.column_names}
    return rows.from_pydict(columns, metadata=rows.schema.metadata)


def _as_in_file(path: Any, table: pa.Table, cells: pa.Table, groups: str | None) -> pa.Table:
    """The rows with their types if the file format has types, but groups as written in the table of lvd fit."""
    from lvd.tables.reading import table_format

    if table_format(path) != "parquet":
        return cells
    if groups is None:
        return table
    return table.set_column(table.column_names.index(groups), groups, cells[groups])


def _check_range(y_min: float | None, y_max: float | None) -> None:
    from lvd._validation import InputError

    for name, bound in (("--y-min", y_min), ("--y-max", y_max)):
        if bound is not None and not math.isfinite(bound):
            raise InputError(f"{name} must be a finite number, got {bound}")
    if y_min is not None and y_max is not None and not y_min < y_max:
        raise InputError(f"--y-min must be below --y-max, got {y_min:g} and {y_max:g}")


def _forecast_plan(
    table: pa.Table,
    time: str | None,
    target: str,
    steps: tuple[str | None, str | None],
    date_format: DateFormat | None,
) -> ForecastPlan | None:
    """The horizons to forecast and the lags to forecast from; None if no forecast is wanted."""
    from lvd.tables.forecasting import ForecastPlan, read_horizons, read_steps

    lags, horizon = steps
    if time is None or lags is None or horizon is None:
        return None
    found = {"lags": read_steps(lags, "lags"), "horizons": read_horizons(horizon)}
    return ForecastPlan.of(table, time=time, target=target, date_format=date_format, **found)


def _fit_table(
    table: pa.Table,
    regressor: LVDRegressor,
    plan: ForecastPlan | None,
    of_rows: dict[str, Any],
    **choices: Any,
) -> tuple[TableModel, FitReport]:
    """Fit a model of rows, or a forecasting model if there is a plan; `of_rows` applies to the former only."""
    from lvd.tables.table_model import TableModel

    if plan is None:
        return TableModel.fit(table, regressor, **of_rows, **choices)
    return TableModel.fit_forecast(table, regressor, plan, **choices)


def _test_rows(table: pa.Table, fitted: TableModel) -> pa.Table:
    """The rows that no step has seen; for forecasts also the earlier rows that hold their lags."""
    if fitted.forecast is None:
        return table.take(fitted.test_rows - 1)
    places = fitted.forecast.rows(table).places[fitted.test_rows - 1]
    return fitted.forecast.from_place(table, int(places.min()))


def _own_part(name: str, contract: type[Any]) -> Any:
    """An object of a user's own class, with the defaults of its constructor."""
    from lvd._validation import InputError

    cls = own_class(name)
    try:
        part = cls()
    except TypeError as error:
        raise InputError(f"{name} needs settings ({error}); give its parameters defaults") from error
    if not isinstance(part, contract):
        raise InputError(f"{name} must derive from {contract.__module__}.{contract.__name__}")
    return part


def _as_bandwidth(text: str) -> float | str:
    from lvd._validation import InputError

    if text == "adaptive":
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--bandwidth must be a number or adaptive, got {text!r}") from None


def _estimator(model: ModelName | None, epochs: int | None, device: str, seed: int) -> Any:
    """The name of a model, or a network to train for this many epochs."""
    from lvd.models import NetRegressor

    return model if epochs is None else NetRegressor(epochs=epochs, device=device, random_state=seed)


def _network(
    preset: PresetName,
    epochs: int | None,
    sizes: dict[str, int | None],
    device: str,
    seed: int,
) -> Any:
    """Graph networks; `sizes` gives their width and number, or None for the defaults."""
    from lvd import ChempropEstimator
    from lvd.models.losses import SquaredLoss

    of_paper = {"loss": SquaredLoss(), "n_members": 1} if preset == "paper" else {}
    return ChempropEstimator(
        n_epochs=epochs,
        warmup_epochs=2.0 if epochs is None else min(2.0, epochs / 2),
        cache_features=False,  # each predicted row is read once: caching would only fill the disk
        device=device,
        random_state=seed,
    ).set_params(**of_paper | {name: value for name, value in sizes.items() if value is not None})


def _trained_network(checkpoint: Path, device: str, targets: list[str]) -> Any:
    from lvd import read_trusted_checkpoint
    from lvd._validation import InputError, resolve_device

    network = read_trusted_checkpoint(checkpoint).set_params(cache_features=False)
    names = network.target_names
    if names is not None and names != tuple(targets):
        options = " ".join(f"--target {name}" for name in names)
        raise InputError(f"{checkpoint} predicts {', '.join(names)}, in this order; give {options}")
    network.module.to(resolve_device(device))
    return network


def _training_on(engine: str, address: str | None) -> AbstractContextManager[None]:
    """The context in which independent models are trained: this process, or Ray."""
    if engine == "local":
        return nullcontext()
    from lvd.tables.distributed import on_ray

    return on_ray(address)


@contextmanager
def _showing(
    table: pa.Table,
    n_targets: int,
    *,
    smiles: str | None,
    drop: Sequence[str] | None,
    model: ModelName | None,
    epochs: int | None,
    preset: PresetName,
    score: str | None,
    **_: Any,
) -> Iterator[None]:
    """Show the stages and the time left; for graph networks, which have their own bar, print the stages."""
    from lvd._progress import listening

    n_rows = table.num_rows
    if smiles is not None:
        console.show_stage(f"reading {n_rows:,} molecules")
        with listening(console.show_stage):
            yield
        return
    expected = expected_seconds(
        *(n_rows, table.num_columns - len(drop or ()), n_targets),
        model=model or ("net" if epochs is not None or preset == "paper" else "auto"),
        preset=preset,
        score=score,
    )
    with console.stages(f"fitting {n_rows:,} rows", expected) as show_stage, listening(show_stage):
        yield


def expected_seconds(
    n_rows: int,
    n_columns: int,
    n_targets: int = 1,
    *,
    model: ModelName = "auto",
    preset: PresetName = "default",
    score: str | None = None,
) -> dict[str, float]:
    """Estimated seconds of each stage of a fit on one processor, in order.

    Linear fits to measurements on tables of 500 to 50,000 rows and 5 to 60 columns. The speed of the machine at
    hand is estimated during the fit.
    """
    from lvd.models.candidates import JUDGED_ROWS, N_FOLDS
    from lvd.scores.score import LEARNED_ROWS

    thousands, n_train = n_rows / 1000.0, max(1.0, 0.6 * n_rows)
    # From 10,000 rows on trees stop early.
    few, more = min(thousands, 10.0), max(0.0, thousands - 10.0)
    of_trees = 0.05 + few * (0.008 + 0.0006 * n_columns) + 0.005 * more
    seconds = {"net": 0.2 + 0.06 * thousands, "trees": of_trees}
    n_judged = math.ceil(N_FOLDS * min(1.0, JUDGED_ROWS / n_train)) if model == "auto" else 0
    trained = seconds["net" if model == "auto" else model]
    n_folds = math.ceil(N_FOLDS * min(1.0, LEARNED_ROWS / n_train))
    learned = min(thousands, 20.0 / 0.6)
    n_test = 0.2 * n_rows
    stages = {
        "reading the columns": 1e-4 * thousands * n_columns,
        "choosing the model": 0.9 * n_judged * sum(seconds.values()),
        "training the model": trained,
        "errors on rows held out": 0.8 * max(0, n_folds - n_judged) * trained,
        "learning the kernel": n_targets * (0.1 + 0.035 * few),
        "learning how large errors are": n_targets * (0.3 + 0.06 * learned),
        "learning the shape of errors": n_targets * (0.1 + learned * (0.03 + 0.0042 * n_columns)),
        "calibrating the intervals": 0.004 * thousands,
        "testing the intervals": 0.04
        + 0.02 * thousands
        + 1.2e-7 * min(n_test, 2000.0) * min(n_test, 50_000.0),
    }
    if preset == "paper":
        del stages["errors on rows held out"]
    if preset == "paper" or score not in OF_SHAPES:
        del stages["learning the shape of errors"]
    if preset == "paper" or score not in OF_SCALES:
        del stages["learning how large errors are"]
    return {name: taken for name, taken in stages.items() if taken > 0.0}
