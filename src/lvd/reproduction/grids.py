"""From cells to text: a grid is a table as it is read, with marks for what stands out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from lvd.reproduction import available
from lvd.reproduction.names import task_of
from lvd.reproduction.layout import LAYOUTS, Block, Layout, dataset_title, method_title
from lvd.reproduction.result_tables import Cell, Tables

MISSING = "\N{EN DASH}"


@dataclass(frozen=True)
class Entry:
    """One place of a grid: a figure, which may stand out, and its spread after the sign +-."""

    text: str
    spread: str = ""
    emphasis: str = ""


@dataclass(frozen=True)
class Grid:
    """A table as it is read; the first of each row is its label."""

    title: str
    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]


def table_grids(tables: Tables) -> list[Grid]:
    """The dataset sizes, then every table the results have something for, panel by panel."""
    return [sizes_grid(tables), *(grid for layout in LAYOUTS for grid in _layout_grids(tables, layout))]


def sizes_grid(tables: Tables) -> Grid:
    """Rows of each dataset, and of its test part."""
    totals = {dataset_title(dataset.name): dataset.rows for dataset in available()}
    datasets = [name for name in tables.datasets if not task_of(name)]
    counts = (Entry(f"{totals[name]} ({tables.test_sizes[name]})") for name in datasets)
    dropped = " Molecules that stand twice in QM9's file are left out." if "QM9" in datasets else ""
    return Grid(
        "Datasets",
        f"Rows of each dataset's file; those of its test part in parentheses.{dropped}",
        ("", *datasets),
        ((Entry("rows"), *counts),),
    )


def _layout_grids(tables: Tables, layout: Layout) -> Iterator[Grid]:
    for number, panel in enumerate(layout.panels):
        rows = {name: [tables.row(layout, block, name) for block in panel] for name in tables.datasets}
        present = {name: row for name, row in rows.items() if any(c.sample.n for cells in row for c in cells)}
        if present:
            yield Grid(
                f"{layout.title} ({tables.protocol} protocol): {_headings(panel)}",
                layout.caption if number == 0 else "",
                ("", *(_heading(layout, panel, block, m) for block in panel for m in block.methods)),
                tuple(
                    (Entry(_label(tables, panel, name)), *(_entry(c) for cells in row for c in cells))
                    for name, row in present.items()
                ),
            )


def _headings(panel: tuple[Block, ...]) -> str:
    return ", ".join(dict.fromkeys(block.heading for block in panel))


def _heading(layout: Layout, panel: tuple[Block, ...], block: Block, method: str) -> str:
    """The method, where the title says what is shown; the metric, where a block has one method only."""
    if len(panel) > 1 and len(block.methods) == 1:
        return block.heading
    return method_title(method, layout.name)


def _label(tables: Tables, panel: tuple[Block, ...], dataset: str) -> str:
    counts_rows = any(block.metric == "finite_count" for block in panel)
    return f"{dataset} ({tables.test_sizes[dataset]})" if counts_rows else dataset


def _entry(cell: Cell) -> Entry:
    if not cell.sample.n:
        return Entry(MISSING)
    mean, std = (_number(value, cell.decimals) for value in (cell.sample.mean, cell.sample.std))
    return Entry(mean, std, cell.emphasis)


def _number(value: float, decimals: int) -> str:
    if math.isnan(value):
        return ""
    return f"{value:.{decimals}f}" if math.isfinite(value) else "\N{INFINITY}"
