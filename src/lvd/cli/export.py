"""``lvd export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lvd.cli import console
from lvd.cli.console import Json, Levels, Model, Trust, argument, check_files, check_new, load_fitted

EXAMPLES = console.examples(
    "lvd export homes-model homes.onnx",
    "lvd export homes-model homes.onnx --level 0.5 --level 0.9",
)


def export_graph(
    model: Model,
    out: Annotated[Path, argument("OUT", "The .onnx file to write.")],
    *,
    level: Levels = None,
    max_rows: Annotated[
        int,
        typer.Option(
            min=1,
            help="Maximum number of calibration rows in the graph. If there are more, those with the smallest "
            "errors are dropped, which makes intervals wider, never narrower.",
        ),
    ] = 20_000,
    trust: Trust = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the files at OUT.")] = False,
    json: Json = False,
) -> None:
    """Write a model with its intervals as one ONNX graph that runs without lvd and without Python (extra onnx).

    The input of the graph, X, holds the table's columns as numbers. Its outputs are those of lvd predict: y_pred,
    lower_90 and upper_90 for each level, n_effective and known. It consists of standard operators in float64 and
    runs in onnxruntime on a CPU, from any language.

    OUT.json, next to it, specifies how columns become numbers: texts are coded by their levels, and dates by their
    parts. examples/onnx/read_coded_columns.py in lvd's repository is a short program in plain Python that reads
    it.

    Models of lvd fit with the local guarantee can be exported, and so can most models fitted in Python on a frame.
    Models fitted with --smiles, --joint, --groups, a --kernel of your own or another --guarantee are refused.
    """
    from lvd.tables.exported import coding_beside, export_model

    beside = coding_beside(out)
    for one in (out, beside):
        check_new(one, force=force)
    check_files({"OUT": out, "OUT.json": beside}, model)
    written = export_model(load_fitted(model, trust), out, level, max_rows=max_rows)
    if json:
        console.show_json({"out": str(out), "coding": str(beside), **written._asdict()})
        return
    console.show(
        f"{out}: {written.n_bytes / 1e6:,.2f} MB, standard operators of version {written.opset}, "
        f"{written.n_rows:,} of {written.n_calib:,} calibration rows"
    )
    console.show(f"{beside}: how columns become the numbers of its input {written.inputs[0]}")
    console.show(f"its outputs: {', '.join(written.outputs)}")
