"""The pages on the reproduction: written from results, so that no figure in them is typed."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType

from lvd._files import atomic_path
from lvd._validation import InputError
from lvd.reproduction import formats
from lvd.reproduction.bands import Band, thought_experiment
from lvd.reproduction.collect import Measured, read_results
from lvd.reproduction.formats import Grid, GridEntry, render_markdown
from lvd.reproduction.functional_groups import (
    GroupCount,
    beside_printed,
    group_grids,
    held_of,
    printed_held,
    read_counts,
    shares_valid,
)
from lvd.reproduction.layout import method_title
from lvd.reproduction.method_grids import decision_grid, features_grid, seconds_grid, tails_grid
from lvd.reproduction.paper_methods import MAIN_VARIANT, VARIANTS
from lvd.reproduction.printed import (
    ComparedCell,
    Count,
    cells_grid,
    compare_with_printed,
    comparison_csv,
    comparison_grids,
    count_cells,
    count_cells_by,
    counts_grid,
    printed_cells,
    untested_reasons,
)
from lvd.reproduction.rerun import pair_runs, rerun_grid
from lvd.reproduction.result_store import Call, read_calls
from lvd.reproduction.result_tables import (
    ResultTables,
    change_grid,
    long_form,
    main_figure,
    make_tables,
    table_grids,
)
from lvd.reproduction.runs import MOLECULE_DATASETS, is_molecules, table_of

FILES = ("tables.md", "tables.tex", "cells.csv", "comparison.csv")
"""What :meth:`TablesReport.write_folder` writes."""


class TablesReport:
    """The tables of one protocol, with the comparison with the paper below them if asked for."""

    def __init__(self, rows: Sequence[Measured], protocol: str | None, *, compare_with_paper: bool) -> None:
        self.tables = make_tables(rows, protocol)
        self.comparisons = compare_with_printed(self.tables.cells) if compare_with_paper else None
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


@dataclass(frozen=True)
class Note:
    """What is known of the cells whose every given property fits."""

    text: str
    table: str | None = None
    metric: str | None = None
    confidence_level: float | None = None
    dataset: str | None = None
    method: str | None = None

    def fits(self, comparison: ComparedCell) -> bool:
        """Whether the note is about this cell."""
        names = ("table", "metric", "confidence_level", "dataset", "method")
        return all(getattr(self, name) in (None, getattr(comparison.cell, name)) for name in names)


def write_small_page(
    results: Sequence[Path], out: Path, *, notes: Path | None = None, rerun: Path | None = None
) -> None:
    """Write the page from results of the paper protocol, and of the sound one where there are some.

    `rerun` has runs of both that were done again on another machine.
    """
    sources = [*results, *([] if rerun is None else [rerun])]
    page = render_small_page(
        [row for path in results for row in read_results(path)],
        [call for path in sources for call in read_calls(path)],
        [] if notes is None else read_notes(notes),
        rerun=[] if rerun is None else read_results(rerun),
        thought=thought_experiment(),
    )
    write_text(out, page)


def render_small_page(
    rows: Sequence[Measured],
    calls: Sequence[Call],
    notes: Sequence[Note],
    *,
    rerun: Sequence[Measured] = (),
    thought: Band | None = None,
) -> str:
    """The page as Markdown."""
    tables = {name: make_tables(rows, name) for name in sorted({row.protocol for row in rows})}
    if "paper" not in tables:
        raise InputError("the page needs results of the paper protocol, got only those of the sound one")
    comparisons = compare_with_printed(tables["paper"].cells)
    counted = [comparison for comparison in comparisons if comparison.counted]
    return render_markdown(
        "reproduction.md.jinja",
        calls=calls,
        seconds=sum(call.seconds for call in calls),
        tables=tables,
        grids={name: _all_grids(one, rows) for name, one in tables.items()},
        overall=count_cells("all", counted),
        by_table=count_cells_by(counted, lambda c: c.cell.table),
        by_method=count_cells_by(counted, lambda c: c.cell.method),
        by_dataset=count_cells_by(counted, lambda c: c.cell.dataset),
        counts=counts_grid("By table and method", counted),
        incompatible=[(c, _notes_on(c, notes)) for c in counted if c.incompatible],
        incompatible_grid=cells_grid("Incompatible cells", [c for c in counted if c.incompatible]),
        untested=untested_reasons(counted),
        untested_grid=cells_grid("Cells without a test", [c for c in counted if c.untested]),
        others=_others(comparisons),
        change=change_grid(tables) if "sound" in tables else None,
        decision=decision_grid(rows, "sound"),
        tails=tails_grid(rows, "sound", rerun),
        rerun_overall=count_cells("rerun", _counted(rerun))
        if any(r.protocol == "paper" for r in rerun)
        else None,
        reruns=[
            rerun_grid(pair_runs(rows, rerun, name), name) for name in sorted({r.protocol for r in rerun})
        ],
        thought=None if thought is None else _thought_grid(thought),
        madsplit_change=_madsplit_change(tables),
        main_figure=main_figure,
        failures=_failures(rows),
    )


def read_notes(path: Path) -> list[Note]:
    """Notes from a TOML file: each ``[[note]]`` has a text and says which cells it is about."""
    try:
        return [Note(**entry) for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("note", [])]
    except (OSError, TypeError, tomllib.TOMLDecodeError) as error:
        raise InputError(
            f"the notes in {path} cannot be read ({error}); see lvd bench page --help"
        ) from error


def _all_grids(tables: ResultTables, rows: Sequence[Measured]) -> list[Grid]:
    return [*table_grids(tables), features_grid(tables, rows), seconds_grid(tables, rows)]


def _notes_on(comparison: ComparedCell, notes: Sequence[Note]) -> list[str]:
    return [note.text for note in notes if note.fits(comparison)]


def _counted(rows: Sequence[Measured]) -> list[ComparedCell]:
    return [
        comparison
        for comparison in compare_with_printed(make_tables(rows, "paper").cells)
        if comparison.counted
    ]


def _thought_grid(band: Band) -> Grid:
    """Intervals and errors at every other place to the right of 0; the left is their mirror image."""
    shown = [index for index, x in enumerate(band.x) if x >= 0.0 and x % 2 == 0]
    return Grid(
        "Y = |X|, and a line through 0",
        "Jackknife+ at level 90%.",
        ("x", "prediction", "interval", "error"),
        tuple(
            (
                GridEntry(f"{band.x[i]:.0f}"),
                GridEntry(f"{round(float(band.y_pred[i]), 2) + 0.0:.2f}"),
                GridEntry(f"[{band.intervals[i, 0]:.2f}, {band.intervals[i, 1]:.2f}]"),
                GridEntry(f"{abs(band.y_rows[i] - band.y_pred[i]):.2f}"),
            )
            for i in shown
        ),
    )


def _madsplit_change(tables: dict[str, ResultTables]) -> str:
    """MADSplit's coverage on every dataset under one protocol after the other."""
    return ", ".join(
        f"{name} {' -> '.join(main_figure(one, 'MCR', name, 'MADSplit') for one in tables.values())}"
        for name in tables["paper"].datasets
    )


