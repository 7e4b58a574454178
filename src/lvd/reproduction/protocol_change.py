"""What changes from the paper protocol to the sound one."""

from __future__ import annotations

from lvd.reproduction.paper_methods import MAIN_VARIANT
from lvd.reproduction.grids import MISSING, Entry, Grid
from lvd.reproduction.result_tables import Cell, Tables

_SHOWN = (
    ("coverage", "MCR", 0.9),
    ("coverage", "TCR", 0.9),
    ("discrimination", "AUROC", 0.5),
    ("discrimination", "MAD", 0.9),
    ("width", "finite_count", 0.9),
    ("width", "width", 0.9),
)


def change_grid(tables: dict[str, Tables]) -> Grid:
    """LVD's main figures under both protocols."""
    datasets = [name for name in tables["paper"].datasets if name in tables["sound"].datasets]
    return Grid(
        "LVD under both protocols",
        "Mean over the seeds, paper protocol -> sound protocol; finite counts and widths at level 90%.",
        ("", "MCR", "TCR", "AUROC", "MAD", "# finite", "width"),
        tuple(
            (
                Entry(f"{name} ({tables['paper'].test_sizes[name]})"),
                *(
                    Entry(" -> ".join(main_figure(tables[p], metric, name) for p in ("paper", "sound")))
                    for _, metric, _ in _SHOWN
                ),
            )
            for name in datasets
        ),
    )


def main_figure(tables: Tables, metric: str, dataset: str, method: str = MAIN_VARIANT) -> str:
    """The mean of one of LVD's main figures, or of a rival's, as text."""
    table, _, level = next(place for place in _SHOWN if place[1] == metric)
    wanted = (table, metric, level, dataset, method)
    found = [cell for cell in tables.cells if _place(cell) == wanted and cell.sample.n]
    return f"{found[0].sample.mean:.{found[0].decimals}f}" if found else MISSING


def _place(cell: Cell) -> tuple[str, str, float, str, str]:
    return cell.table, cell.metric, cell.confidence_level, cell.dataset, cell.method
