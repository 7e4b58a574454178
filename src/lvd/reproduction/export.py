"""The tables of a set of results in every format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import RenderableType

from lvd._files import atomic_path
from lvd.reproduction.collect import Measured
from lvd.reproduction import formats
from lvd.reproduction.printed_comparison import compare
from lvd.reproduction.comparison_grids import comparison_csv, comparison_grids
from lvd.reproduction.features import features_grid
from lvd.reproduction.grids import Grid, table_grids
from lvd.reproduction.result_tables import long_form, make_tables

FILES = ("tables.md", "tables.tex", "cells.csv", "comparison.csv")
"""What :meth:`Report.write_folder` writes."""


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

    def csv(self) -> str:
        """The cells, one a line."""
        return long_form(self.tables.cells)

    def write_folder(self, folder: Path) -> list[Path]:
        """Write all formats to files; returns their paths."""
        contents = [self.markdown(), self.latex(), self.csv()]
        if self.comparisons is not None:
            contents.append(comparison_csv(self.comparisons))
        texts = dict(zip(FILES, contents, strict=False))
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_text(folder / name, text)
        return [folder / name for name in texts]


def write_text(path: Path, text: str) -> None:
    """A text file, written whole or not at all."""
    with atomic_path(path) as part:
        part.write_text(text, encoding="utf-8")
