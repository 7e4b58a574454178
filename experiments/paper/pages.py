"""The tables of one protocol in all formats, and the reproduction page, all of whose figures are computed."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.paper.collect import Measured, read_results
from experiments.paper.figures import thought_experiment
from experiments.paper.formats import Grid, render_markdown, to_latex, to_markdown
from experiments.paper.layout import method_title
from experiments.paper.method_grids import decision_grid, features_grid, seconds_grid, tails_grid
from experiments.paper.printed import (
    ComparedCell,
    Count,
    cells_grid,
    compare_with_printed,
    comparison_csv,
    comparison_grids,
    count_cells_by,
    counts_grid,
)
from experiments.paper.rerun import pair_runs, rerun_grid
from experiments.paper.result_store import Call, read_calls
from experiments.paper.result_tables import (
    MAIN_FIGURES,
    PLACE,
    ResultTables,
    long_form,
    main_figure,
    make_tables,
    table_grids,
)
from lvd import InputError
from lvd._files import write_text

FILES = {"tables.md": "markdown", "tables.tex": "latex", "cells.csv": "csv", "comparison.csv": "comparison"}
"""Names of the texts of :func:`tables_report`."""


def tables_report(
    rows: Sequence[Measured], protocol: str | None, *, compare_with_paper: bool
) -> tuple[list[Grid], dict[str, str]]:
    """The texts of one protocol's tables, with the comparison with the paper if requested.

    All tables as ``markdown`` and ``latex``, the cells as ``csv``, and the ``comparison``, if any, also as CSV.
    """
    tables = make_tables(rows, protocol)
    grids, texts = [*table_grids(tables), features_grid(tables, rows)], {"csv": long_form(tables.cells)}
    if compare_with_paper:
        comparisons = compare_with_printed(tables.cells)
        grids += comparison_grids(comparisons)
        texts["comparison"] = comparison_csv(comparisons)
    return grids, texts | {"markdown": to_markdown(grids), "latex": to_latex(grids)}


@dataclass(frozen=True)
class Note:
    """A remark on the cells that match all of its given properties."""

    text: str
    table: str | None = None
    metric: str | None = None
    confidence_level: float | None = None
    dataset: str | None = None
    method: str | None = None

    def fits(self, comparison: ComparedCell) -> bool:
        """Whether the note applies to this cell."""
        return all(getattr(self, name) in (None, getattr(comparison.cell, name)) for name in PLACE)


def write_small_page(
    results: Sequence[Path], out: Path, *, notes: Path | None = None, rerun: Path | None = None
) -> None:
    """Write the page from results of the paper protocol, and of the sound one if there are any.

    `rerun` holds runs of both that were repeated on another machine.
    """
    sources = [*results, *([] if rerun is None else [rerun])]
    page = render_small_page(
        [row for path in results for row in read_results(path)],
        [call for path in sources for call in read_calls(path)],
        [] if notes is None else read_notes(notes),
        rerun=[] if rerun is None else read_results(rerun),
    )
    write_text(out, page)


def render_small_page(
    rows: Sequence[Measured],
    calls: Sequence[Call],
    notes: Sequence[Note],
    *,
    rerun: Sequence[Measured] = (),
) -> str:
    """The page as Markdown."""
    thought = thought_experiment()
    tables = tables_by_protocol(rows)
    comparisons = compare_with_printed(tables["paper"].cells)
    counted = [comparison for comparison in comparisons if comparison.counted]
    incompatible = [comparison for comparison in counted if comparison.incompatible]
    others = [comparison for comparison in comparisons if not comparison.counted]
    rerun_protocols = sorted({row.protocol for row in rerun})
    again = compare_with_printed(make_tables(rerun, "paper").cells) if "paper" in rerun_protocols else []
    return render_markdown(
        "paper/reproduction.md.jinja",
        calls=calls,
        tables=tables,
        grids={
            name: [*table_grids(one), features_grid(one, rows), seconds_grid(one, rows)]
            for name, one in tables.items()
        },
        **agreement(counted),
        by_dataset=count_cells_by(counted, lambda c: c.cell.dataset),
        counts=counts_grid("By table and method", counted),
        incompatible=[(c, [note.text for note in notes if note.fits(c)]) for c in incompatible],
        incompatible_grid=cells_grid("Incompatible cells", incompatible),
        untested_grid=cells_grid("Cells without a test", [c for c in counted if c.untested]),
        others=count_cells_by(others, lambda c: method_title(c.cell.method, c.cell.table)),
        decision=decision_grid(rows, "sound"),
        tails=tails_grid(rows, "sound", rerun),
        rerun_overall=Count("all", [c for c in again if c.counted]) if again else None,
        reruns=[rerun_grid(pair_runs(rows, rerun, name), name) for name in rerun_protocols],
        thought=list(zip(thought.x, thought.y_pred, thought.intervals, thought.y_rows, strict=True)),
        main_figure=main_figure,
        main_metrics=list(MAIN_FIGURES),
        failures=_failures(rows),
    )


def tables_by_protocol(rows: Sequence[Measured]) -> dict[str, ResultTables]:
    """The tables of every protocol, which must include the paper's."""
    tables = {name: make_tables(rows, name) for name in sorted({row.protocol for row in rows})}
    if "paper" not in tables:
        raise InputError(
            "the page needs results of the paper protocol, and there are none; "
            "make some with: python -m experiments run --protocol paper"
        )
    return tables


def agreement(counted: Sequence[ComparedCell]) -> dict[str, Any]:
    """How many cells agree with the printed ones, for a page: in total, by table and by method."""
    return {
        "overall": Count("all", counted),
        "by_table": count_cells_by(counted, lambda c: c.cell.table),
        "by_method": count_cells_by(counted, lambda c: c.cell.method),
        "untested": Counter(c.untested for c in counted if c.untested),
    }


def read_notes(path: Path) -> list[Note]:
    """Read notes from a TOML file: each ``[[note]]`` has a text and properties of the cells it applies to."""
    try:
        return [Note(**entry) for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("note", [])]
    except (OSError, TypeError, tomllib.TOMLDecodeError) as error:
        raise InputError(
            f"the notes in {path} cannot be read ({error}); see python -m experiments page --help"
        ) from error


def _failures(rows: Sequence[Measured]) -> list[tuple[str, str, str, str, int]]:
    """Protocol, dataset, method and error of failed runs, and on how many seeds."""
    runs = {(r.protocol, r.dataset, r.method, " ".join(r.error.split()), r.seed) for r in rows if r.error}
    return sorted((*kind, count) for kind, count in Counter(run[:4] for run in runs).items())
