"""``lvd data`` and ``lvd demo``: datasets that are known already, and what LVD makes of two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lvd.cli import console
from lvd.cli.shared import Json

data = typer.Typer(name="data", no_args_is_help=True, help="The datasets of the experiments.")


@data.command(
    name="list",
    epilog=console.examples("lvd data list", "lvd data list --folder downloads", "lvd data list --json"),
)
def list_datasets(
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", show_default="that of the variable LVD_DATA", help="A folder with datasets."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List the datasets of the experiments, and where each is on this machine.

    A dataset that is not here is downloaded when it is first used (lvd.data.load in Python), to the folder that
    the variable LVD_CACHE names (else ~/.cache/lvd). Nothing is downloaded by this command.
    """
    from lvd.reproduction import available

    datasets = available(folder)
    if json:
        console.show_json([asdict(dataset) for dataset in datasets])
        return
    console.show_table(
        ["name", "targets", "where", "rows", "columns"],
        [[d.name, _first_three(d.targets), d.where, f"{d.rows:,}", str(d.columns)] for d in datasets],
        text_columns=3,
    )


@data.command(
    name="export",
    epilog=console.examples("lvd data export diabetes diabetes.csv", "lvd data export bike bike.parquet"),
    no_args_is_help=True,
)
def export_dataset(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="A name of lvd data list.")],
    out: Annotated[
        Path,
        typer.Argument(metavar="FILE", show_default=False, help="A .csv, .csv.gz or .parquet file to write."),
    ],
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", show_default="that of the variable LVD_DATA", help="A folder with datasets."
        ),
    ] = None,
) -> None:
    """Write a dataset as a table, its target in the last columns, to try the other commands on."""
    from lvd._files import check_output
    from lvd.reproduction import available, export, load

    check_output(out, *(dataset.where for dataset in available(folder)), name="FILE")
    console.show(f"{export(load(name, data_dir=folder), out):,} rows written to {out}")


DEMO_EXAMPLES = console.examples("lvd demo", "lvd demo --out figures")
DEMO_COLUMNS = """
MCR, TCR: share of the test rows covered, of all and of those with the smallest and the largest tenth of y.
AUROC: how well the width tells large errors from small ones (50% is chance). MAD: mean absolute error.
width, finite: mean width of the finite intervals, and their share."""


def demo(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the figures and the intervals; made if missing.")
    ] = Path("lvd-demo"),
) -> None:
    """See LVD beside split conformal, around the same network, on two small datasets that need no download.

    Prints the metrics and what to see in them, and writes three figures (PNG) and all intervals (CSV). Files
    of the same name in the folder are replaced. Takes less than a minute.
    """
    from lvd.reproduction.demonstration import demo_sentences, run_demo

    results = run_demo(out, progress=console.progress)
    tables = {
        (outcome.example.name, method): outcome.summary(method).cells()
        for outcome in results.outcomes
        for method in outcome.methods
    }
    headings = next(iter(tables.values()))[0]
    lines = [[*names, *line] for names, cells in tables.items() for line in cells[1:]]
    console.show_table(["dataset", "method", *headings], lines, text_columns=2)
    console.show(DEMO_COLUMNS)
    for outcome in results.outcomes:
        train, calib, test = (len(part) for part in outcome.example.parts)
        console.show(f"\n{outcome.example.name}: {train} rows train, {calib} calibrate, {test} test")
        for sentence in demo_sentences(outcome):
            console.show(f"- {sentence}")
    console.show(f"\nWritten to {out}: {', '.join(path.name for path in results.files)}")


def _first_three(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
