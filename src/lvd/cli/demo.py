"""``lvd demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lvd.cli import console

EXAMPLES = console.examples("lvd demo", "lvd demo --out figures")
COLUMNS = """
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
    from lvd.reproduction.demo import run_demo, sentences

    results = run_demo(out, progress=console.progress)
    tables = {
        (outcome.example.name, method): outcome.summary(method).cells()
        for outcome in results.outcomes
        for method in outcome.methods
    }
    headings = next(iter(tables.values()))[0]
    lines = [[*names, *line] for names, cells in tables.items() for line in cells[1:]]
    console.show_table(["dataset", "method", *headings], lines, text_columns=2)
    console.show(COLUMNS)
    for outcome in results.outcomes:
        train, calib, test = (len(part) for part in outcome.example.parts)
        console.show(f"\n{outcome.example.name}: {train} rows train, {calib} calibrate, {test} test")
        for sentence in sentences(outcome):
            console.show(f"- {sentence}")
    console.show(f"\nWritten to {out}: {', '.join(path.name for path in results.files)}")
