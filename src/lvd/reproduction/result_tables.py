"""From the metrics of runs to the cells of the tables: mean and standard deviation over the seeds."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lvd._validation import InputError
from lvd.reproduction.collect import Measured
from lvd.reproduction.paper_methods import MAIN_VARIANT
from lvd.reproduction.names import table_of, task_of
from lvd.reproduction.layout import ALL_VARIANTS, LAYOUTS, Block, Layout, dataset_order, dataset_title
from lvd.reproduction.significance import Sample, sample_of

LONG_FORM = ("table", "metric", "confidence_level", "dataset", "method", "mean", "std", "n")


@dataclass(frozen=True)
class Cell:
    """One figure of a table; `sample.n` counts the seeds it is made from, 0 where there is no result."""

    table: str
    metric: str
    confidence_level: float
    dataset: str
    method: str
    sample: Sample
    decimals: int
    emphasis: str


@dataclass(frozen=True)
class Tables:
    """All cells of one protocol, and the rows of each dataset's test part."""

    protocol: str
    cells: tuple[Cell, ...]
    test_sizes: dict[str, int]

    @property
    def datasets(self) -> list[str]:
        """The datasets there are results of, in the paper's order."""
        return sorted(self.test_sizes, key=dataset_order)

    def row(self, layout: Layout, block: Block, dataset: str) -> list[Cell]:
        """The cells of one block for one dataset, method by method."""
        place = (layout.name, block.metric, block.confidence_level, dataset)
        return [
            cell
            for cell in self.cells
            if (cell.table, cell.metric, cell.confidence_level, cell.dataset) == place
        ]


def make_tables(rows: Sequence[Measured], protocol: str | None = None) -> Tables:
    """The tables of one protocol; it need not be named where the results have only one."""
    chosen = _only_protocol(rows, protocol)
    figures: dict[tuple[str, str, float], list[Measured]] = {}
    for row in rows:
        if row.protocol == chosen and not row.error:
            # A table of molecules stands for all its tasks, every one of every seed.
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
    return Tables(chosen, tuple(cells), sizes)


def long_form(cells: Iterable[Cell]) -> str:
    """CSV with one line per cell that has a result, under the names that the printed cells have."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(LONG_FORM)
    for cell in cells:
        if cell.sample.n:
            place = (cell.table, cell.metric, cell.confidence_level, cell.dataset, cell.method)
            writer.writerow([*place, f"{cell.sample.mean:.9g}", f"{cell.sample.std:.9g}", cell.sample.n])
    return file.getvalue()


def _row(
    layout: Layout, block: Block, dataset: str, figures: dict[tuple[str, str, float], list[Measured]]
) -> Iterator[Cell]:
    # What holds for all variants together stands with each of them.
    sources = [MAIN_VARIANT if method == ALL_VARIANTS else method for method in block.methods]
    samples = [
        sample_of(
            [getattr(row, block.field) for row in figures.get((dataset, source, block.confidence_level), [])]
        )
        for source in sources
    ]
    for method, sample, emphasis in zip(block.methods, samples, block.rule(samples), strict=True):
        yield Cell(
            layout.name,
            block.metric,
            block.confidence_level,
            dataset,
            method,
            sample,
            block.decimals,
            emphasis,
        )


def _only_protocol(rows: Sequence[Measured], protocol: str | None) -> str:
    found = sorted({row.protocol for row in rows})
    if protocol is None and len(found) == 1:
        return found[0]
    if protocol is None or protocol not in found:
        raise InputError(
            f"protocol must be one of those the results have, {', '.join(found) or 'none'}, got {protocol!r}"
        )
    return protocol
