"""``lvd predict``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from lvd.cli import console
from lvd.cli.console import (
    Address,
    Engine,
    GuaranteeOfFit,
    Json,
    Levels,
    Model,
    SkipInvalid,
    Trust,
    argument,
    check_engine,
    check_files,
    load_fitted,
    option,
)

EXAMPLES = console.examples(
    "lvd predict homes-model new-homes.csv --out priced.csv",
    "lvd predict homes-model new-homes.parquet --level 0.5 --level 0.9 --out priced.parquet",
    "lvd predict homes-model new-homes.csv --guarantee calibrated --out priced.csv",
    "lvd predict demand-model shops.csv --side upper --level 0.95 --out stock.csv  # enough in 95% of the cases",
    "lvd predict homes-model new-homes.csv --above 1000000 --out priced.csv",
    "lvd predict homes-model new-homes.csv --out - | head",
    "lvd predict homes-model 'homes/*.parquet' --engine ray --address auto --out priced.parquet",
)


def predict(
    model: Model,
    data: Annotated[
        list[str],
        argument(
            "DATA...",
            "Tables with a header: .csv, .csv.gz or .parquet; several, or 'data/*.parquet', are read as one.",
        ),
    ],
    out: Annotated[
        str, option("FILE", "Where to write: .csv, .csv.gz, .parquet, or - for CSV on standard output.")
    ],
    *,
    level: Levels = None,
    guarantee: GuaranteeOfFit = None,
    side: Annotated[
        Literal["lower", "upper"] | None,
        typer.Option(
            show_default="both ends",
            help="A one-sided bound, with the whole error rate on its side: at level 0.95 the upper bound is too "
            "low in 5% of the cases, the upper end of a two-sided interval in about half as many.",
        ),
    ] = None,
    above: Annotated[
        list[float] | None,
        option("NUMBER", "Also test whether the target is above this; repeat for several.", "no threshold"),
    ] = None,
    skip_invalid: SkipInvalid = False,
    trust: Trust = None,
    engine: Engine = "local",
    address: Address = None,
    json: Json = False,
) -> None:
    """Add predictions and intervals to a table.

    Keeps all columns and adds y_pred, lower_90 and upper_90 for each level (90 for 0.9); n_effective: how many
    equally similar calibration rows the interval rests on; and known: true where a training row is similar, false
    where the model has seen nothing like this row. With several targets the names end in the target's, as in
    y_pred_mu; known is one column. A model fitted with --smiles also adds nearest, the SMILES of the calibration
    row most similar to this one, and tanimoto, their similarity from 0 to 1 (Morgan fingerprints).

    With --side there is one end for each level. --above 50 adds above_50, the estimated probability that the
    target is above 50, empty for unknown rows; and above_50_p_value: saying "above" where it is at most 0.05 is
    wrong in at most 5% of similar cases. The p-value is 1 for unknown rows.

    With a model fitted with --joint, the intervals of all targets hold together: they are the sides of its box, or
    the projections of its ellipsoid.

    An infinite interval, from -inf to inf, means that too little is known about rows like this one; lvd explain
    reports how many similar rows are missing.

    A model fitted with --groups needs that column here too. Rows in a group without calibration rows are counted,
    and their intervals are infinite.

    A text that no training row has, such as a new city, is not an error: the row is counted as unknown, and lvd fit
    --when-unknown decides whether its interval is infinite.

    Rows that the model cannot read are refused, and the message lists their numbers. With --skip-invalid they are
    kept, with empty cells for prediction and intervals, so that the output has the same rows as the input.

    Several files with the same columns are read as one table, in the given order; files that match a pattern are
    sorted by name. Row numbers run through all files.

    The table is read and written in batches, so it may be larger than memory. The output file appears only when it
    is complete; if anything fails before that, no partial file is left. A Ray cluster gives the same rows in the
    same order with the same numbers; all of its machines must be able to read the files at the same paths.
    """
    from lvd._validation import InputError
    from lvd.tables.reading import count_rows, find_files, read_rows

    if json and out == "-":
        raise InputError("--json and --out - both print to standard output; give --out the name of a file")
    check_engine(engine, address)
    if trust and engine == "ray":
        raise InputError(
            "--trust is for this machine: a Ray cluster may lack the module; leave --engine ray out"
        )
    paths = find_files(data)
    counts = [count_rows(path) for path in paths]
    if out != "-":
        check_files({"--out": Path(out)}, model, *paths)
    fitted = load_fitted(model, trust, skip_invalid=skip_invalid, guarantee=guarantee)
    total = None if None in counts else sum(count for count in counts if count is not None)
    asked: dict[str, Any] = {"side": side, "above": tuple(dict.fromkeys(above or ()))}
    with console.progress("predicting", total) as on_rows:
        if engine == "ray":
            from lvd.tables import distributed

            report = distributed.predict_to(
                out, paths, fitted, level, address=address, on_rows=on_rows, **asked
            )
        else:
            rows = read_rows(*paths, batch_rows=fitted.encoder.batch_rows)
            report = fitted.predict_to(out, rows, level, on_rows=on_rows, **asked)
    if json:
        console.show_json({"out": out, **asdict(report)})
    elif out != "-":
        console.show(f"{report.n_rows:,} rows written to {out}")
        if report.n_skipped:
            console.show(f"{report.n_skipped:,} of them without a prediction: the model cannot read them")
        if report.n_skipped == report.n_rows:
            console.show("no row has an interval")
            return
        console.show_unknown(report.n_unknown, report.unseen, report.n_rows)
        if fitted.regressor.joint is not None:
            shape = fitted.regressor.joint
            console.show(
                f"the intervals of all targets hold together: they are the projections of one {shape} per row"
            )
        for name, fraction in report.finite_fraction.items():
            ends = [f"{one}_{name}" for one in ("lower", "upper") if side in (None, one)]
            console.show(f"{', '.join(ends)}: {fraction:.1%} of the intervals are finite")