def _others(comparisons: Sequence[ComparedCell]) -> list[Count]:
    others = [comparison for comparison in comparisons if not comparison.counted]
    return count_cells_by(others, lambda c: method_title(c.cell.method, c.cell.table))


def _failures(rows: Sequence[Measured]) -> list[tuple[str, str, str, str, int]]:
    """Protocol, dataset, method, error, and on how many seeds."""
    runs = {(r.protocol, r.dataset, r.method, " ".join(r.error.split()), r.seed) for r in rows if r.error}
    kinds = sorted({run[:4] for run in runs})
    return [(*kind, sum(run[:4] == kind for run in runs)) for kind in kinds]


COUNTED = (*VARIANTS, "MADSplit")
_PRINTED_MAD = ("discrimination", "MAD")


def write_molecules_page(
    results: Sequence[Path], out: Path, *, groups: Path | None = None, notes: Path | None = None
) -> None:
    """Write the page from results on molecules, and from counts within functional groups where there are some."""
    rows = [row for path in results for row in read_results(path) if is_molecules(row.dataset)]
    calls = [call for path in results for call in read_calls(path)]
    counts = [] if groups is None else read_counts(groups)
    write_text(out, render_molecules(rows, calls, counts, [] if notes is None else read_notes(notes)))


def render_molecules(
    rows: Sequence[Measured],
    calls: Sequence[Call],
    counts: Sequence[GroupCount],
    notes: Sequence[Note],
) -> str:
    """The page as Markdown."""
    tables = {name: make_tables(rows, name) for name in sorted({row.protocol for row in rows})}
    if "paper" not in tables:
        raise InputError("the page needs results on molecules under the paper protocol, there are none")
    comparisons = compare_with_printed(tables["paper"].cells)
    counted = [c for c in comparisons if c.cell.method in (*COUNTED, "all")]
    methods = list(dict.fromkeys(row.method for row in rows if row.method not in VARIANTS))
    sizes = {table_of(row.dataset): row.n_test for row in rows if not row.error}
    return render_markdown(
        "molecules.md.jinja",
        sizes=[f"{name.upper()} ({n_test} test molecules)" for name, n_test in sorted(sizes.items())],
        calls=calls,
        methods=["LVD", *methods],
        seeds=_seeds(rows, methods),
        overall=count_cells("all", counted),
        by_table=count_cells_by(counted, lambda c: c.cell.table),
        by_method=count_cells_by(counted, lambda c: c.cell.method),
        by_metric=count_cells_by(counted, lambda c: f"{table_of(c.cell.dataset)}, {c.cell.metric}"),
        untested=untested_reasons(counted),
        cqr=count_cells("CQR", [c for c in comparisons if c.cell.method == "CQR"]),
        notes=notes,
        scaled=_scaled_grid(tables),
        beside_printed=beside_printed(counts),
        held=_held(counts),
        printed_held=printed_held(),
        groups=_group_grids(counts, list(tables)),
        tables=tables,
        grids={name: table_grids(one) for name, one in tables.items()},
    )


