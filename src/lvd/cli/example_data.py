"""``lvd data`` and ``lvd demo``: the datasets of the experiments, and LVD on homes in six towns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lvd.cli import console
from lvd.cli.console import Json, argument, check_files, option

Folder = Annotated[
    Path | None, option("FOLDER", "A folder with datasets.", "the variable LVD_DATA", "--folder")
]
data = typer.Typer(name="data", no_args_is_help=True, help="The datasets of the experiments.")


@data.command(
    name="list",
    epilog=console.examples("lvd data list", "lvd data list --folder downloads", "lvd data list --json"),
)
def list_datasets(
    folder: Folder = None,
    json: Json = False,
) -> None:
    """List the datasets of the experiments, and where each one is on this machine.

    A missing dataset is downloaded on first use (lvd.data.load_dataset in Python), to the folder named by the
    variable LVD_CACHE, or else to ~/.cache/lvd. This command downloads nothing.
    """
    from lvd.data import available

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
    name: Annotated[str, argument("NAME", "A name listed by lvd data list.")],
    out: Annotated[Path, argument("FILE", "A .csv, .csv.gz or .parquet file to write.")],
    folder: Folder = None,
) -> None:
    """Write a dataset as a table, with its targets in the last columns, to try the other commands on."""
    from lvd.data import available, export, load_dataset

    check_files({"FILE": out}, *(dataset.where for dataset in available(folder)))
    console.show(f"{export(load_dataset(name, data_dir=folder), out):,} rows written to {out}")


DEMO_EXAMPLES = console.examples("lvd demo", "lvd demo --out figures")


def demo(
    out: Annotated[
        Path, option("DIR", "Folder for the picture and the intervals; created if missing.", True)
    ] = Path("lvd-demo"),
) -> None:
    """Compare LVD with split conformal, around the same network, on generated homes; nothing is downloaded.

    Prints the coverage of both and what to look for, and writes a picture (PNG) and all intervals (CSV). Existing
    files of the same names are replaced. Takes less than a minute.
    """
    from lvd.demo.homes import LEVEL, LVD, NOISE_RATIO, NOISY, SPLIT, demo_lines, run_demo

    outcome, files = run_demo(out, progress=console.progress)
    console.show(
        f"Homes in six towns; in {NOISY} prices scatter {NOISE_RATIO} times as much. {LEVEL:.0%} intervals:\n"
    )
    lines = []
    for name, rows in outcome.places().items():
        local, split = outcome.among(rows, LVD), outcome.among(rows, SPLIT)
        cells = [f"{one.coverage:.0%}, {one.median_width:.3g}" for one in (local, split)]
        lines.append([name, f"{local.n_rows}", cells[0], f"{local.n_unknown}", cells[1]])
    headings = ["homes", "rows", "LVD: covered, median width", "unknown", "split: covered, median width"]
    console.show_table(headings, lines)
    console.show()
    for line in demo_lines(outcome):
        console.show(f"- {line}")
    console.show(f"\nWritten to {out}: {', '.join(path.name for path in files)}")


def _first_three(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
