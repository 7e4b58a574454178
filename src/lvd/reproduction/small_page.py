"""The page on the reproduction: written from results, so that no figure in it is typed."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lvd._validation import InputError
from lvd.reproduction import provenance
from lvd.reproduction.bands import Band, thought_experiment
from lvd.reproduction.collect import Measured, read_results
from lvd.reproduction.printed_comparison import Comparison, Count, compare, count, count_by, untested_reasons
from lvd.reproduction.comparison_grids import cells_grid, counts_grid
from lvd.reproduction.decision import decision_grid, tails_grid
from lvd.reproduction.export import write_text
from lvd.reproduction.features import features_grid, seconds_grid
from lvd.reproduction.formats import render_markdown
from lvd.reproduction.grids import Entry, Grid, table_grids
from lvd.reproduction.layout import method_title
from lvd.reproduction.protocol_change import change_grid, main_figure
from lvd.reproduction.rerun import pair_runs, rerun_grid
from lvd.reproduction.result_tables import Tables, make_tables


@dataclass(frozen=True)
class Note:
    """What is known of the cells whose every given property fits."""

    text: str
    table: str | None = None
    metric: str | None = None
    confidence_level: float | None = None
    dataset: str | None = None
    method: str | None = None

    def fits(self, comparison: Comparison) -> bool:
        """Whether the note is about this cell."""
        names = ("table", "metric", "confidence_level", "dataset", "method")
        return all(getattr(self, name) in (None, getattr(comparison.cell, name)) for name in names)


def write_page(
    results: Sequence[Path], out: Path, *, notes: Path | None = None, rerun: Path | None = None
) -> None:
    """Write the page from results of the paper protocol, and of the sound one where there are some.

    `rerun` has runs of both that were done again on another machine.
    """
    sources = [*results, *([] if rerun is None else [rerun])]
    page = render(
        [row for path in results for row in read_results(path)],
        [call for path in sources for call in provenance.read(path)],
        [] if notes is None else read_notes(notes),
        rerun=[] if rerun is None else read_results(rerun),
        thought=thought_experiment(),
    )
    write_text(out, page)


def render(
    rows: Sequence[Measured],
    calls: Sequence[provenance.Call],
    notes: Sequence[Note],
    *,
    rerun: Sequence[Measured] = (),
    thought: Band | None = None,
) -> str:
    """The page as Markdown."""
    tables = {name: make_tables(rows, name) for name in sorted({row.protocol for row in rows})}
    if "paper" not in tables:
        raise InputError("the page needs results of the paper protocol, got only those of the sound one")
    comparisons = compare(tables["paper"].cells)
    counted = [comparison for comparison in comparisons if comparison.counted]
    return render_markdown(
        "reproduction.md.jinja",
        calls=calls,
        seconds=sum(call.seconds for call in calls),
        tables=tables,
        grids={name: _all_grids(one, rows) for name, one in tables.items()},
        overall=count("all", counted),
        by_table=count_by(counted, lambda c: c.cell.table),
        by_method=count_by(counted, lambda c: c.cell.method),
        by_dataset=count_by(counted, lambda c: c.cell.dataset),
        counts=counts_grid("By table and method", counted),
        incompatible=[(c, _notes_on(c, notes)) for c in counted if c.incompatible],
        incompatible_grid=cells_grid("Incompatible cells", [c for c in counted if c.incompatible]),
        untested=untested_reasons(counted),
        untested_grid=cells_grid("Cells without a test", [c for c in counted if c.untested]),
        others=_others(comparisons),
        change=change_grid(tables) if "sound" in tables else None,
        decision=decision_grid(rows, "sound"),
        tails=tails_grid(rows, "sound", rerun),
        rerun_overall=count("rerun", _counted(rerun)) if any(r.protocol == "paper" for r in rerun) else None,
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


def _all_grids(tables: Tables, rows: Sequence[Measured]) -> list[Grid]:
    return [*table_grids(tables), features_grid(tables, rows), seconds_grid(tables, rows)]


def _notes_on(comparison: Comparison, notes: Sequence[Note]) -> list[str]:
    return [note.text for note in notes if note.fits(comparison)]


def _counted(rows: Sequence[Measured]) -> list[Comparison]:
    return [comparison for comparison in compare(make_tables(rows, "paper").cells) if comparison.counted]


def _thought_grid(band: Band) -> Grid:
    """Intervals and errors at every other place to the right of 0; the left is their mirror image."""
    shown = [index for index, x in enumerate(band.x) if x >= 0.0 and x % 2 == 0]
    return Grid(
        "Y = |X|, and a line through 0",
        "Jackknife+ at level 90%.",
        ("x", "prediction", "interval", "error"),
        tuple(
            (
                Entry(f"{band.x[i]:.0f}"),
                Entry(f"{round(float(band.y_pred[i]), 2) + 0.0:.2f}"),
                Entry(f"[{band.intervals[i, 0]:.2f}, {band.intervals[i, 1]:.2f}]"),
                Entry(f"{abs(band.y_rows[i] - band.y_pred[i]):.2f}"),
            )
            for i in shown
        ),
    )


def _madsplit_change(tables: dict[str, Tables]) -> str:
    """MADSplit's coverage on every dataset under one protocol after the other."""
    return ", ".join(
        f"{name} {' -> '.join(main_figure(one, 'MCR', name, 'MADSplit') for one in tables.values())}"
        for name in tables["paper"].datasets
    )


def _others(comparisons: Sequence[Comparison]) -> list[Count]:
    others = [comparison for comparison in comparisons if not comparison.counted]
    return count_by(others, lambda c: method_title(c.cell.method, c.cell.table))


def _failures(rows: Sequence[Measured]) -> list[tuple[str, str, str, str, int]]:
    """Protocol, dataset, method, error, and on how many seeds."""
    runs = {(r.protocol, r.dataset, r.method, " ".join(r.error.split()), r.seed) for r in rows if r.error}
    kinds = sorted({run[:4] for run in runs})
    return [(*kind, sum(run[:4] == kind for run in runs)) for kind in kinds]
