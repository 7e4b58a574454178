"""The page on the experiments with molecules: written from results, so that no figure in it is typed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lvd._validation import InputError
from lvd.reproduction import printed_cells
from lvd.reproduction import provenance
from lvd.reproduction.collect import Measured, read_results
from lvd.reproduction.functional_groups import GroupCount, read_counts
from lvd.reproduction.paper_methods import MAIN_VARIANT, VARIANTS
from lvd.reproduction.names import MOLECULE_DATASETS, is_molecules, table_of
from lvd.reproduction.printed_comparison import compare, count, count_by, untested_reasons
from lvd.reproduction.export import write_text
from lvd.reproduction.formats import render_markdown
from lvd.reproduction.grids import Entry, Grid, table_grids
from lvd.reproduction.group_grids import beside_printed, group_grids, held_of, printed_held, shares_valid
from lvd.reproduction.layout import method_title
from lvd.reproduction.protocol_change import main_figure
from lvd.reproduction.small_page import Note, read_notes
from lvd.reproduction.result_tables import Tables, make_tables

COUNTED = (*VARIANTS, "MADSplit")
_PRINTED_MAD = ("discrimination", "MAD")


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
    comparisons = compare(tables["paper"].cells)
    counted = [c for c in comparisons if c.cell.method in (*COUNTED, "all")]
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
        untested=untested_reasons(counted),
        cqr=count("CQR", [c for c in comparisons if c.cell.method == "CQR"]),
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


def _scaled_grid(tables: dict[str, Tables]) -> Grid:
    """What standardised targets do to CQR and DE, and what was printed."""
    printed = {(c.dataset, c.method): c for c in printed_cells() if (c.table, c.metric) == _PRINTED_MAD}
    datasets = [name for name in tables["paper"].datasets if name.lower() in MOLECULE_DATASETS]
    rows = [
        (
            Entry(f"{dataset}, {method}"),
            Entry(f"{printed[dataset, method].mean:.2f}"),
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
