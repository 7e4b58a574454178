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

    A dataset that is not here is downloaded when it is first used (lvd.data.load in Python), to the folder that
    the variable LVD_CACHE names (else ~/.cache/lvd). Nothing is downloaded by this command.
    """
    from lvd.data import available

    datasets = available(folder)
    if json:
        console.show_json([asdict(dataset) for dataset in datasets])
        return
    console.show_table(
        ["name", "targets", "where", "rows", "columns"],
        [[d.name, _shorten(d.targets), d.where, f"{d.rows:,}", str(d.columns)] for d in datasets],
        text_columns=3,
    )


def _shorten(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
