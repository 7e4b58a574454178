"""The tables of a set of results in every format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from rich.console import RenderableType

from lvd._files import atomic_path
from lvd.experiments.collect import Measured
from lvd.report import formats
from lvd.report.compare import compare
from lvd.report.comparison_grids import comparison_grids, write_comparisons
from lvd.report.features import features_grid
from lvd.report.grids import Grid, table_grids
from lvd.report.tables import make_tables, write_long_form


class Report:
    """The tables of one protocol, with the comparison with the paper below them if asked for."""

    def __init__(self, rows: Sequence[Measured], protocol: str | None, *, compare_with_paper: bool) -> None:
        self.tables = make_tables(rows, protocol)
        self.comparisons = compare(self.tables.cells) if compare_with_paper else None
        self.grids: list[Grid] = [*table_grids(self.tables), features_grid(self.tables, rows)]
        if self.comparisons is not None:
            self.grids += comparison_grids(self.comparisons)

    def markdown(self) -> str:
        """All tables as Markdown."""
        return formats.to_markdown(self.grids)

    def latex(self) -> str:
        """All tables as LaTeX."""
        return formats.to_latex(self.grids)

    def terminal(self) -> list[RenderableType]:
        """All tables for a terminal."""
        return formats.to_terminal(self.grids)

    def write_cells(self, file: TextIO) -> None:
        """The cells, one a line."""
        write_long_form(self.tables.cells, file)

    def write_folder(self, folder: Path) -> list[Path]:
        """Write all formats to files; returns their paths."""
        writers: dict[str, Callable[[TextIO], object]] = {
            "tables.md": lambda file: file.write(self.markdown()),
            "tables.tex": lambda file: file.write(self.latex()),
            "cells.csv": self.write_cells,
        }
        comparisons = self.comparisons
        if comparisons is not None:
            writers["comparison.csv"] = lambda file: write_comparisons(comparisons, file)
        folder.mkdir(parents=True, exist_ok=True)
        for name, write in writers.items():
            write_file(folder / name, write)
        return [folder / name for name in writers]


def write_file(path: Path, write: Callable[[TextIO], object]) -> None:
    """A text file, written whole or not at all."""
    with atomic_path(path) as part, part.open("w", encoding="utf-8", newline="") as file:
        write(file)
