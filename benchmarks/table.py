"""The bench page in the terminal: one table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Column, Table

from benchmarks.contestants import CONTESTANTS, OURS
from benchmarks.results import Cell, duration, footnotes, number, select, slope_of

COLUMNS = (
    "queries",
    "rows",
    "calibration",
    "first",
    "prediction",
    "times lvd",
    "rows/s",
    "peak MB",
    "slope",
)


def table_of(cells: Sequence[Cell]) -> Table:
    """A contestant's sizes one below the other, with the slope of its growth next to the last."""
    first = cells[0]
    table = Table(
        "grows",
        Column("contestant", no_wrap=True),
        *(Column(name, justify="right") for name in COLUMNS),
        title=f"{first.machine}; {first.threads} threads, torch {first.torch}, lvd {first.lvd}, {first.date}",
        caption="\n".join(footnotes(cells)),
        caption_justify="left",
    )
    for sweep in dict.fromkeys(cell.sweep for cell in cells):
        ours = {cell.size: cell.predict_seconds for cell in select(cells, sweep, OURS)}
        for name in dict.fromkeys(cell.contestant for cell in cells):
            series = select(cells, sweep, name)
            for cell in series:
                table.add_row(
                    sweep if cell is series[0] else "",
                    CONTESTANTS[name].title if cell is series[0] else "",
                    f"{cell.queries:,}",
                    f"{cell.rows:,}",
                    duration(cell.calibrate_seconds),
                    duration(cell.first_seconds),
                    duration(cell.predict_seconds),
                    number(cell.predict_seconds / ours.get(cell.size, float("nan")), ",.3g"),
                    number(cell.rows_per_second),
                    number(cell.peak_mb, ",.1f"),
                    number(slope_of(series), ".2f") if cell is series[-1] else "",
                    style="bold" if name == OURS else None,
                    end_section=cell is series[-1],
                )
    return table