def _seeds(rows: Sequence[Measured], methods: Sequence[str]) -> list[tuple[str, str, list[int]]]:
    """Protocol, dataset, and how many seeds LVD and each other method were run with."""

    def n_seeds(protocol: str, table: str, chosen: Sequence[str]) -> int:
        return len(
            {
                row.seed
                for row in rows
                if (row.protocol, table_of(row.dataset)) == (protocol, table)
                and row.method in chosen
                and not row.error
            }
        )

    kinds = dict.fromkeys((row.protocol, table_of(row.dataset)) for row in rows)
    columns = [tuple(VARIANTS), *((method,) for method in methods)]
    return [(*kind, [n_seeds(*kind, chosen) for chosen in columns]) for kind in kinds]


def _scaled_grid(tables: dict[str, ResultTables]) -> Grid:
    """What standardised targets do to CQR and DE, and what was printed."""
    printed = {(c.dataset, c.method): c for c in printed_cells() if (c.table, c.metric) == _PRINTED_MAD}
    datasets = [name for name in tables["paper"].datasets if name.lower() in MOLECULE_DATASETS]
    rows = [
        (
            GridEntry(f"{dataset}, {method}"),
            GridEntry(f"{printed[dataset, method].mean:.2f}"),
            *(
                GridEntry(main_figure(one, metric, dataset, method))
                for metric in ("MAD", "MCR", "AUROC")
                for one in tables.values()
            ),
        )
        for dataset in datasets
        for method in ("CQR", "DE")
    ]
    headings = [f"{metric}, {name}" for metric in ("MAD", "MCR", "AUROC") for name in tables]
    title = "CQR and DE with and without standardised targets"
    return Grid(title, "Means over tasks and seeds.", ("", "MAD, printed", *headings), tuple(rows))


def _held(counts: Sequence[GroupCount]) -> dict[str, str]:
    """In how many groups and tasks of QM9 coverage holds as the paper judged it, for those it is a question of."""
    return {
        method_title(method, "functional_groups"): f"{held} of {total}"
        for method in (MAIN_VARIANT, "split", "MADSplit")
        for held, total in [held_of(counts, "paper", "qm9", method, "text")]
    }


def _group_grids(counts: Sequence[GroupCount], protocols: Sequence[str]) -> list[Grid]:
    if not counts:
        return []
    tables = list(dict.fromkeys(table_of(one.dataset) for one in counts))
    summaries = [
        shares_valid(counts, protocol, table)
        for protocol in protocols
        for table in tables
        if any(one.protocol == protocol and table_of(one.dataset) == table for one in counts)
    ]
    return [*summaries, *(grid for table in tables for grid in group_grids(counts, "paper", table))]
