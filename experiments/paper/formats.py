"""Grids: result tables as Markdown, LaTeX and terminal output."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import InitVar, dataclass, field
from typing import Any

from jinja2 import BaseLoader, Environment, PackageLoader, StrictUndefined
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

MISSING = "\N{EN DASH}"


@dataclass(frozen=True)
class GridEntry:
    """One entry of a grid: a figure, possibly emphasised, with its spread after the sign ±."""

    text: str
    spread: str = ""
    emphasis: str = ""


@dataclass(frozen=True)
class Grid:
    """A table for display; the first entry of each row is its label. Plain text is also an entry."""

    title: str
    caption: str
    headings: tuple[str, ...]
    lines: InitVar[Iterable[Iterable[str | GridEntry]]]
    rows: tuple[tuple[GridEntry, ...], ...] = field(init=False)

    def __post_init__(self, lines: Iterable[Iterable[str | GridEntry]]) -> None:
        rows = tuple(tuple(GridEntry(one) if isinstance(one, str) else one for one in line) for line in lines)
        object.__setattr__(self, "rows", rows)


def figure_text(value: float | None, form: str) -> str:
    """A number as text: a dash if missing, and a sign for infinity."""
    if value is None or math.isnan(value):
        return MISSING
    return "\N{INFINITY}" if math.isinf(value) else format(value, form)


_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "#$%&_{}"}
    | {MISSING: r"\textendash", "\N{INFINITY}": r"$\infty$", "\N{PLUS-MINUS SIGN}": r"$\pm$"}
)


def number_of(count: int, noun: str) -> str:
    """``1 seed``, ``3 seeds``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def to_markdown(grids: Iterable[Grid]) -> str:
    """Pipe tables, each below its title."""
    return "\n\n".join(markdown_table(grid) for grid in grids) + "\n"


def markdown_table(grid: Grid) -> str:
    """One pipe table below its title and caption."""
    caption = [grid.caption] if grid.caption else []
    return "\n\n".join([f"### {grid.title}", *caption, bare_table(grid)])


def bare_table(grid: Grid) -> str:
    """A pipe table on its own."""
    lines = [_markdown_line(grid.headings), "|---" * len(grid.headings) + "|"]
    lines += [_markdown_line(_markdown_entry(entry) for entry in row) for row in grid.rows]
    return "\n".join(lines)


def render_markdown(template: str, loader: BaseLoader | None = None, **values: Any) -> str:
    """Render a page from a template, by default one of this package's, which can show grids as tables."""
    environment = Environment(
        loader=loader or PackageLoader("experiments", ""),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.filters |= {"table": markdown_table, "bare": bare_table}
    return environment.get_template(template).render(**values)


def csv_text(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Comma-separated text with a header line."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([headings, *rows])
    return file.getvalue()


def to_latex(grids: Iterable[Grid]) -> str:
    """Tables for a document that uses the booktabs package."""
    return "\n\n".join(_latex_table(grid) for grid in grids) + "\n"


def to_terminal(grids: Iterable[Grid]) -> list[RenderableType]:
    """Text and tables for rich's console."""
    return [part for grid in grids for part in _terminal_parts(grid)]


def _markdown_line(texts: Iterable[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def _markdown_entry(entry: GridEntry) -> str:
    marked = {"": "{}", "bold": "**{}**", "underline": "<u>{}</u>"}[entry.emphasis].format(entry.text)
    return f"{marked} ± {entry.spread}" if entry.spread else marked


def _latex_table(grid: Grid) -> str:
    rows = [" & ".join(_latex_entry(entry) for entry in row) + r" \\" for row in grid.rows]
    return "\n".join(
        [
            r"\begin{table}[ht]",
            rf"\caption{{{' '.join(f'{grid.title}. {grid.caption}'.split()).translate(_LATEX)}}}",
            r"\centering",
            rf"\begin{{tabular}}{{l{'c' * (len(grid.headings) - 1)}}}",
            r"\toprule",
            " & ".join(heading.translate(_LATEX) for heading in grid.headings) + r" \\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def _latex_entry(entry: GridEntry) -> str:
    text = entry.text.translate(_LATEX)
    marked = {"bold": rf"\textbf{{{text}}}", "underline": rf"\underline{{{text}}}"}.get(entry.emphasis, text)
    return rf"{marked}$\pm${entry.spread}" if entry.spread else marked


def _terminal_parts(grid: Grid) -> list[RenderableType]:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, heading in enumerate(grid.headings):
        table.add_column(heading, justify="left" if number == 0 else "right", no_wrap=True)
    for row in grid.rows:
        table.add_row(*(_terminal_entry(entry) for entry in row))
    caption = [Text(grid.caption, style="dim")] if grid.caption else []
    return [Text(f"\n{grid.title}", style="bold"), *caption, table]


def _terminal_entry(entry: GridEntry) -> Text:
    text = Text(entry.text, style=entry.emphasis)
    return text.append(f" ± {entry.spread}", style="default not bold not underline") if entry.spread else text
