"""The page on QM8 and QM9: tasks that share networks, and coverage within functional groups."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.molecules.group_counts import COUNTS, GroupCount, groups_section
from experiments.molecules.questions import Answers, questions_section, read_answers
from experiments.molecules.study import STUDY_RESULTS
from experiments.molecules.study_page import StudyPart, overview, study_parts
from experiments.paper.collect import Measured, read_results
from experiments.paper.formats import Grid, render_markdown
from experiments.paper.methods import VARIANTS
from experiments.paper.pages import Note, agreement, read_notes, tables_by_protocol
from experiments.paper.printed import Count, compare_with_printed, count_cells_by, printed_texts
from experiments.paper.result_store import Call, read_calls
from experiments.paper.result_tables import ResultTables, main_figure, table_grids
from experiments.paper.runs import TASK_TABLES, has_tasks, table_of
from lvd._files import write_text

COUNTED = (*VARIANTS, "MADSplit", "all")


def write_quantum_page(
    results: Sequence[Path],
    out: Path,
    *,
    groups: Path | None = None,
    notes: Path | None = None,
    study: Path | None = None,
    questions: Path | None = None,
) -> None:
    """Write the page from results on QM8 and QM9, counts within functional groups and, if available, the study
    of today's methods and the answers about printed figures."""
    rows = [row for path in results for row in read_results(path) if has_tasks(row.dataset)]
    calls = [call for path in (*filter(None, [study]), *results) for call in read_calls(path)]
    counts = [] if groups is None else COUNTS.read_file(groups)
    parts = [] if study is None else study_parts(STUDY_RESULTS.read(study))
    found = [] if notes is None else read_notes(notes)
    answers = {} if questions is None else read_answers(questions)
    write_text(out, render_quantum_page(rows, calls, counts, found, parts=parts, answers=answers))


def render_quantum_page(
    rows: Sequence[Measured],
    calls: Sequence[Call],
    counts: Sequence[GroupCount],
    notes: Sequence[Note],
    *,
    parts: Sequence[StudyPart] = (),
    answers: Answers | None = None,
) -> str:
    """The page as Markdown."""
    tables = tables_by_protocol(rows)
    comparisons = compare_with_printed(tables["paper"].cells)
    counted = [c for c in comparisons if c.cell.method in COUNTED]
    methods = list(dict.fromkeys(row.method for row in rows if row.method not in VARIANTS))
    together = overview(parts)
    return render_markdown(
        "molecules/quantum.md.jinja",
        sizes=sorted({(table_of(row.dataset).upper(), row.n_test) for row in rows if not row.error}),
        calls=calls,
        study=[*([together] if together else []), *(part.grid() for part in parts)],
        methods=["LVD", *methods],
        seeds=_seeds(rows, methods),
        **agreement(counted),
        by_metric=count_cells_by(counted, lambda c: f"{table_of(c.cell.dataset)}, {c.cell.metric}"),
        cqr=Count("CQR", [c for c in comparisons if c.cell.method == "CQR"]),
        notes=notes,
        **questions_section(rows, answers or {}),
        scaled=_scaled_grid(tables),
        **groups_section(counts, list(tables)),
        tables=tables,
        grids={name: table_grids(one) for name, one in tables.items()},
    )


def _seeds(rows: Sequence[Measured], methods: Sequence[str]) -> list[tuple[str, str, list[int]]]:
    """Protocol, dataset, and the number of seeds of LVD and every other method."""

    def n_seeds(protocol: str, table: str, chosen: Sequence[str]) -> int:
        known = (row for row in rows if row.method in chosen and not row.error)
        return len({row.seed for row in known if (row.protocol, table_of(row.dataset)) == (protocol, table)})

    kinds = dict.fromkeys((row.protocol, table_of(row.dataset)) for row in rows)
    columns = [tuple(VARIANTS), *((method,) for method in methods)]
    return [(*kind, [n_seeds(*kind, chosen) for chosen in columns]) for kind in kinds]


def _scaled_grid(tables: dict[str, ResultTables]) -> Grid:
    """The effect of standardised targets on CQR and DE, and the printed figures."""
    printed = printed_texts("discrimination", "MAD")
    metrics = ("MAD", "MCR", "AUROC")
    return Grid(
        "CQR and DE with and without standardised targets",
        "Means over tasks and seeds.",
        ("", "MAD, printed", *(f"{metric}, {name}" for metric in metrics for name in tables)),
        [
            (
                f"{dataset}, {method}",
                printed[dataset, method],
                *(main_figure(one, metric, dataset, method) for metric in metrics for one in tables.values()),
            )
            for dataset in tables["paper"].datasets
            if dataset.lower() in TASK_TABLES
            for method in ("CQR", "DE")
        ],
    )
