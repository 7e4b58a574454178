"""What each method does on the datasets, in one line: the table to choose by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, geometric_mean

from lvd.experiments.collect import Measured
from lvd.report.emphasis import P_VALUE
from lvd.report.features import FEATURED
from lvd.report.grids import MISSING, Entry, Grid
from lvd.report.layout import method_title
from lvd.report.significance import p_above, p_below, sample_of


class Figures:
    """The figures of one protocol by method, level and dataset."""

    def __init__(self, rows: Sequence[Measured], protocol: str) -> None:
        self._rows: dict[tuple[str, float], dict[str, list[Measured]]] = {}
        for row in rows:
            if row.protocol == protocol and not row.error:
                by_dataset = self._rows.setdefault((row.method, row.confidence_level), {})
                by_dataset.setdefault(row.dataset, []).append(row)

    def by_dataset(self, method: str, level: float, name: str) -> dict[str, list[float]]:
        """The values of one metric over the seeds, dataset by dataset; unknown ones are left out."""
        values = {
            dataset: [getattr(row, name) for row in members]
            for dataset, members in self._rows.get((method, level), {}).items()
        }
        known = {d: [v for v in members if not math.isnan(v)] for d, members in values.items()}
        return {dataset: members for dataset, members in known.items() if members}


def decision_grid(rows: Sequence[Measured], protocol: str) -> Grid:
    """One line per method: where its coverage holds, where its widths tell, how wide and how often finite it is."""
    figures = Figures(rows, protocol)
    return Grid(
        f"The methods at a glance ({protocol} protocol)",
        "MCR, TCR: datasets on which the rate at 90% is not significantly below the level. AUROC: those on which "
        "the width tells large errors from small ones (significantly above 50). Finite: share of rows, mean over "
        "datasets. Width: at level 90%, beside that of split conformal on the rows where LVD is finite, geometric "
        "mean over datasets.",
        ("", "MCR holds", "TCR holds", "AUROC tells", "finite at 50%", "finite at 90%", "width beside split"),
        tuple(_line(figures, method) for method in FEATURED if figures.by_dataset(method, 0.9, "MCR")),
    )


def _line(figures: Figures, method: str) -> tuple[Entry, ...]:
    rates = [figures.by_dataset(method, 0.9, name) for name in ("MCR", "TCR")]
    holds = [[p_below(sample_of(values), 90.0) >= P_VALUE for values in rate.values()] for rate in rates]
    auroc = figures.by_dataset(method, 0.5, "AUROC")
    tells = [p_above(sample_of(values), 50.0) < P_VALUE for values in auroc.values()]
    return (
        Entry(method_title(method, "decision")),
        *(Entry(f"{sum(found)} of {len(found)}") for found in (*holds, tells)),
        *(Entry(_finite(figures, method, level)) for level in (0.5, 0.9)),
        Entry(_width_beside_split(figures, method)),
    )


def _finite(figures: Figures, method: str, level: float) -> str:
    counts, sizes = (figures.by_dataset(method, level, name) for name in ("finite_count", "n_test"))
    shares = [fmean(values) / fmean(sizes[dataset]) for dataset, values in counts.items()]
    return f"{fmean(shares):.0%}" if shares else MISSING


def _width_beside_split(figures: Figures, method: str) -> str:
    ours, split = (figures.by_dataset(name, 0.9, "width_lvd") for name in (method, "split"))
    ratios = [fmean(values) / fmean(split[dataset]) for dataset, values in ours.items() if dataset in split]
    return f"{geometric_mean(ratios):.2f}" if ratios else MISSING
