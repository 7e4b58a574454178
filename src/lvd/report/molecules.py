"""The page on the experiments with molecules: written from results, so that no figure in it is typed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lvd._validation import InputError
from lvd.experiments import provenance
from lvd.experiments.collect import Measured, read_results
from lvd.experiments.functional_groups import GroupCount, read_counts
from lvd.experiments.methods import VARIANTS
from lvd.experiments.names import MOLECULE_DATASETS, is_molecules, table_of
from lvd.report.compare import compare, count, count_by
from lvd.report.export import write_text
from lvd.report.formats import render_markdown
from lvd.report.grids import Entry, Grid, table_grids
from lvd.report.group_grids import beside_printed, group_grids, shares_valid
from lvd.report.protocol_change import main_figure
from lvd.report.reproduction import Note, read_notes
from lvd.report.tables import Tables, make_tables

COUNTED = (*VARIANTS, "MADSplit")


def write_molecules_page(
    results: Sequence[Path], out: Path, *, groups: Path | None = None, notes: Path | None = None
) -> None:
    """Write the page from results on molecules, and from counts within functional groups where there are some."""
    rows = [row for path in results for row in read_results(path) if is_molecules(row.dataset)]
    calls = [call for path in results for call in provenance.read(path)]
    counts = [] if groups is None else read_counts(groups)
    write_text(out, render_molecules(rows, calls, counts, [] if notes is None else read_notes(notes)))


def render_molecules(
    rows: Sequence[Measured],
    calls: Sequence[provenance.Call],
    counts: Sequence[GroupCount],
    notes: Sequence[Note],
) -> str:
    """The page as Markdown."""
    tables = {name: make_tables(rows, name) for name in sorted({row.protocol for row in rows})}
    if "paper" not in tables:
        raise InputError("the page needs results on molecules under the paper protocol, there are none")
    counted = [c for c in compare(tables["paper"].cells) if c.cell.method in (*COUNTED, "all")]
    methods = list(dict.fromkeys(row.method for row in rows if row.method not in VARIANTS))
    sizes = {table_of(row.dataset): row.n_test for row in rows if not row.error}
    return render_markdown(
        "molecules.md.jinja",
        sizes=[f"{name.upper()} ({n_test} test molecules)" for name, n_test in sorted(sizes.items())],
        calls=calls,
        methods=["LVD", *methods],
        seeds=_seeds(rows, methods),
        overall=count("all", counted),
        by_table=count_by(counted, lambda c: c.cell.table),
        by_method=count_by(counted, lambda c: c.cell.method),
        by_metric=count_by(counted, lambda c: f"{table_of(c.cell.dataset)}, {c.cell.metric}"),
        notes=notes,
        scaled=_scaled_grid(tables),
        beside_printed=beside_printed(counts),
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


def _scaled_grid(tables: dict[str, Tables]) -> Grid:
    """What standardised targets do to CQR and DE."""
    datasets = [name for name in tables["paper"].datasets if name.lower() in MOLECULE_DATASETS]
    rows = [
        (
            Entry(f"{dataset}, {method}"),
            *(
                Entry(main_figure(one, metric, dataset, method))
                for metric in ("MAD", "MCR", "AUROC")
                for one in tables.values()
            ),
        )
        for dataset in datasets
        for method in ("CQR", "DE")
    ]
    headings = [f"{metric}, {name}" for metric in ("MAD", "MCR", "AUROC") for name in tables]
    return Grid("CQR and DE with and without standardised targets", "", ("", *headings), tuple(rows))


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
