"""``lvd data``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lvd.cli import console
from lvd.cli.options import Json

data = typer.Typer(name="data", no_args_is_help=True, help="The datasets of the experiments.")


@data.command(
    name="list",
    epilog=console.examples("lvd data list", "lvd data list --folder downloads", "lvd data list --json"),
)
def list_datasets(
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", show_default="that of the variable LVD_DATA", help="Where tables may lie, too."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List the datasets of the experiments, and where each of them lies on this machine.

    A dataset that is not here is downloaded when it is first used (lvd.reproduction.load in Python), to the folder that
    the variable LVD_CACHE names (else ~/.cache/lvd). Nothing is downloaded by this command.
    """
    from lvd.reproduction import available

    datasets = available(folder)
    if json:
        console.show_json([asdict(dataset) for dataset in datasets])
        return
    console.show_table(
        ["name", "targets", "where", "rows", "columns"],
        [[d.name, _shorten(d.targets), d.where, f"{d.rows:,}", str(d.columns)] for d in datasets],
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
            metavar="FOLDER", show_default="that of the variable LVD_DATA", help="Where tables may lie, too."
        ),
    ] = None,
) -> None:
    """Write a dataset as a table, its target in the last columns, to try the other commands on."""
    from lvd._files import check_output
    from lvd.reproduction import available, export, load

    check_output(out, *(dataset.where for dataset in available(folder)), name="FILE")
    console.show(f"{export(load(name, data_dir=folder), out):,} rows written to {out}")


def _shorten(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
