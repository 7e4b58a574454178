"""``lvd predict``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from lvd.cli import console
from lvd.cli.options import Data, Json, Levels, Model

EXAMPLES = console.examples(
    "lvd predict homes-model new-homes.csv --out priced.csv",
    "lvd predict homes-model new-homes.parquet --level 0.5 --level 0.9 --out priced.parquet",
    "lvd predict homes-model new-homes.csv --out - | head",
)


def predict(
    model: Model,
    data: Data,
    out: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Where to write: .csv, .csv.gz, .parquet, or - for CSV on standard output.",
        ),
    ],
    *,
    level: Levels = None,
    json: Json = False,
) -> None:
    """Add predictions and intervals to a table.

    Keeps all columns and adds y_pred, lower_90 and upper_90 for each level (90 for 0.9), and n_effective: how
    many equally similar calibration rows the interval rests on. With several targets the names end in the
    target's: y_pred_mu. An infinite interval, from -inf to inf, says that too little is known about rows like
    this one; lvd explain says how much is missing.

    The table is read and written in batches, so it may be larger than memory. The file appears when it is
    complete: whatever goes wrong before leaves nothing behind.
    """
    from lvd._validation import InputError
    from lvd.data.tables import count_rows
    from lvd.methods.table import TableModel
    from lvd.methods.table_rows import read_rows

    if json and out == "-":
        raise InputError("--json and --out - both print to standard output; give --out the name of a file")
    fitted = TableModel.load(model)
    with console.progress("predicting", count_rows(data)) as on_rows:
        report = fitted.predict_to(out, read_rows(data), level, on_rows=on_rows)
    if json:
        console.show_json({"out": out, **asdict(report)})
    elif out != "-":
        console.show(f"{report.n_rows:,} rows written to {out}")
        for name, fraction in report.finite_fraction.items():
            console.show(f"lower_{name}, upper_{name}: {fraction:.1%} of the intervals are finite")
