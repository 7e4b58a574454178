"""``lvd fit``."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lvd.cli import console
from lvd.cli.metrics import show_metrics
from lvd.cli.options import Data, Json

if TYPE_CHECKING:
    from lvd.methods.table_reports import FitReport

EXAMPLES = console.examples(
    "lvd fit homes.csv --target price --out homes-model",
    "lvd fit homes.csv.gz --target price --drop id --drop street --impute median --out homes-model",
    "lvd fit molecules.parquet --target mu --target alpha --level 0.95 --out molecules-model",
    "lvd fit homes.csv --target price --test-out test.csv --out homes-model  # keep the test rows",
)


def fit(
    data: Data,
    target: Annotated[
        list[str],
        typer.Option(metavar="COLUMN", show_default=False, help="Column to predict; repeat it for several."),
    ],
    out: Annotated[
        Path, typer.Option(metavar="MODEL", show_default=False, help="Folder to write the model to.")
    ],
    *,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN", show_default=False, help="Column to leave out; repeat it for several."
        ),
    ] = None,
    impute: Annotated[
        str | None,
        typer.Option(
            metavar="median",
            show_default="missing values are refused",
            help="Replace missing numbers with their column's median; missing text is a category of its own.",
        ),
    ] = None,
    level: Annotated[
        float, typer.Option(help="Confidence level of the report, and of lvd predict when it is given none.")
    ] = 0.9,
    y_min: Annotated[
        float | None, typer.Option(show_default=False, help="Lowest possible target; clips the intervals.")
    ] = None,
    y_max: Annotated[
        float | None, typer.Option(show_default=False, help="Highest possible target; clips the intervals.")
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default="20, or more for small tables",
            help="Passes of the network over the training rows.",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Decides the split and all that is random in training.")
    ] = 0,
    device: Annotated[str, typer.Option(help="Where to compute: auto, cpu, cuda, cuda:1...")] = "auto",
    test_out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", show_default=False, help="Also write the test rows, to evaluate by group."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the model that stands at --out.")] = False,
    json: Json = False,
) -> None:
    """Fit a model to a table and report how good its intervals are.

    The rows are split at random: 60% train the network and the kernel, 20% calibrate the intervals, and 20%
    test them; no step sees the test rows, and no row is left out. Numbers are scaled, text and categorical
    columns are one-hot coded. Dates must be turned into numbers first, or dropped.
    """
    from lvd import LVDRegressor, NetRegressor
    from lvd.data.tables import read_table
    from lvd.data.writing import TableWriter
    from lvd.methods.table import TableModel, check_free

    check_free(out, force=force)
    table = read_table(data)
    regressor = LVDRegressor(
        NetRegressor(epochs=epochs, device=device, random_state=seed),
        confidence_level=level,
        y_min=y_min,
        y_max=y_max,
        device=device,
        random_state=seed,
    )
    with nullcontext() if test_out is None else TableWriter(test_out) as test_file:
        with console.working(f"fitting {table.num_rows:,} rows"):
            model, report = TableModel.fit(
                table, regressor, target=target, drop=drop or (), impute=impute, seed=seed
            )
        if test_file is not None:
            test_file.write(table.take(model.test_rows - 1))
        model.save(out)
    if json:
        console.show_json({"model": str(out), **asdict(report)})
    else:
        _show(report, data, out, seed)


def _show(report: FitReport, data: Path, out: Path, seed: int) -> None:
    n_rows = report.n_train + report.n_calib + report.n_test
    left_out = ", ".join(report.left_out)
    console.show(f"{data}: {n_rows:,} rows, {len(report.inputs)} input columns, {report.n_features} features")
    console.show(f"left out: no row, {f'the columns {left_out}' if left_out else 'no column'}")
    console.show(
        f"split (seed {seed}): {report.n_train:,} training, {report.n_calib:,} calibration "
        f"and {report.n_test:,} test rows"
    )
    if report.n_repeated:
        console.show(
            f"note: {report.n_repeated:,} calibration and test rows repeat the inputs of a training row; if they "
            "are copies of one record, keep one of each and fit again"
        )
    show_metrics(report.targets, f"the {report.n_test:,} test rows, which no step has seen")
    console.show(f"\nmodel written to {out}")
