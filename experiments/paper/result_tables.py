"""The paper's tables from our results: cells, then grids of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

from experiments.paper.collect import Measured
from experiments.paper.formats import MISSING, Grid, GridEntry, csv_text, figure_text
from experiments.paper.layout import (
    ALL_VARIANTS,
    LAYOUTS,
    Block,
    Layout,
    dataset_order,
    dataset_title,
    method_title,
)
from experiments.paper.methods import MAIN_VARIANT
from experiments.paper.runs import table_of, task_of
from experiments.paper.significance import Sample, sample_of
from lvd import InputError
from lvd.data import available


@dataclass(frozen=True)
class Placed:
    """The position of a figure: its table, metric, method and dataset."""

    table: str
    metric: str
    confidence_level: float
    dataset: str
    method: str

    @property
    def place(self) -> tuple[str, str, float, str, str]:
        """The position as a key."""
        return self.table, self.metric, self.confidence_level, self.dataset, self.method


PLACE = tuple(field.name for field in fields(Placed))
LONG_FORM = (*PLACE, "mean", "std", "n")


@dataclass(frozen=True)
class Cell(Placed):
    """One figure of a table; `sample.n` counts its seeds, 0 without a result."""

    sample: Sample
    decimals: int
    emphasis: str


@dataclass(frozen=True)
class ResultTables:
    """All cells of one protocol, and the size of each dataset's test part."""

    protocol: str
    cells: tuple[Cell, ...]
    test_sizes: dict[str, int]

    @property
    def datasets(self) -> list[str]:
        """The datasets with results, in the paper's order."""
        return sorted(self.test_sizes, key=dataset_order)

    def row(self, layout: Layout, block: Block, dataset: str) -> list[Cell]:
        """The cells of one block for one dataset, by method."""
        place = (layout.name, block.metric, block.confidence_level, dataset)
        return [cell for cell in self.cells if cell.place[:4] == place]


def make_tables(rows: Sequence[Measured], protocol: str | None = None) -> ResultTables:
    """The tables of one protocol, which may be omitted if the results have only one."""
    chosen = only_protocol(rows, protocol)
    figures: dict[tuple[str, str, float], list[Measured]] = {}
    for row in rows:
        if row.protocol == chosen and not row.error:
            # The value of a table with several tasks is the mean over all of them and all seeds.
            for name in dict.fromkeys((row.dataset, table_of(row.dataset))):
                key = (dataset_title(name), row.method, row.confidence_level)
                figures.setdefault(key, []).append(row)
    sizes = {dataset: members[0].n_test for (dataset, _, _), members in figures.items()}
    cells = [
        cell
        for layout in LAYOUTS
        for panel in layout.panels
        for block in panel
        for dataset in sorted(sizes, key=dataset_order)
        if bool(task_of(dataset)) == layout.of_tasks
        for cell in _row(layout, block, dataset, figures)
    ]
    return ResultTables(chosen, tuple(cells), sizes)


def long_form(cells: Iterable[Cell]) -> str:
    """CSV with one line per cell with a result, under the names of the printed cells."""
    known = ((cell.place, cell.sample) for cell in cells if cell.sample.n)
    return csv_text(LONG_FORM, ((*place, f"{one.mean:.9g}", f"{one.std:.9g}", one.n) for place, one in known))


def _row(
    layout: Layout, block: Block, dataset: str, figures: dict[tuple[str, str, float], list[Measured]]
) -> Iterator[Cell]:
    name, level, samples = block.field or block.metric, block.confidence_level, []
    for method in block.methods:
        # Values that belong to all variants together are recorded with each of them.
        source = MAIN_VARIANT if method == ALL_VARIANTS else method
        samples.append(sample_of([getattr(row, name) for row in figures.get((dataset, source, level), [])]))
    for method, sample, emphasis in zip(block.methods, samples, block.rule(samples), strict=True):
        yield Cell(layout.name, block.metric, level, dataset, method, sample, block.decimals, emphasis)


def only_protocol(rows: Sequence[Measured], protocol: str | None) -> str:
    """The protocol of the results, which may be omitted if they have only one."""
    found = sorted({row.protocol for row in rows})
    if protocol is None and len(found) == 1:
        return found[0]
    if protocol is None or protocol not in found:
        raise InputError(
            f"protocol must be one of those the results have, {', '.join(found) or 'none'}, got {protocol!r}"
        )
    return protocol


def table_grids(tables: ResultTables) -> list[Grid]:
    """The dataset sizes, then every table that has results, panel by panel."""
    return [sizes_grid(tables), *(grid for layout in LAYOUTS for grid in _layout_grids(tables, layout))]


def sizes_grid(tables: ResultTables) -> Grid:
    """Rows of each dataset, and of its test part."""
    about = {dataset_title(dataset.name): dataset for dataset in available()}
    datasets = [name for name in tables.datasets if not task_of(name)]
    caption = "Rows of each dataset's file; those of its test part in parentheses."
    return Grid(
        "Datasets",
        " ".join([caption, *filter(None, (about[name].rows_note for name in datasets))]),
        ("", *datasets),
        [("rows", *(f"{about[name].rows} ({tables.test_sizes[name]})" for name in datasets))],
    )


def _layout_grids(tables: ResultTables, layout: Layout) -> Iterator[Grid]:
    for number, panel in enumerate(layout.panels):
        rows = {
            name: [c for block in panel for c in tables.row(layout, block, name)] for name in tables.datasets
        }
        present = {name: cells for name, cells in rows.items() if any(cell.sample.n for cell in cells)}
        if present:
            shown = ", ".join(dict.fromkeys(block.heading for block in panel))
            counts = any(block.metric == "finite_count" for block in panel)
            labels = {name: f"{name} ({tables.test_sizes[name]})" if counts else name for name in present}
            yield Grid(
                f"{layout.title} ({tables.protocol} protocol): {shown}",
                layout.caption if number == 0 else "",
                ("", *(_heading(layout, panel, block, m) for block in panel for m in block.methods)),
                [(labels[name], *map(_cell_entry, cells)) for name, cells in present.items()],
            )


def _heading(layout: Layout, panel: tuple[Block, ...], block: Block, method: str) -> str:
    """The method, if the title says what is shown; the metric, if a block has only one method."""
    if len(panel) > 1 and len(block.methods) == 1:
        return block.heading
    return method_title(method, layout.name)


def _cell_entry(cell: Cell) -> GridEntry:
    form, std = f".{cell.decimals}f", cell.sample.std
    spread = "" if math.isnan(std) else figure_text(std, form)
    return GridEntry(figure_text(cell.sample.mean, form), spread, cell.emphasis)


MAIN_FIGURES = {
    "MCR": ("coverage", 0.9),
    "TCR": ("coverage", 0.9),
    "AUROC": ("discrimination", 0.5),
    "MAD": ("discrimination", 0.9),
    "finite_count": ("width", 0.9),
    "width": ("width", 0.9),
}
"""The table and level of each metric in short comparisons of LVD with its rivals."""


def main_figure(tables: ResultTables, metric: str, dataset: str, method: str = MAIN_VARIANT) -> str:
    """The mean of one of LVD's main figures, or of a rival's, as text."""
    table, level = MAIN_FIGURES[metric]
    wanted = (table, metric, level, dataset, method)
    found = [cell for cell in tables.cells if cell.place == wanted and cell.sample.n]
    return f"{found[0].sample.mean:.{found[0].decimals}f}" if found else MISSING
